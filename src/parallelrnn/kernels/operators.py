"""The fused recurrences as operators of torch: `parallelrnn::rnn`, `parallelrnn::lstm` and `parallelrnn::gru`.

An operator is opaque to torch.compile and torch.export: their graph holds one node per layer, however long the
sequence. Each has a fake implementation, which only knows shapes; a backward, which is an operator too; and a rule for
vmap. The derivative of the backward goes through the reference. `parallelrnn::stream` is the inference of a stack.

Operators take and return tensors, not structures. An empty tensor stands for what a cell does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.nn import functional
from torch.profiler import record_function

from parallelrnn.errors import TensorError, UnavailableError, check_choice
from parallelrnn.kernels import cpu, reference, triton
from parallelrnn.kernels.contexts import is_plain, needs_gradient, without_autocast
from parallelrnn.kernels.validation import check_arguments, check_stack, check_stored
from parallelrnn.kernels.weights import GATES, Arguments, State, Stored, Weights

BACKENDS: dict[str, ModuleType] = {"cpu": cpu, "triton": triton}

_INPUTS = (
    "Tensor x, Tensor weight_ih, Tensor weight_hh, Tensor? bias_ih, Tensor? bias_hh, Tensor h_0, Tensor? c_0, "
    "Tensor? lengths, str mode, bool reverse, str backend"
)
_NUM_INPUTS = 11
_FORWARD = f"({_INPUTS}, bool training) -> (Tensor output, Tensor h_n, Tensor c_n, Tensor cells, Tensor gates)"
_BACKWARD = (
    f"(Tensor? grad_output, Tensor? grad_h_n, Tensor? grad_c_n, {_INPUTS}, Tensor output, Tensor cells, Tensor gates, "
    "bool needs_x) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_STREAM = (
    "(Tensor x, Tensor[] weight_ih, Tensor[] weight_hh, Tensor[] bias_ih, Tensor[] bias_hh, Tensor h_0, "
    "Tensor? c_0, Tensor? lengths, Tensor? aggregate_weight, Tensor? aggregate_bias, str mode) "
    "-> (Tensor output, Tensor h_n, Tensor c_n)"
)
NAMES = {mode: mode.split("_")[0].lower() for mode in GATES}


def recurrence(backend: str, arguments: Arguments) -> tuple[Tensor, State]:
    """Run K blocks side by side over a batch of sequences."""
    mode, x, weights, state, lengths, reverse = arguments
    if is_plain(x, *weights, *state):  # torch would take one tensor on the meta device for a call without values
        check_arguments(arguments)
    c_0 = state[1] if len(state) > 1 else None
    training = needs_gradient(x, *weights, *state)
    run = getattr(torch.ops.parallelrnn, NAMES[mode])
    output, h_n, c_n, _, _ = run(x, *weights[:4], state[0], c_0, lengths, mode, reverse, backend, training)
    return output, (h_n, c_n)[: len(state)]


def stream(
    mode: str,
    x: Tensor,
    layers: Sequence[Weights],
    state: State,  # (num_layers, B, d) each
    lengths: Tensor | None,
    aggregate: tuple[Tensor, Tensor | None] | None,
) -> tuple[Tensor, State]:
    """Run a stack of layers in inference, on the CPU; see `cpu.stream`."""
    if is_plain(x, *state, *(aggregate or ()), *(weight for layer in layers for weight in layer)):
        check_stack(mode, x, layers, state, lengths, aggregate)
        with _named("stream"):
            return cpu.stream(mode, x, layers, state, lengths, aggregate)
    biases = [[w for w in (layer[index] for layer in layers) if w is not None] for index in (2, 3)]
    output, h_n, c_n = torch.ops.parallelrnn.stream(
        x,
        [layer.input for layer in layers],
        [layer.recurrent for layer in layers],
        *biases,
        state[0],
        state[1] if len(state) > 1 else None,
        lengths,
        *(aggregate or (None, None)),
        mode,
    )
    return output, (h_n, c_n)[: len(state)]


def _named(operator: str) -> AbstractContextManager[Any]:
    """Return a context that has the profiler name an operator, which it would not see without the dispatcher."""
    return record_function(f"parallelrnn::{operator}") if torch._C._autograd._profiler_enabled() else nullcontext()


def _forward(*args: Any) -> tuple[Tensor, ...]:
    arguments, name = unpack(args[:_NUM_INPUTS])
    check_arguments(arguments)
    backend, x = _backend(name, arguments.weights), arguments.x
    with without_autocast(x.device.type):
        final, stored = backend.forward(arguments, args[-1])
    c_n = final[1] if len(final) > 1 else None
    return stored.output, final[0], _or_empty(x, c_n), _or_empty(x, stored.cells), _or_empty(x, stored.gates)


def _fake_forward(*args: Any) -> tuple[Tensor, ...]:
    (mode, x, weights, state, _, _), backend = unpack(args[:_NUM_INPUTS])
    training = args[-1]
    length, batch, _ = x.shape
    gates, num_blocks, block_size, _ = weights.recurrent.shape
    width = num_blocks * block_size
    states = [x.new_empty(state[index].shape if index < len(state) else 0) for index in range(2)]
    cells = x.new_empty(length, batch, width) if training and mode == "LSTM" else x.new_empty(0)
    stores_gates = training and BACKENDS[backend].stores_gates(mode, weights)
    stored_gates = x.new_empty(length, batch, gates * width) if stores_gates else x.new_empty(0)
    return x.new_empty(length, batch, width), *states, cells, stored_gates


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    y, _, _, cells, gates = output
    ctx.save_for_backward(*inputs[:8], y, cells, gates)
    ctx.settings = inputs[8:_NUM_INPUTS]
    ctx.mark_non_differentiable(cells, gates)
    ctx.set_materialize_grads(False)  # a loss on the last state needs no gradient of zeros for every step


def _differentiate(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    return *differentiate(ctx.saved_tensors, ctx.settings, ctx.needs_input_grad, grads), *(None,) * 5


def differentiate(
    saved: Sequence[Any], settings: tuple[str, bool, str], needed: Sequence[bool], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, of the weights and of the state, as far as they are needed."""
    mode, reverse, backend = settings
    if any(grad is not None and is_legacy_batchedtensor(grad) for grad in grads):  # is_grads_batched
        return _differentiate_reference(saved, settings, grads)
    # With gradients enabled, the backward is to be differentiated again.
    plain = is_plain(saved[0], *grads) and not torch.is_grad_enabled()
    run = _backward if plain else getattr(torch.ops.parallelrnn, f"{NAMES[mode]}_backward")
    grads = (*grads, None)[:3]  # one fewer if the state is h only, and nothing stands for the cell state
    stored = (_or_empty(saved[0], tensor) for tensor in saved[8:])
    results = run(*grads, *saved[:8], mode, reverse, backend, *stored, needed[0])
    return tuple(grad if needs else None for grad, needs in zip(results, needed, strict=False))


