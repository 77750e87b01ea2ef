"""Export to ONNX, computed by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from parallelrnn import ParaGRU, ParaLSTM, ParaRNN
from tests.support import as_tuple, random_state, touch_point

RNNS = [pytest.param(ParaRNN, {"nonlinearity": name}, id=name) for name in ("tanh", "relu", "sigmoid", "linear")]
GATED = [pytest.param(ParaLSTM, {}, id="lstm"), pytest.param(ParaGRU, {}, id="gru")]
# Both come from inside torch's exporter, which calls functions that torch itself has marked as on their way out.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def export(layer: torch.nn.Module, inputs: Any, path: Path, **options: Any) -> onnxruntime.InferenceSession:
    torch.onnx.export(layer.eval(), inputs, str(path), verbose=False, **options)
    return onnxruntime.InferenceSession(str(path))


def run(session: onnxruntime.InferenceSession, *inputs: torch.Tensor) -> list[np.ndarray]:
    names = [argument.name for argument in session.get_inputs()]
    return session.run(None, dict(zip(names, (value.numpy() for value in inputs), strict=True)))


any_length = pytest.mark.skipif(not hasattr(torch.onnx, "ops"), reason="torch before 2.8 cannot emit ONNX's operators")
DEEP = {"bidirectional": True, "num_layers": 2, "block_size": [2, 4]}


@any_length
@pytest.mark.parametrize(
    ("cls", "options"),
    [
        *RNNS,
        *GATED,
        pytest.param(ParaLSTM, DEEP, id="deep ParaLSTM", marks=pytest.mark.slow),
        pytest.param(ParaRNN, DEEP, id="deep ParaRNN", marks=pytest.mark.slow),
        pytest.param(ParaGRU, DEEP, id="deep ParaGRU", marks=pytest.mark.slow),
    ],
)
def test_onnxruntime_computes_what_torch_computes(cls: Any, options: Any, tmp_path: Path) -> None:
    layer = cls(3, 6, **options)
    dynamic = ({0: torch.export.Dim("time", max=4096), 1: torch.export.Dim("batch", max=4096)},)
    session = export(layer, (torch.randn(6, 4, 3),), tmp_path / "layer.onnx", dynamic_shapes=dynamic, dynamo=True)
    for length, batch in ((6, 4), (50, 7)):
        x = torch.randn(length, batch, 3)
        output, final = layer(x)
        for ours, theirs in zip(run(session, x), (output, *as_tuple(final)), strict=True):
            np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=1e-5)
    operators = {node.op_type for node in onnx.load(tmp_path / "layer.onnx").graph.node}
    assert operators & {"RNN", "LSTM", "GRU"}


@touch_point("`torch.onnx.export`", "same")
@pytest.mark.parametrize(("cls", "options"), [RNNS[0], *GATED])
def test_states_go_in_and_come_out(cls: Any, options: Any, tmp_path: Path) -> None:
    layer = cls(3, 8, num_layers=2, **options)
    x, state = torch.randn(6, 4, 3), random_state(layer, 4)
    session = export(layer, (x, state), tmp_path / "layer.onnx", dynamo=True)
    output, final = layer(x, state)
    for ours, theirs in zip(run(session, x, *as_tuple(state)), (output, *as_tuple(final)), strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=0, atol=1e-5)


@any_length
@pytest.mark.parametrize("unbatched", [False, True])
def test_polar_form_batch_first_and_unbatched_input(unbatched: bool, tmp_path: Path) -> None:
    layer = ParaGRU(3, 8, form="polar", batch_first=True)
    x = torch.randn(6, 3) if unbatched else torch.randn(4, 6, 3)
    length = {0 if unbatched else 1: torch.export.Dim("time", max=4096)}
    session = export(layer, (x,), tmp_path / "layer.onnx", dynamic_shapes=(length,), dynamo=True)
    longer = torch.randn(30, 3) if unbatched else torch.randn(4, 30, 3)
    np.testing.assert_allclose(run(session, longer)[0], layer(longer)[0].detach().numpy(), rtol=0, atol=1e-5)


def test_projections_which_onnx_has_not_are_unrolled(tmp_path: Path) -> None:
    layer = ParaLSTM(3, 8, proj_size=4, batch_first=True)
    x = torch.randn(4, 6, 3)
    session = export(layer, (x,), tmp_path / "layer.onnx", dynamo=True)
    np.testing.assert_allclose(run(session, x)[0], layer(x)[0].detach().numpy(), rtol=0, atol=1e-5)


@any_length
def test_double_precision_which_onnxruntime_has_not_is_unrolled(tmp_path: Path) -> None:
    layer = ParaLSTM(3, 8, dtype=torch.float64)
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    session = export(layer, (x,), tmp_path / "layer.onnx", dynamo=True)
    np.testing.assert_allclose(run(session, x)[0], layer(x)[0].detach().numpy(), rtol=0, atol=1e-12)


# It traces, and says of every check of a shape that the check will not be part of the graph.
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_the_older_exporter_unrolls(tmp_path: Path) -> None:
    layer = ParaGRU(3, 8)
    x = torch.randn(6, 4, 3)
    session = export(layer, (x,), tmp_path / "layer.onnx", dynamo=False)
    np.testing.assert_allclose(run(session, x)[0], layer(x)[0].detach().numpy(), rtol=0, atol=1e-5)
