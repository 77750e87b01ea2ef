"""WaveDecoder: a forecast that is a sum of damped waves by construction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.errors import ArgumentError, TensorError, check_integer
from parallelrnn.nn.blocks import (
    RecurrentBlock,
    check_memory,
    check_size,
    check_steps,
    check_tensor,
    log_modulus,
    modulus_to_log_rate,
    rotations,
)


class WaveDecoder(nn.Module):
    """A free-running linear ParaRNN: blocks of size 2 are damped waves, blocks of size 1 are decays.

    One linear map computes the amplitudes, the initial state of the blocks, from the state of any encoder. Then each
    block runs on its own, h_k' = C(modulus_k, angle_k) h_k, and the forecast is the sum of their first units. So the
    parameters *are* the periods and half-lives of the forecast, and its parts add up exactly.

    It is not a recurrent layer: no input enters after the start, and there is no state to carry along.

    Parameters
    ----------
    input_size
        Features of the encoder's state.
    output_size
        Series to forecast at once. All consist of the same waves, each with its own amplitudes.
    num_waves, num_decays
        The number of blocks of size 2, and of size 1 (with a positive modulus, so that they do not alternate).

    Examples
    --------
    >>> decoder = WaveDecoder(64, num_waves=2, num_decays=1).start_at([24.0, 168.0], [200.0, 500.0], [48.0])
    >>> decoder(torch.zeros(5, 64), horizon=96).shape  # 5 sequences, 96 steps, 1 series
    torch.Size([5, 96, 1])
    """

    def __init__(
        self,
        input_size: int,
        output_size: int = 1,
        num_waves: int = 8,
        num_decays: int = 4,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_size("input_size", input_size)
        check_size("output_size", output_size)
        units = 2 * check_integer("num_waves", num_waves, 0) + check_integer("num_decays", num_decays, 0)
        if units == 0:
            raise ArgumentError(argument="num_waves", expected="at least one wave or decay in total", got=0)
        check_memory((input_size + 1) * output_size * units, device, dtype)
        self.input_size, self.output_size = input_size, output_size
        self.log_rate = nn.Parameter(torch.empty(num_waves, device=device, dtype=dtype))
        self.angle = nn.Parameter(torch.empty(num_waves, device=device, dtype=dtype))
        self.decay_log_rate = nn.Parameter(torch.empty(num_decays, device=device, dtype=dtype))
        self.amplitudes = nn.Linear(input_size, output_size * units, device=device, dtype=dtype)
        self.reset_parameters()

    @property
    def num_waves(self) -> int:
        """The number of blocks of size 2."""
        return len(self.log_rate)

    @property
    def num_decays(self) -> int:
        """The number of blocks of size 1."""
        return len(self.decay_log_rate)

    def reset_parameters(self) -> None:
        """Set log-spaced periods of 4 to 512 steps, half-lives of 256, decays of 2 to 512, and amplitudes of zero."""
        periods, decays = log_spaced(4, 512, self.num_waves), log_spaced(2, 512, self.num_decays)
        self.start_at(periods, [256.0] * self.num_waves, decays)
        nn.init.zeros_(self.amplitudes.weight)
        nn.init.zeros_(self.amplitudes.bias)

    @torch.no_grad()
    def start_at(
        self, periods: Sequence[float], half_lives: Sequence[float], decay_half_lives: Sequence[float] = ()
    ) -> WaveDecoder:
        """Set the waves, and the decays if given, in time steps; the amplitudes stay."""
        check_steps("periods", periods, self.num_waves, above=2)
        check_steps("half_lives", half_lives, self.num_waves, above=0)
        self.angle.copy_(2 * math.pi / torch.tensor(periods, dtype=torch.float64))
        self.log_rate.copy_(_to_log_rate(half_lives))
        if len(decay_half_lives):
            check_steps("decay_half_lives", decay_half_lives, self.num_decays, above=0)
            self.decay_log_rate.copy_(_to_log_rate(decay_half_lives))
        return self

    def forward(self, state: Tensor, horizon: int) -> Tensor:
        """Forecast steps 1, ..., horizon from the state (B, input_size) of an encoder: (B, H, output_size)."""
        return (self._initial_units(state) @ self.basis(horizon).T).transpose(-1, -2)

    def parts(self, state: Tensor, horizon: int) -> Tensor:
        """Return what each block adds to the forecast, waves first, then decays: (B, H, blocks, output_size)."""
        units = torch.einsum("bcu,hu->bhuc", self._initial_units(state), self.basis(horizon))
        waves, decays = units.split([2 * self.num_waves, self.num_decays], 2)
        return torch.cat([waves.unflatten(2, (-1, 2)).sum(3), decays], 2)

    def _initial_units(self, state: Tensor) -> Tensor:
        """Return the initial state of the blocks, (B, C, 2 W + R)."""
        check_tensor("state", state, self.amplitudes.weight)
        if state.dim() == 0 or state.shape[-1] != self.input_size:
            raise TensorError(argument="state", expected=f"a tensor (B, {self.input_size})", got=tuple(state.shape))
        units: Tensor = self.amplitudes(state).unflatten(-1, (self.output_size, -1))
        return units

    def basis(self, horizon: int) -> Tensor:
        """Return the first unit of each block at each step, as a map from the block's initial units: (H, 2 W + R)."""
        check_size("horizon", horizon)
        steps = torch.arange(1, horizon + 1, device=self.angle.device, dtype=self.angle.dtype)[:, None]
        modulus, angle = torch.exp(steps * log_modulus(self.log_rate)), steps * self.angle  # (H, W)
        waves = torch.stack([modulus * torch.cos(angle), modulus * torch.sin(angle)], -1).flatten(-2)  # (H, 2 W)
        return torch.cat([waves, torch.exp(steps * log_modulus(self.decay_log_rate))], -1)

    def wave_blocks(self) -> Iterator[RecurrentBlock]:
        """Iterate over the matrices of waves and decays, numbered as in `parts`.

        This is not `recurrent_blocks`, which describe memory: these are the cycles of the forecast.
        """
        waves = rotations(torch.exp(log_modulus(self.log_rate)), self.angle)
        decays = torch.exp(log_modulus(self.decay_log_rate))[:, None, None]
        for index, matrix in enumerate([*waves, *decays]):
            yield RecurrentBlock(0, "forward", "hidden", index, matrix)

    @torch.no_grad()
    def keep(self, blocks: Sequence[int]) -> WaveDecoder:
        """Return this decoder with only these blocks, numbered as in `parts`."""
        waves = sorted(block for block in blocks if block < self.num_waves)
        decays = sorted(block - self.num_waves for block in blocks if block >= self.num_waves)
        options: dict[str, Any] = {"device": self.angle.device, "dtype": self.angle.dtype}
        smaller = WaveDecoder(self.input_size, self.output_size, len(waves), len(decays), **options)
        units = [unit for wave in waves for unit in (2 * wave, 2 * wave + 1)]
        units += [2 * self.num_waves + decay for decay in decays]
        smaller.log_rate.copy_(self.log_rate[waves])
        smaller.angle.copy_(self.angle[waves])
        smaller.decay_log_rate.copy_(self.decay_log_rate[decays])
        for name, values in self.amplitudes.named_parameters():
            selected = values.unflatten(0, (self.output_size, -1))[:, units].flatten(0, 1)
            smaller.amplitudes.get_parameter(name).copy_(selected)
        return smaller.train(self.training)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"{self.input_size}, {self.output_size}, num_waves={self.num_waves}, num_decays={self.num_decays}"


def _to_log_rate(half_lives: Sequence[float]) -> Tensor:
    return modulus_to_log_rate(torch.exp2(-1 / torch.tensor(half_lives, dtype=torch.float64)))


def log_spaced(least: float, most: float, count: int) -> list[float]:
    """Return log-spaced numbers, computed on the CPU whatever the default device."""
    exponents = math.log10(least), math.log10(most)
    return torch.logspace(*exponents, count, dtype=torch.float64, device="cpu").tolist()