def _differentiate_reference(
    saved: Sequence[Any], settings: tuple[str, bool, str], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    *tensors, lengths = saved[:8]
    with torch.enable_grad():
        leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in tensors]
        arguments, _ = unpack((*leaves, lengths, *settings))
        output, final = reference.recurrence(*arguments)
    return tuple(_gradients((output, *final), leaves, grads[:3], allow_unused=True))


def _backward(*args: Any) -> tuple[Tensor, ...]:
    grad_output, grad_h, grad_c, *rest = args
    arguments, name = unpack(rest[:_NUM_INPUTS])
    check_arguments(arguments)
    output, cells, gates, needs_x = rest[_NUM_INPUTS:]
    mode, x, weights, state, _, _ = arguments
    backend = _backend(name, weights)
    has_gates = backend.stores_gates(mode, weights)
    stored = Stored(output, cells if mode == "LSTM" else None, gates if has_gates else None)
    grads_final = (grad_h, grad_c)[: len(state)]
    check_stored(arguments, stored, grad_output, grads_final)
    with without_autocast(x.device.type):
        grad_x, grad_weights, grad_state = backend.backward(arguments, stored, grad_output, grads_final, needs_x)
    grads = (grad_x, *grad_weights[:4], *grad_state, *(None,) * (2 - len(state)))
    return tuple(_or_empty(x, grad) for grad in grads)


