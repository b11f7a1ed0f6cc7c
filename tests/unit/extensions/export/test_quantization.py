"""A graph in int8: what is quantized, how exactly, and which layers are rounded most."""

import inspect

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export.files import is_quantized
from paddlevit_dist.extensions.export.int8_options import require_int8
from paddlevit_dist.extensions.export.quantization import WHOLE, QuantizedGraph, StoredInputs

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ml_dtypes")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
RANDOM = np.random.default_rng(0)
CONVOLUTION = RANDOM.normal(size=(3, 1, 3, 3)).astype("float32") * np.float32([1, 10, 0.1]).reshape(3, 1, 1, 1)
PRODUCT = RANDOM.normal(size=(12, 4)).astype("float32")
LAST = RANDOM.normal(size=(4, 4)).astype("float32")
FACTOR = np.float32([1, 1, 1, 1000])


@pytest.fixture
def graph(tmp_path) -> QuantizedGraph:
    """Convolution, product, multiplication by factors, product, and a product of two computed values."""
    nodes = [
        helper.make_node("Conv", ["x", "convolution"], ["filtered"], name="first"),
        helper.make_node("Flatten", ["filtered"], ["flat"]),
        helper.make_node("MatMul", ["flat", "product"], ["multiplied"], name="second"),
        helper.make_node("Mul", ["multiplied", "factor"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "last"], ["y"], name="third"),
        helper.make_node("Transpose", ["y"], ["turned"]),
        helper.make_node("MatMul", ["y", "turned"], ["z"], name="computed"),
    ]
    constants = {"convolution": CONVOLUTION, "product": PRODUCT, "last": LAST, "factor": FACTOR}
    drawn = helper.make_graph(
        nodes,
        "drawn",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("batch", 1, 4, 4))],
        [helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(drawn, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / WHOLE)
    inputs = StoredInputs(tmp_path / "inputs")
    for _ in range(3):
        inputs.add({"x": RANDOM.normal(size=(5, 1, 4, 4)).astype("float32")})
    return QuantizedGraph(tmp_path, inputs)


def read_constants(file) -> dict[str, np.ndarray]:
    return {each.name: numpy_helper.to_array(each) for each in onnx.load(file).graph.initializer}


def test_weights_are_within_half_a_step_of_a_scale_for_each_channel(graph, tmp_path):
    assert graph.layers == ["first", "second", "third"]  # without the product of computed values
    graph.quantize(tmp_path / "int8.onnx")
    constants = read_constants(tmp_path / "int8.onnx")
    for name, weight, others in (("convolution", CONVOLUTION, (1, 2, 3)), ("product", PRODUCT, 0), ("last", LAST, 0)):
        step = np.abs(weight).max(axis=others, keepdims=True) / 127  # the smallest that reaches the largest weight
        stored = constants[f"{name}_quantized"]
        assert stored.dtype == np.int8 and constants[f"{name}_scale"].size == step.size
        assert (np.abs(stored * step - weight) <= step * 0.501).all()


def test_kept_layers_and_other_operators_stay_in_float32(graph, tmp_path):
    graph.quantize(tmp_path / "int8.onnx", kept=("second",))
    constants, model = read_constants(tmp_path / "int8.onnx"), onnx.load(tmp_path / "int8.onnx")
    by_name = {node.name: node for node in model.graph.node}
    made_by = {name: node.op_type for node in model.graph.node for name in node.output}
    np.testing.assert_array_equal(constants[by_name["second"].input[1]], PRODUCT)
    (factors,) = (node for node in model.graph.node if node.op_type == "Mul")
    np.testing.assert_array_equal(constants[factors.input[1]], FACTOR)
    assert [made_by[by_name[name].input[1]] for name in ("first", "third")] == ["DequantizeLinear"] * 2
    assert made_by[by_name["computed"].input[1]] == "Transpose"


def test_ranges_are_measured_once_and_give_the_file_that_measuring_again_gives(graph, tmp_path, monkeypatch):
    from onnxruntime.quantization import quantize_static

    if "calibration_cache_path" not in inspect.signature(quantize_static).parameters:
        pytest.skip("this onnxruntime stores no ranges")
    numbers = []
    read = StoredInputs.read
    monkeypatch.setattr(StoredInputs, "read", lambda inputs, number: (numbers.append(number), read(inputs, number))[1])
    graph.quantize(tmp_path / "all.onnx")
    assert numbers == [0, 1, 2]
    graph.quantize(tmp_path / "stored.onnx", kept=("second",))
    assert numbers == [0, 1, 2]
    (tmp_path / "ranges.json").unlink()
    graph.quantize(tmp_path / "measured.onnx", kept=("second",))
    assert numbers == [0, 1, 2] * 2
    assert (tmp_path / "stored.onnx").read_bytes() == (tmp_path / "measured.onnx").read_bytes()


def test_a_layer_is_rough_where_one_channel_is_far_larger_than_the_others(tmp_path):
    """Three layers in a row; the second multiplies the large channel by a small number: its output needs the others.

    The third reads what the second has lost, and computes it exactly: it is not rough by itself.
    """
    scale = np.float32([1, 1, 1, 3000])
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "scale"], ["b"]),
        helper.make_node("MatMul", ["b", "second"], ["c"], name="second"),
        helper.make_node("MatMul", ["c", "third"], ["z"], name="third"),
    ]
    constants = {name: RANDOM.normal(size=(4, 4)).astype("float32") for name in ("first", "second", "third")}
    constants |= {"scale": scale, "second": constants["second"] / scale[:, None]}
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ("batch", 4)) for name in ("x", "z")]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    drawn = helper.make_graph(nodes, "drawn", values[:1], values[1:], weights)
    onnx.save(helper.make_model(drawn, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / WHOLE)
    inputs = StoredInputs(tmp_path / "inputs")
    inputs.add({"x": RANDOM.normal(size=(100, 4)).astype("float32")})
    graph = QuantizedGraph(tmp_path, inputs)
    graph.quantize(tmp_path / "int8.onnx")
    assert graph.find_rough_layers(tmp_path / "int8.onnx") == ["second"]


def test_a_quarter_of_the_layers_is_rough_where_none_stands_out(graph, tmp_path):
    """The third layer's output follows the large channel that it reads, so that the others do not matter."""
    graph.quantize(tmp_path / "int8.onnx")
    assert len(graph.find_rough_layers(tmp_path / "int8.onnx")) == 1


def test_files_with_integers_are_told_from_others(graph, tmp_path):
    graph.quantize(tmp_path / "int8.onnx")
    assert is_quantized(tmp_path / "int8.onnx") and not is_quantized(tmp_path / WHOLE)


def test_stored_inputs_begin_again_after_the_last(tmp_path):
    inputs = StoredInputs(tmp_path / "inputs")
    for value in (1, 2):
        inputs.add({"x": np.full(3, value)})
    read = [inputs.get_next() for _ in range(4)]
    assert [None if batch is None else batch["x"].tolist() for batch in read] == [[1] * 3, [2] * 3, None, [1] * 3]


def test_a_damaged_graph_is_one_line(tmp_path):
    (tmp_path / WHOLE).write_bytes(b"no graph")
    with pytest.raises(UserError, match=r"onnxruntime cannot quantize this model: .+; try -precision=float32"):
        QuantizedGraph(tmp_path, StoredInputs(tmp_path / "inputs"))


@pytest.mark.parametrize(
    "kind, outputs, told", [("paddle", "logits", "-format=onnx"), ("onnx", "probabilities", "log")]
)
def test_int8_is_refused_with_options_that_do_not_fit(kind, outputs, told):
    with pytest.raises(UserError, match=told):
        require_int8(kind, outputs)
