"""What code around a recurrent layer does with it: one of blocks answers like that of `torch.nn`, or says why not."""

from __future__ import annotations

import importlib
import io
import pickle
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_sequence

from parallelrnn import ParaGRU, ParaGRUCell, ParaLSTM, ParaLSTMCell, ParaRNN, ParaRNNCell, from_torch, swap
from parallelrnn.errors import ArgumentError
from parallelrnn.nn import initialize, recurrent_blocks
from tests.support import TWINS, dense_twin, raises, touch_point

LAYERS = pytest.mark.parametrize("cls", TWINS)
ROOT = Path(__file__).parents[2]
MODULES = ["test_touch_points", "test_swap", "test_torch_features", "test_torch_modules", "test_onnx"]
CELLS = pytest.mark.parametrize("cls", [ParaRNNCell, ParaLSTMCell, ParaGRUCell])


class Model(nn.Module):
    """A layer, a cell and a map, as people put them together."""

    def __init__(self, layer: Any, cell: Any) -> None:
        super().__init__()
        self.layer, self.cell, self.read_out = layer(3, 8), cell(8, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        output, hx = self.layer(x)
        h_n, _ = hx if isinstance(self.layer, ParaLSTM | nn.LSTM) else (hx, None)
        state = self.cell(output[-1])
        h = state[0] if isinstance(self.cell, ParaLSTMCell | nn.LSTMCell) else state
        return self.read_out(h), h_n


def test_the_table_of_touch_points_is_what_tests_hold() -> None:
    """The first two columns of the table that people read before they swap a layer, and a test behind each row."""
    held: list[tuple[str, str]] = []
    for module in MODULES:
        tests = vars(importlib.import_module(f"tests.nn.{module}")).values()
        held += [test.touch_point for test in tests if hasattr(test, "touch_point")]
    page = (ROOT / "docs" / "layers.md").read_text()
    section = page.split("\n## Before you swap a layer\n")[1].split("\n## ")[0]
    documented = re.findall(r"^\| (.*?) \| (same|better|differs|no) \| .*\|$", section, re.MULTILINE)
    assert len(documented) == section.count("\n| ") - 2  # all rows but the heading and the rule
    assert sorted(documented) == sorted(held)


@touch_point("takes `h_n[-1]` or `output[-1]`", "same")
@LAYERS
def test_without_arguments_of_ours_output_and_state_are_the_same_thing(cls: Any) -> None:
    """Code takes output[-1] or h_n[-1], as it pleases; and a model that reads one of them trains every weight."""
    layer = cls(3, 8)
    output, hx = layer(torch.randn(5, 4, 3))
    h_n = hx[0] if isinstance(hx, tuple) else hx
    torch.testing.assert_close(output[-1], h_n[-1], rtol=0, atol=0)
    h_n.sum().backward()
    assert all(weight.grad is not None for weight in layer.parameters())
    assert [name for name, _ in layer.named_parameters()] == [name for name, _ in TWINS[cls](3, 8).named_parameters()]


@touch_point("halves of a bidirectional output", "same")
@LAYERS
def test_the_forward_half_of_a_bidirectional_output_does_not_see_the_future(cls: Any) -> None:
    layer = cls(3, 8, bidirectional=True)
    x = torch.randn(5, 1, 3)
    changed = x.clone()
    changed[3:] += 1
    torch.testing.assert_close(layer(x)[0][:3, :, :8], layer(changed)[0][:3, :, :8], rtol=0, atol=0)
    assert not torch.equal(layer(x)[0][:3, :, 8:], layer(changed)[0][:3, :, 8:])


@LAYERS
def test_a_linear_aggregate_starts_as_the_identity(cls: Any) -> None:
    torch.manual_seed(0)
    plain = cls(3, 8)
    torch.manual_seed(0)
    aggregated = cls(3, 8, aggregate="linear")
    x = torch.randn(5, 4, 3)
    torch.testing.assert_close(aggregated(x)[0], plain(x)[0])
    aggregated.aggregate.weight.data.zero_()
    aggregated.reset_parameters()
    torch.testing.assert_close(aggregated.aggregate.weight.detach(), torch.eye(8), rtol=0, atol=0)


@touch_point("`flatten_parameters`, `check_input`, `permute_hidden`, `_flat_weights` and the like", "same")
@LAYERS
def test_helpers_of_the_layers_of_torch(cls: Any) -> None:
    layer, theirs = cls(3, 8, 2, bidirectional=True), TWINS[cls](3, 8, 2, bidirectional=True)
    assert layer._all_weights == theirs._all_weights
    assert layer._flat_weights_names == theirs._flat_weights_names
    assert all(a is b for a, b in zip(layer._flat_weights, layer.parameters(), strict=True))
    packed = pack_sequence([torch.randn(length, 3) for length in (5, 2, 7)], enforce_sorted=False)
    for arguments in ((torch.randn(5, 4, 3), None), (packed.data, packed.batch_sizes)):
        assert layer.check_input(*arguments) is theirs.check_input(*arguments) is None
        assert layer.get_expected_hidden_size(*arguments) == theirs.get_expected_hidden_size(*arguments)
    hx = torch.randn(4, 3, 8)
    hx = (hx, 2 * hx) if cls is ParaLSTM else hx
    for permutation in (None, packed.sorted_indices):
        torch.testing.assert_close(layer.permute_hidden(hx, permutation), theirs.permute_hidden(hx, permutation))
    if cls is ParaLSTM:
        projected = ({"proj_size": 4, "hidden_size": 8, "input_size": 3}, torch.randn(5, 4, 3))
        ours, theirs = ParaLSTM(**projected[0]), nn.LSTM(**projected[0])
        assert ours.get_expected_hidden_size(projected[1], None) == theirs.get_expected_hidden_size(projected[1], None)
        assert ours.get_expected_cell_size(projected[1], None) == theirs.get_expected_cell_size(projected[1], None)


@touch_point("`torch.fx.symbolic_trace`", "same")
@pytest.mark.parametrize("pair", [(ParaRNN, ParaRNNCell), (ParaLSTM, ParaLSTMCell), (ParaGRU, ParaGRUCell)])
def test_a_program_of_fx_has_one_node_for_each_module(pair: Any) -> None:
    model = Model(*pair)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["layer", "cell", "read_out"]
    x = torch.randn(5, 4, 3)
    torch.testing.assert_close(traced(x), model(x), rtol=0, atol=0)


@touch_point("`torch.load` of a whole module", "same")
@pytest.mark.parametrize("options", [{}, {"block_size": [2, 4, 2]}, {"form": "polar"}], ids=str)
@LAYERS
def test_a_whole_module_loads_safely_with_its_class_alone(cls: Any, options: dict[str, Any]) -> None:
    layer = cls(3, 8, **options)
    x = torch.randn(5, 4, 3)
    expected = layer(x)[0]
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    with torch.serialization.safe_globals([cls]):
        torch.testing.assert_close(torch.load(file, weights_only=True)(x)[0], expected, rtol=0, atol=0)
    for copied in (deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(copied(x)[0], expected, rtol=0, atol=0)


@touch_point("loads the weights of an `nn.LSTM`", "differs")
@LAYERS
def test_weights_of_a_dense_layer_are_pointed_to_from_torch(cls: Any) -> None:
    dense = TWINS[cls](3, 8)
    with pytest.raises(RuntimeError, match="from_torch"):
        cls(3, 8).load_state_dict(dense.state_dict())
    with pytest.raises(RuntimeError) as caught:
        cls(4, 8).load_state_dict(cls(3, 8).state_dict())
    assert "from_torch" not in str(caught.value)
    torch.testing.assert_close(from_torch(dense)(torch.ones(5, 4, 3))[0], dense(torch.ones(5, 4, 3))[0])


@LAYERS
def test_weights_of_a_layer_with_an_aggregate_are_not_loaded_without_a_word(cls: Any) -> None:
    """Into one without, which is the default: it would compute something else."""
    saved, models = cls(3, 8, aggregate="linear"), [cls(3, 8), nn.Sequential(cls(3, 8))]
    for model, prefix in zip(models, ("", "0."), strict=True):
        weights = {f"{prefix}{name}": weight for name, weight in saved.state_dict().items()}
        with pytest.raises(RuntimeError, match=r"Unexpected.*aggregate\.weight"):
            model.load_state_dict(weights)
        assert len(model.load_state_dict(weights, strict=False).unexpected_keys) == 2
    cls(3, 8, aggregate="linear").load_state_dict(saved.state_dict())


def fill_slice(module: Any) -> None:
    module.bias_ih_l0.data[module.hidden_size : 2 * module.hidden_size].fill_(1)


def fill_second_quarters(module: Any) -> None:
    for names in module._all_weights:
        for name in filter(lambda name: "bias" in name, names):
            bias = getattr(module, name)
            bias.data[len(bias) // 4 : len(bias) // 2].fill_(1.0)


def fill_by_name(module: Any) -> None:
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.constant_(parameter, 0.5)


def fill_chunk(module: Any) -> None:
    with torch.no_grad():
        module.bias_hh_l0.chunk(4)[1].fill_(3)


@touch_point("initialises biases, such as the forget gate's", "same")
@pytest.mark.parametrize("idiom", [fill_slice, fill_second_quarters, fill_by_name, fill_chunk])
@pytest.mark.parametrize("block_size", [2, [2, 4, 2]], ids=str)
def test_code_that_sets_forget_biases(idiom: Any, block_size: Any) -> None:
    """The same code on a layer of blocks and on the dense layer with the same weights."""
    layer = ParaLSTM(3, 8, 2, block_size=block_size)
    dense, x = dense_twin(layer), torch.randn(5, 4, 3)
    before = layer(x)[0]
    for module in (layer, dense):
        idiom(module)
    torch.testing.assert_close(layer(x)[0], dense(x)[0])
    assert not torch.allclose(layer(x)[0], before)
    torch.testing.assert_close(layer.bias_ih_l0, dense.bias_ih_l0, rtol=0, atol=0)


def orthogonal_by_name(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if "weight_hh" in name:
            nn.init.orthogonal_(parameter)


def xavier_by_rank(module: nn.Module) -> None:
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)


def uniform_by_width(module: Any) -> None:
    for parameter in module.parameters():
        parameter.data.uniform_(-(module.hidden_size**-0.5), module.hidden_size**-0.5)


@touch_point("initialises `weight_hh_l0`", "differs")
@pytest.mark.parametrize(
    ("idiom", "init_"),
    [
        (orthogonal_by_name, nn.init.orthogonal_),
        (xavier_by_rank, nn.init.xavier_uniform_),
        (
            uniform_by_width,
            lambda weight: nn.init.uniform_(weight, -(weight.shape[1] ** -0.5), weight.shape[1] ** -0.5),
        ),
    ],
    ids=["orthogonal", "xavier", "uniform"],
)
@LAYERS
def test_code_that_sets_weight_hh(cls: Any, idiom: Any, init_: Any) -> None:
    """By itself it leaves hardly any memory; one more line, and blocks have the spectrum of the dense layer."""

    def mean_modulus(module: nn.Module) -> float:
        moduli = [torch.linalg.eigvals(block.matrix.detach()).abs() for block in recurrent_blocks(module)]
        return float(torch.cat(moduli).mean())

    torch.manual_seed(0)
    dense, layer = TWINS[cls](3, 256), cls(3, 256)
    for module in (dense, layer):
        idiom(module)
    assert mean_modulus(layer) < 0.15 * mean_modulus(dense)
    initialize.per_block_(layer, init_)
    assert mean_modulus(layer) == pytest.approx(mean_modulus(dense), rel=0.25)


@touch_point("looks for the layer in a profile", "differs")
@LAYERS
@pytest.mark.parametrize("training", [False, True])
def test_the_profiler_names_a_recurrence(cls: Any, training: bool) -> None:
    layer, x = cls(3, 8, 2), torch.randn(5, 4, 3)
    with torch.profiler.profile() as profile, torch.set_grad_enabled(training):
        layer(x)
    names = {event.key for event in profile.key_averages()}
    kind = cls.__name__.removeprefix("Para").lower()
    assert (f"parallelrnn::{kind}" if training else "parallelrnn::stream") in names


@CELLS
def test_the_profiler_names_a_step(cls: Any) -> None:
    cell = cls(3, 8)
    with torch.profiler.profile() as profile, torch.no_grad():
        cell(torch.randn(4, 3))
    kind = cls.__name__.removeprefix("Para").removesuffix("Cell").lower()
    assert f"parallelrnn::{kind}" in {event.key for event in profile.key_averages()}


@touch_point("has a `hidden_size` that `block_size` does not divide", "differs")
@LAYERS
def test_hidden_sizes_that_blocks_do_not_divide(cls: Any) -> None:
    with raises(ArgumentError, "block_size=[2, 2, 3]", argument="block_size"):
        cls(3, 7)
    layer = cls(3, 7, block_size=[2, 2, 3])
    assert layer(torch.randn(5, 4, 3))[0].shape == (5, 4, 7)
    model = nn.Sequential(TWINS[cls](3, 7))
    swap(model)
    assert model[0].block_size == layer.block_size


@touch_point("has a `proj_size`", "differs")
def test_projections() -> None:
    with raises(ArgumentError, "block_size=4", argument="proj_size"):
        ParaLSTM(3, 8, proj_size=2)
    ours, theirs = ParaLSTM(3, 8, proj_size=2, block_size=4), nn.LSTM(3, 8, proj_size=2)
    x = torch.randn(5, 4, 3)
    assert [s.shape for s in ours(x)[1]] == [s.shape for s in theirs(x)[1]]
    model = nn.Sequential(theirs)
    swap(model)
    assert model[0].block_size == 4


@touch_point("reads or sets `weight_hh_l0`", "differs")
@LAYERS
def test_the_recurrent_parameter_holds_blocks_alone(cls: Any) -> None:
    layer, dense = cls(3, 8), TWINS[cls](3, 8)
    assert layer.weight_hh_l0.shape == (len(dense.weight_hh_l0), 2)
    with pytest.raises(RuntimeError, match="size"), torch.no_grad():
        layer.weight_hh_l0[:8].copy_(torch.eye(8))
    assert cls(3, 8, block_size=8).weight_hh_l0.shape == dense.weight_hh_l0.shape


@touch_point("`isinstance(layer, nn.LSTM)` or `nn.RNNBase`", "differs")
@LAYERS
def test_layers_are_not_those_of_torch_nn(cls: Any) -> None:
    assert not isinstance(cls(3, 8), nn.RNNBase)
    assert isinstance(cls(3, 8), nn.Module)


def decorated(layer: Any) -> Any:
    return nn.utils.parametrizations.weight_norm(layer, "weight_hh_l0")


def pruned(layer: Any) -> Any:
    return prune.l1_unstructured(layer, "weight_hh_l0", 0.5)


def replaced(layer: Any) -> Any:
    """As code for DropConnect does before each call."""
    raw = nn.Parameter(layer.weight_hh_l0.detach().clone())
    del layer.weight_hh_l0
    layer.register_parameter("weight_hh_l0_raw", raw)
    layer.weight_hh_l0 = nn.functional.dropout(raw, 0.5)
    return layer


@touch_point("weight norm, pruning, DropConnect on `weight_hh_l0`", "same")
@pytest.mark.parametrize("change", [decorated, pruned, replaced])
@LAYERS
def test_weights_that_are_computed_from_others(cls: Any, change: Any) -> None:
    layer, x = change(cls(3, 8)), torch.randn(5, 4, 3)
    plain = cls(3, 8)
    plain.load_state_dict({name: getattr(layer, name).detach() for name, _ in plain.named_parameters()})
    output = layer(x)[0]
    torch.testing.assert_close(output, plain(x)[0])
    output.sum().backward()
    assert all(weight.grad is not None for weight in layer.parameters())


@touch_point("`DistributedDataParallel`", "same")
@pytest.mark.filterwarnings("ignore:.*")
def test_distributed_training_of_a_model_that_reads_the_last_state_alone(tmp_path: Path) -> None:
    """It raises at the second step if the first left a weight without a gradient."""

    def train(layer: Any) -> list[Tensor]:
        model = nn.parallel.DistributedDataParallel(layer)
        for _ in range(2):
            model(x)[1].square().sum().backward()
        return [weight.grad for weight in layer.parameters()]

    x = torch.randn(5, 4, 3)
    layer, alone = ParaGRU(3, 8), ParaGRU(3, 8)
    alone.load_state_dict(layer.state_dict())
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        gradients = train(layer)
        with pytest.raises(RuntimeError, match="finished reduction"):
            train(ParaGRU(3, 8, aggregate="linear"))
    finally:
        torch.distributed.destroy_process_group()
    for _ in range(2):
        alone(x)[1].square().sum().backward()
    for ours, weight in zip(gradients, alone.parameters(), strict=True):
        torch.testing.assert_close(ours, weight.grad)


@touch_point("forward hooks, `checkpoint`, `AveragedModel`", "same")
@LAYERS
def test_wrappers_see_what_they_see_of_torch_nn(cls: Any) -> None:
    layer, dense, x = cls(3, 8), TWINS[cls](3, 8), torch.randn(5, 4, 3)
    seen: list[Any] = []
    for module in (layer, dense):
        module.register_forward_hook(lambda module, inputs, results: seen.append(results))
        module(x)
    ours, theirs = seen
    assert type(ours) is type(theirs) is tuple
    assert [type(part) for part in ours] == [type(part) for part in theirs]
    expected = torch.autograd.grad(layer(x)[0].square().sum(), layer.parameters())
    output = torch.utils.checkpoint.checkpoint(lambda x: layer(x)[0], x, use_reentrant=False)
    for gradient, other in zip(torch.autograd.grad(output.square().sum(), layer.parameters()), expected, strict=True):
        torch.testing.assert_close(gradient, other)
    torch.testing.assert_close(torch.optim.swa_utils.AveragedModel(layer)(x)[0], layer(x)[0])


def compiled(module: nn.Module, x: Tensor) -> Tensor:
    torch.compiler.reset()
    output: Tensor = torch.compile(module, fullgraph=True, backend="aot_eager")(x)[0]
    return output


def mapped(module: nn.Module, x: Tensor) -> Tensor:
    output: Tensor = torch.func.vmap(lambda x: module(x)[0], in_dims=1, out_dims=1)(x)
    return output


def differentiated_forwards(module: nn.Module, x: Tensor) -> Tensor:
    return torch.func.jvp(lambda x: module(x)[0], (x,), (torch.zeros_like(x),))[0]


def uninitialised(module: nn.Module, x: Tensor) -> Tensor:
    made = nn.utils.skip_init(type(module), 3, 8)
    made.load_state_dict(module.state_dict())
    output: Tensor = made(x)[0]
    return output


@touch_point("`torch.compile(fullgraph=True)`, `vmap`, `jvp`, `skip_init`", "better")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inside torch's forward-mode derivatives
@pytest.mark.parametrize("transform", [compiled, mapped, differentiated_forwards, uninitialised])
def test_what_torch_does_not_transform(transform: Any) -> None:
    layer, x = ParaLSTM(3, 8), torch.randn(5, 4, 3)
    torch.testing.assert_close(transform(layer, x), layer(x)[0])
    with pytest.raises(Exception):  # noqa: B017, PT011 - each transform raises its own
        transform(nn.LSTM(3, 8), x)


@touch_point("`torch.autocast`", "differs")
@LAYERS
def test_autocast_leaves_outputs_in_the_dtype_of_the_weights(cls: Any) -> None:
    x = torch.randn(5, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = cls(3, 8)(x)[0], TWINS[cls](3, 8)(x)[0]
    assert ours.dtype == torch.float32
    assert cls is not ParaLSTM or theirs.dtype == torch.bfloat16


@touch_point("`torch.jit.script`", "no")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@LAYERS
def test_scripting_raises(cls: Any) -> None:
    with pytest.raises(ValueError, match="annotation"):
        torch.jit.script(cls(3, 8))


@touch_point("loads a file from `torch.export` or `torch.jit.trace`", "differs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_files_of_programs_need_the_operators(tmp_path: Path) -> None:
    layer, x = ParaLSTM(3, 8), torch.randn(5, 4, 3)
    torch.jit.save(torch.jit.trace(layer, x), tmp_path / "traced.pt")
    torch.export.save(torch.export.export(layer, (x,)), tmp_path / "exported.pt2")
    torch.save({"x": x, "output": layer(x)[0].detach()}, tmp_path / "example.pt")
    program = """if True:
        import sys, warnings
        import torch
        warnings.simplefilter("ignore")
        def load():
            return torch.jit.load("traced.pt"), torch.export.load("exported.pt2").module()
        try:
            load()
        except RuntimeError as error:
            assert "parallelrnn" in str(error), error
        else:
            raise AssertionError("nothing was missing")
        import parallelrnn.nn
        example = torch.load("example.pt")
        for module in load():
            torch.testing.assert_close(module(example["x"])[0].detach(), example["output"])
    """
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


@touch_point("`quantize_dynamic`", "differs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
@LAYERS
def test_quantization_leaves_the_recurrence_in_float32(cls: Any) -> None:
    class Tagger(nn.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer, self.read_out = layer(3, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.read_out(self.layer(x)[0])
            return output

    model, x = Tagger(cls), torch.randn(5, 4, 3)
    quantized = torch.ao.quantization.quantize_dynamic(model)
    assert type(quantized.layer) is cls
    torch.testing.assert_close(quantized.layer(x)[0], model.layer(x)[0], rtol=0, atol=0)
    assert type(quantized.read_out) is not nn.Linear
    torch.testing.assert_close(quantized(x), model(x), rtol=0, atol=0.05)
    dense = torch.ao.quantization.quantize_dynamic(Tagger(TWINS[cls]))
    assert (type(dense.layer) is TWINS[cls]) == (cls is ParaRNN)
