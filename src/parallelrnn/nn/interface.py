"""The rest of what code finds in a recurrent layer of `torch.nn`: helpers that subclasses and tools call."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor, nn
from torch.fx import Proxy

from parallelrnn.errors import TensorError
from parallelrnn.nn.blocks import check_tensor, weight_suffixes

if TYPE_CHECKING:
    from parallelrnn.nn.parameters import BlockRecurrent

    Base = BlockRecurrent
else:
    Base = object


def is_traced(input: object) -> TypeGuard[Proxy]:
    """Return whether torch.fx is recording a program, in which a recurrent module is one node, like `torch.nn`'s."""
    return isinstance(input, Proxy)


def traced(module: nn.Module, input: Proxy, hx: object) -> Any:
    """Return what stands for the results of a module in a program that torch.fx records."""
    path = input.tracer.path_of_module(module)  # type: ignore[attr-defined]
    return input.tracer.create_proxy("call_module", path, (input, hx), {})


class LayerInterface(Base):
    """Methods and attributes of `torch.nn.RNNBase`, to the same effect, for a layer of blocks."""

    batch_first: bool
    weight_ih_l0: Tensor

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _all_weights(self) -> list[list[str]]:
        return [list(self._weight_shapes(suffix)) for _, _, suffix in weight_suffixes(self)]

    @property
    def _flat_weights_names(self) -> list[str]:
        return list(chain.from_iterable(self._all_weights))

    @property
    def _flat_weights(self) -> list[nn.Parameter]:
        return list(chain.from_iterable(self.all_weights))

    def flatten_parameters(self) -> None:
        """Do nothing; code written for `torch.nn` calls this for the sake of cuDNN."""

    def check_input(self, input: Tensor, batch_sizes: Tensor | None = None) -> None:
        """Raise unless the layer can read this input, (T, B, input_size), or packed data if there are batch sizes."""
        packed = batch_sizes is not None
        check_tensor("input", input, self.weight_ih_l0)
        has_rank = input.dim() == 2 or (input.dim() == 3 and not packed)
        if not has_rank or input.shape[-1] != self.input_size:
            axes = "batch, time" if self.batch_first else "time, batch"
            unpacked = f"a tensor ({axes}, {self.input_size}) or (time, {self.input_size})"
            expected = f"packed data (steps, {self.input_size})" if packed else unpacked
            raise TensorError(argument="input", expected=expected, got=tuple(input.shape))
        time = 1 if input.dim() == 3 and self.batch_first else 0
        if input.shape[time] == 0:
            expected, hint = f"at least one step along dimension {time}", f"is batch_first={self.batch_first} intended?"
            raise TensorError(argument="input", expected=expected, got=tuple(input.shape), hint=hint)

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of h_0 and h_n."""
        batch = input.shape[0 if self.batch_first else 1] if batch_sizes is None else int(batch_sizes[0])
        return len(weight_suffixes(self)), batch, self.output_size

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """Return the shape of c_0 and c_n."""
        return *self.get_expected_hidden_size(input, batch_sizes)[:2], self.hidden_size

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """Return a state with its sequences in another order."""
        if permutation is None:
            return hx
        if isinstance(hx, Tensor):
            return hx.index_select(1, permutation)
        return tuple(s.index_select(1, permutation) for s in hx)
