"""A graph in float16 computes what it did in float32, with float32 from the last product to what it selects."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.extensions.export.half import to_float16, value_types
from paddlevit_dist.extensions.export.onnx_files import run

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

FLOAT, HALF, INT = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def make_graph(nodes, outputs, constants, inputs=(("x", FLOAT, (2, 3)),)):
    graph = helper.make_graph(
        nodes,
        "drawn",
        [helper.make_tensor_value_info(*slot) for slot in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def find_types(model) -> dict[str, int]:
    """Element types of all values and constants by name."""
    types = value_types(model)
    return {**types, **{constant.name: constant.data_type for constant in model.graph.initializer}}


WEIGHT = np.array([[1.5, -2.0, 0.25, 3.0], [0.5, 1.0, -1.0, 2.0], [0.125, 4.0, 1.0, -0.5]], np.float32)


def test_weights_input_and_values_are_float16_and_outputs_float32():
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Shape", ["product"], ["numbers"]),
        helper.make_node("Mul", ["numbers", "order"], ["flat"]),  # whole numbers, computed and constant
        helper.make_node("Reshape", ["product", "flat"], ["reshaped"]),
        helper.make_node("Cast", ["reshaped"], ["cast"], to=FLOAT),
        helper.make_node("Add", ["cast", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
        helper.make_node("Shape", ["sum"], ["shape"]),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    constants = {"weight": WEIGHT, "bias": np.float32([1, 2, 3, 4]), "order": np.int64([1, 1])}
    model = make_graph(nodes, {"y": FLOAT, "z": FLOAT, "shape": INT}, constants)
    x = np.array([[1.0, 2.0, -0.5], [0.25, -1.0, 2.0]], np.float32)
    expected = run(model, {"x": x})
    half = to_float16(onnx.ModelProto.FromString(model.SerializeToString()), value_types(model))
    found = run(half, {"x": x})
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and found[name].tolist() == values.tolist()  # exact in 11 bits
    types = find_types(half)
    assert types["x"] == types["product"] == types["cast"] == types["sum"] == types["y.float16"] == HALF
    assert (types["y"], types["z"], types["shape"]) == (FLOAT, FLOAT, INT)
    assert types["numbers"] == types["order"] == types["flat"] == INT
    assert sorted(kind for name, kind in types.items() if name.startswith(("weight", "bias"))) == [HALF, HALF]
    assert sum(node.op_type == "Cast" for node in half.graph.node) == 3  # the one before, and one for each output


def test_what_selects_objects_is_float32_from_the_last_product_on():
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["first"]),
        helper.make_node("Relu", ["first"], ["hidden"]),
        helper.make_node("MatMul", ["hidden", "second_weight"], ["scores"]),
        helper.make_node("Add", ["scores", "bias"], ["shifted"]),
        helper.make_node("TopK", ["shifted", "k"], ["best", "places"]),
        helper.make_node("Mul", ["best", "best"], ["y"]),
    ]
    bias = np.float32([0.0, 1e-5, 0.0, 2e-5])  # below float16's resolution beside 4: ties would be broken otherwise
    constants = {"weight": WEIGHT, "second_weight": np.full((4, 4), 1.0, np.float32), "bias": bias, "k": np.int64([2])}
    model = make_graph(nodes, {"y": FLOAT, "places": INT}, constants)
    x = np.array([[1.0, 1.0, -0.5], [2.0, 1.0, 1.0]], np.float32)
    half = to_float16(onnx.ModelProto.FromString(model.SerializeToString()), value_types(model))
    assert run(half, {"x": x})["places"].tolist() == run(model, {"x": x})["places"].tolist() == [[3, 1]] * 2
    types = find_types(half)
    assert types["hidden"] == types["scores"] == HALF and types["shifted"] == types["best"] == types["y"] == FLOAT
    assert types["bias"] == FLOAT and types["k"] == INT


def test_a_weight_beyond_float16_is_refused_by_its_name():
    model = make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"y": FLOAT}, {"w": np.float32([[1], [-7e4], [2]])}
    )
    with pytest.raises(UserError, match=r"the weight w reaches 70000, which float16 cannot hold \(65,504\)"):
        to_float16(model, value_types(model))


BEGINS = {  # of an input (1, 2, 4, 4): constants, attributes
    "MatMul": ([np.ones((4, 4))], {}),
    "Conv": ([np.ones((2, 2, 1, 1))], {}),
    "ConvTranspose": ([np.ones((2, 2, 1, 1))], {}),
    "LayerNormalization": ([np.ones(4), np.zeros(4)], {"axis": -1}),
}


@pytest.mark.parametrize("kind", [*BEGINS, "Gemm", "Relu"])
def test_a_selection_is_float32_from_any_kind_of_product_on(kind):
    constants, attributes = BEGINS.get(kind, ([], {}))
    shape, names = ((2, 4), ["weight"]) if kind == "Gemm" else ((1, 2, 4, 4), [f"c{n}" for n in range(len(constants))])
    constants = [np.ones((4, 4))] if kind == "Gemm" else constants
    nodes = [
        helper.make_node("Relu", ["x"], ["before"]),
        helper.make_node(kind, ["before", *names], ["product"], **attributes),
        helper.make_node("Neg", ["product"], ["score"]),
        helper.make_node("TopK", ["score", "k"], ["best", "places"]),
    ]
    given = {name: np.float32(value) for name, value in zip(names, constants)}
    model = make_graph(nodes, {"best": FLOAT, "places": INT}, {**given, "k": np.int64([2])}, [("x", FLOAT, shape)])
    half = to_float16(onnx.ModelProto.FromString(model.SerializeToString()), value_types(model))
    types = find_types(half)
    is_product = kind != "Relu"
    assert types["score"] == FLOAT and types["product"] == types["before"] == (HALF if is_product else FLOAT)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(run(half, {"x": x})["best"], run(model, {"x": x})["best"], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("selects", [True, False])
def test_points_of_sampling_are_float32_in_a_network_that_selects(selects):
    nodes = [
        helper.make_node("MatMul", ["points", "weight"], ["product"]),
        helper.make_node("Neg", ["product"], ["grid"]),
        helper.make_node("Relu", ["x"], ["map"]),
        helper.make_node("GridSample", ["map", "grid"], ["sampled"]),
        helper.make_node("TopK" if selects else "Neg", ["sampled", *["k"] * selects], ["y", *["places"] * selects]),
    ]
    inputs = [("x", FLOAT, (1, 1, 3, 3)), ("points", FLOAT, (1, 2, 2, 2))]
    model = make_graph(nodes, {"y": FLOAT}, {"weight": np.eye(2, dtype="f4"), "k": np.int64([1])}, inputs)
    types = find_types(to_float16(onnx.ModelProto.FromString(model.SerializeToString()), value_types(model)))
    assert types["product"] == HALF and types["grid"] == types["sampled"] == (FLOAT if selects else HALF)
