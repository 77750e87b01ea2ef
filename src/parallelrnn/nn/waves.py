"""WaveDecoder: a forecast that is a sum of damped waves by construction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parallelrnn.nn.checks import check_dtype, check_size, check_tensor, check_weights
from parallelrnn.nn.initialize import check_steps
from parallelrnn.nn.matrices import RecurrentBlock
from parallelrnn.nn.polar import log_modulus, modulus_to_log_rate, rotations


class WaveDecoder(nn.Module):
    """A free-running linear ParaRNN: blocks of size 2 that are damped waves, and of size 1 that are decays.

    One linear map sets the amplitudes, the initial state of the blocks, from what an encoder of any kind knows; then
    each block runs by itself, h_k' = C(modulus_k, angle_k) h_k, and the forecast is the sum of their first units. So
    the parameters *are* the periods and half-lives of the forecast, and its parts add up exactly.

    Not to be confused with a recurrent layer: no input enters after the start, and no state has to be carried along.

    Parameters
    ----------
    input_size
        Features of the encoder's state.
    output_size
        Series that are forecast at once. All are made of the same waves, each with amplitudes of its own.
    num_waves, num_decays
        Blocks of size 2, and of size 1 (these have positive moduli, and so do not alternate).

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
        for name, count in (("num_waves", num_waves), ("num_decays", num_decays)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise ValueError(f"{name} should be a whole number, 0 or more, got {count!r}")
        if num_waves + num_decays == 0:
            raise ValueError("a decoder needs at least one wave or decay; num_waves and num_decays are both 0")
        units = 2 * num_waves + num_decays
        check_weights(type(self).__name__, (input_size + 1) * output_size * units, device, dtype)
        self.input_size, self.output_size = input_size, output_size
        self.log_rate = nn.Parameter(torch.empty(num_waves, device=device, dtype=dtype))
        self.angle = nn.Parameter(torch.empty(num_waves, device=device, dtype=dtype))
        self.decay_log_rate = nn.Parameter(torch.empty(num_decays, device=device, dtype=dtype))
        self.amplitudes = nn.Linear(input_size, output_size * units, device=device, dtype=dtype)
        self.reset_parameters()

    @property
    def num_waves(self) -> int:
        """Blocks of size 2."""
        return len(self.log_rate)

    @property
    def num_decays(self) -> int:
        """Blocks of size 1."""
        return len(self.decay_log_rate)

    def reset_parameters(self) -> None:
        """Periods log-spaced from 4 to 512 steps, half-lives of 256, decays from 2 to 512, and no amplitude yet."""
        self.start_at(_spread(4, 512, self.num_waves), [256.0] * self.num_waves, _spread(2, 512, self.num_decays))
        nn.init.zeros_(self.amplitudes.weight)
        nn.init.zeros_(self.amplitudes.bias)

    @torch.no_grad()
    def start_at(
        self, periods: Sequence[float], half_lives: Sequence[float], decay_half_lives: Sequence[float] = ()
    ) -> WaveDecoder:
        """Set the waves, and the decays if any are given, in time steps; amplitudes stay as they are."""
        check_steps("periods", periods, self.num_waves, above=2)
        check_steps("half_lives", half_lives, self.num_waves, above=0)
        self.angle.copy_(2 * math.pi / torch.tensor(periods, dtype=torch.float64))
        self.log_rate.copy_(_to_log_rate(half_lives))
        if len(decay_half_lives):
            check_steps("decay_half_lives", decay_half_lives, self.num_decays, above=0)
            self.decay_log_rate.copy_(_to_log_rate(decay_half_lives))
        return self

    def forward(self, state: Tensor, horizon: int) -> Tensor:
        """Continue the waves of state (B, input_size) over 1, ..., horizon steps: (B, H, output_size)."""
        started = self._started(state)  # (B, C, 2 W + R)
        return (started @ self.basis(horizon).T).transpose(-1, -2)

    def parts(self, state: Tensor, horizon: int) -> Tensor:
        """What each block adds, waves first, then decays: (B, H, blocks, output_size); the sum is the forecast."""
        started = self._started(state)  # (B, C, 2 W + R)
        units = torch.einsum("bcu,hu->bhuc", started, self.basis(horizon))
        waves, decays = units.split([2 * self.num_waves, self.num_decays], 2)
        return torch.cat([waves.unflatten(2, (-1, 2)).sum(3), decays], 2)

    def _started(self, state: Tensor) -> Tensor:
        """The blocks as a state sets them."""
        check_tensor(type(self).__name__, "state", state)
        if state.dim() == 0 or state.shape[-1] != self.input_size:
            raise ValueError(f"state: expected (B, {self.input_size}), got the shape {tuple(state.shape)}")
        check_dtype(type(self).__name__, "state", state, self.amplitudes.weight)
        started: Tensor = self.amplitudes(state).unflatten(-1, (self.output_size, -1))
        return started

    def basis(self, horizon: int) -> Tensor:
        """The first unit of each block over the horizon, from each unit of its start: (H, 2 W + R)."""
        check_size("horizon", horizon)
        steps = torch.arange(1, horizon + 1, device=self.angle.device, dtype=self.angle.dtype)[:, None]
        left, turned = torch.exp(steps * log_modulus(self.log_rate)), steps * self.angle  # (H, W)
        waves = torch.stack([left * torch.cos(turned), left * torch.sin(turned)], -1).flatten(-2)  # (H, 2 W)
        return torch.cat([waves, torch.exp(steps * log_modulus(self.decay_log_rate))], -1)

    def wave_blocks(self) -> Iterator[RecurrentBlock]:
        """The matrices of waves and decays, numbered as in `parts`.

        Not `recurrent_blocks`, by which memory is read: these are the cycles of the forecast.
        """
        waves = rotations(torch.exp(log_modulus(self.log_rate)), self.angle)
        decays = torch.exp(log_modulus(self.decay_log_rate))[:, None, None]
        for index, matrix in enumerate([*waves, *decays]):
            yield RecurrentBlock(0, "forward", "hidden", index, matrix)

    @torch.no_grad()
    def keep(self, blocks: Sequence[int]) -> WaveDecoder:
        """The same decoder with these blocks alone, numbered as in `parts`."""
        waves = sorted(block for block in blocks if block < self.num_waves)
        decays = sorted(block - self.num_waves for block in blocks if block >= self.num_waves)
        smaller = WaveDecoder(
            self.input_size,
            self.output_size,
            len(waves),
            len(decays),
            device=self.angle.device,
            dtype=self.angle.dtype,
        )
        units = [unit for wave in waves for unit in (2 * wave, 2 * wave + 1)]
        units += [2 * self.num_waves + decay for decay in decays]
        smaller.log_rate.copy_(self.log_rate[waves])
        smaller.angle.copy_(self.angle[waves])
        smaller.decay_log_rate.copy_(self.decay_log_rate[decays])
        for mine, other in (
            (self.amplitudes.weight, smaller.amplitudes.weight),
            (self.amplitudes.bias, smaller.amplitudes.bias),
        ):
            other.copy_(mine.unflatten(0, (self.output_size, -1))[:, units].flatten(0, 1))
        return smaller.train(self.training)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.input_size}, {self.output_size}, num_waves={self.num_waves}, num_decays={self.num_decays}"


def _to_log_rate(half_lives: Sequence[float]) -> Tensor:
    return modulus_to_log_rate(torch.exp2(-1 / torch.tensor(half_lives, dtype=torch.float64)))


def _spread(least: float, most: float, count: int) -> list[float]:
    """Numbers evenly apart on a logarithmic scale; as numbers they are on no device, a decoder may be on any."""
    limits = math.log10(least), math.log10(most)
    spread: list[float] = torch.logspace(*limits, count, dtype=torch.float64, device="cpu").tolist()
    return spread