def _fake_backward(*args: Any) -> tuple[Tensor, ...]:
    x, *tensors = args[3:10]  # x, the weights and the state
    grads = [torch.empty_like(x, memory_format=torch.contiguous_format) if args[-1] else x.new_empty(0)]
    grads += [x.new_empty(0 if tensor is None else tensor.shape) for tensor in tensors]
    return tuple(grads)


def _setup_backward_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:11])
    ctx.settings = inputs[11:13]
    ctx.num_inputs = len(inputs)
    ctx.set_materialize_grads(False)


def _differentiate_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradients of the backward's arguments, through the reference's own backward run with a graph."""
    mode, reverse = ctx.settings
    *tensors, lengths = ctx.saved_tensors
    with torch.enable_grad():
        leaves = [None if tensor is None else tensor.detach().requires_grad_() for tensor in tensors]
        arguments, _ = unpack((*leaves[3:], lengths, mode, reverse, "reference"))
        output, final = reference.recurrence(*arguments)
        first = _gradients((output, *final), leaves[3:], leaves[:3], create_graph=True)
        second = _gradients(first, leaves, grads, allow_unused=True)
    return (*second, *(None,) * (ctx.num_inputs - len(second)))


def _gradients(
    outputs: Sequence[Tensor | None], inputs: Sequence[Tensor | None], grads: Sequence[Tensor | None], **options: bool
) -> list[Tensor | None]:
    """Return what `torch.autograd.grad` does, where outputs, inputs and gradients may be None."""
    pairs = [(y, grad) for y, grad in zip(outputs, grads, strict=False) if y is not None and grad is not None]
    if not pairs:
        return [None] * len(inputs)
    gradients = iter(torch.autograd.grad([y for y, _ in pairs], _present(inputs), [g for _, g in pairs], **options))
    return [None if tensor is None else next(gradients) for tensor in inputs]


def _run_stream(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, lengths, aggregate_weight, aggregate_bias, mode = args
    none = [None] * len(weight_ih)
    parts = (weight_ih, weight_hh, bias_ih or none, bias_hh or none)
    if len(set(map(len, parts))) > 1:
        raise TensorError(argument="layers", expected="lists of weights of equal length", got=[*map(len, parts)])
    layers, state = [Weights(*layer) for layer in zip(*parts, strict=True)], _present((h_0, c_0))
    aggregate = None if aggregate_weight is None else (aggregate_weight, aggregate_bias)
    check_stack(mode, x, layers, state, lengths, aggregate)
    _backend("cpu", layers[0])
    with without_autocast("cpu"):
        output, final = cpu.stream(mode, x, layers, state, lengths, aggregate)
    return output, final[0], _or_empty(x, final[1] if len(final) > 1 else None)


def _setup_stream_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*_flat(inputs[:-1]))
    ctx.counts = [len(part) if isinstance(part, (list, tuple)) else None for part in inputs[:-1]]
    ctx.mode = inputs[-1]
    ctx.set_materialize_grads(False)


def _differentiate_stream(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    """Return gradients layer by layer, for a program that was exported for inference and is then trained."""
    with torch.enable_grad():
        leaves = [
            tensor if tensor is None or not tensor.is_floating_point() else tensor.detach().requires_grad_()
            for tensor in ctx.saved_tensors
        ]
        rest = iter(leaves)
        parts: list[Any] = [next(rest) if count is None else [next(rest) for _ in range(count)] for count in ctx.counts]
        x, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, lengths, aggregate_weight, aggregate_bias = parts
        none = [None] * len(weight_ih)
        finals = []
        y = x
        for index, tensors in enumerate(zip(weight_ih, weight_hh, bias_ih or none, bias_hh or none, strict=True)):
            state = tuple(s[index] for s in _present((h_0, c_0)))
            y, final = recurrence("cpu", Arguments(ctx.mode, y, Weights(*tensors), state, lengths, False))
            finals.append(final)
        if aggregate_weight is not None:
            y = functional.linear(y, aggregate_weight, aggregate_bias)
        states = [torch.stack(same) for same in zip(*finals, strict=True)]
    inputs = [None if leaf is None or not leaf.requires_grad else leaf for leaf in leaves]
    flat = iter(_gradients((y, *states), inputs, grads, allow_unused=True))
    return (*(next(flat) if count is None else [next(flat) for _ in range(count)] for count in ctx.counts), None)


def _flat(parts: Sequence[Any]) -> list[Any]:
    return [tensor for part in parts for tensor in (part if isinstance(part, (list, tuple)) else [part])]


def _fake_stream(*args: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, h_0, c_0, aggregate_weight = args[0], args[5], args[6], args[8]
    features = h_0.shape[-1] if aggregate_weight is None else aggregate_weight.shape[0]
    c_n = x.new_empty(0 if c_0 is None else c_0.shape)
    return x.new_empty(*x.shape[:2], features), x.new_empty(h_0.shape), c_n


def _map_over(operator: Callable[..., tuple[Tensor, ...]]) -> Callable[..., Any]:
    """Return the rule for vmap: one call after the other."""

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        calls = [
            operator(*(_select(arg, dim, index) for arg, dim in zip(args, in_dims, strict=True)))
            for index in range(info.batch_size)
        ]
        results = tuple(torch.stack(parts) for parts in zip(*calls, strict=True))
        return results, (0,) * len(results)

    return rule


def _select(arg: Any, dim: Any, index: int) -> Any:
    if isinstance(arg, (list, tuple)):
        return [_select(part, part_dim, index) for part, part_dim in zip(arg, dim, strict=True)]
    return arg if dim is None else arg.select(dim, index)


def unpack(args: Sequence[Any]) -> tuple[Arguments, str]:
    """Return what an operator takes as the structures that backends take, and the name of the backend."""
    x, weight_ih, weight_hh, bias_ih, bias_hh, h_0, c_0, lengths, mode, reverse, backend = args
    weights = Weights(weight_ih, weight_hh, bias_ih, bias_hh)
    return Arguments(mode, x, weights, _present((h_0, c_0)), lengths, reverse), backend


def _backend(name: str, weights: Weights) -> ModuleType:
    """Return the backend of this name; raise if it does not support these weights, since anybody can call operators."""
    check_choice("backend", name, BACKENDS)
    reason = BACKENDS[name].unsupported_reason(weights)
    if reason:
        raise UnavailableError(f"{name!r} cannot run this: {reason}", argument="backend", got=name)
    return BACKENDS[name]


def _present(tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in tensors if tensor is not None)


def _or_empty(like: Tensor, tensor: Tensor | None) -> Tensor:
    return like.new_empty(0) if tensor is None else tensor


def _register() -> torch.library.Library:
    library = torch.library.Library("parallelrnn", "DEF")

    def define(name: str, schema: str, compute: Callable[..., Any], fake: Callable[..., Any]) -> None:
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, compute, "CompositeExplicitAutograd")
        torch.library.register_fake(f"parallelrnn::{name}", fake, lib=library)
        torch.library.register_vmap(
            f"parallelrnn::{name}", _map_over(getattr(torch.ops.parallelrnn, name)), lib=library
        )

    for name in dict.fromkeys(NAMES.values()):
        define(name, _FORWARD, _forward, _fake_forward)
        define(f"{name}_backward", _BACKWARD, _backward, _fake_backward)
        torch.library.register_autograd(
            f"parallelrnn::{name}", _differentiate, setup_context=_setup_context, lib=library
        )
        torch.library.register_autograd(
            f"parallelrnn::{name}_backward", _differentiate_backward, setup_context=_setup_backward_context, lib=library
        )
    define("stream", _STREAM, _run_stream, _fake_stream)
    torch.library.register_autograd(
        "parallelrnn::stream", _differentiate_stream, setup_context=_setup_stream_context, lib=library
    )
    return library


_LIBRARY = _register()  # the operators disappear with it
