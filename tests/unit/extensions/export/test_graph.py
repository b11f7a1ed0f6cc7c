"""Graphs of a converter compute the same after what is redundant is dropped, and keep what is not."""

import numpy as np
import pytest

from paddlevit_dist.extensions.export.fusion import fuse
from paddlevit_dist.extensions.export.graph import OnnxGraph, PatternMismatch, fix_shapes, simplify
from paddlevit_dist.extensions.export.onnx_files import run

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper


def make_model(nodes, shape, constants, outputs=("y",)):
    graph = helper.make_graph(
        [helper.make_node(*parts[:3], **(parts[3] if len(parts) > 3 else {})) for parts in nodes],
        "drawn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def draw(*shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def change(model, function, shape) -> list[str]:
    """Check that a change of the graph leaves its outputs; return the kinds of the nodes that are left."""
    x = draw(*shape, seed=1)
    before, changed = run(model, {"x": x}), function(onnx.ModelProto.FromString(model.SerializeToString()))
    after = run(changed, {"x": x})
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, rtol=1e-5, atol=1e-5)
    return [node.op_type for node in changed.graph.node]


def test_copies_constants_and_zeros_are_dropped():
    value = numpy_helper.from_array(np.float32([1, -2, 3]))
    nodes = [
        ("Identity", ["x"], ["a"]),
        ("Constant", [], ["three"], {"value": value}),
        ("Mul", ["three", "two"], ["six"]),  # of constants
        ("Add", ["a", "zero"], ["b"]),
        ("Add", ["b", "zeros_and_one"], ["c"]),
        ("Add", ["c", "six"], ["d"]),
        ("Add", ["d", "one"], ["e"]),
        ("Identity", ["e"], ["y"]),
        ("Add", ["d", "zero"], ["z"]),
    ]
    constants = {"two": np.float32(2), "zero": np.float32(0), "one": np.float32([1])}
    constants["zeros_and_one"] = np.float32([0, 0, 1])
    model = make_model(nodes, (2, 3), constants, ("y", "z"))
    assert change(model, simplify, (2, 3)) == ["Add", "Add", "Add", "Identity", "Add"]  # outputs keep their nodes


def test_constants_that_a_node_makes_larger_are_not_stored():
    nodes = [
        ("Expand", ["row", "rows"], ["table"]),
        ("ConstantOfShape", ["rows"], ["zeros"]),
        ("Mul", ["row", "row"], ["square"]),
        ("Add", ["x", "table"], ["a"]),
        ("Add", ["a", "zeros"], ["b"]),
        ("Add", ["b", "square"], ["y"]),
        ("Mul", ["row", "row"], ["z"]),  # an output
    ]
    model = make_model(nodes, (2, 3), {"row": np.float32([[1, 2, 3]]), "rows": np.int64([2, 3])}, ("y", "z"))
    assert change(model, simplify, (2, 3)) == ["Expand", "ConstantOfShape", "Add", "Add", "Add", "Mul"]


@pytest.mark.parametrize(
    "bias, second, merged",
    [
        ((1, 5, 1, 1), False, True),
        ((1, 5, 1, 1), True, False),
        ((1, 1, 1, 1), False, False),
        ((1, 1, 5, 1), False, False),
    ],
)
def test_a_bias_of_channels_is_merged_into_its_convolution(bias, second, merged):
    nodes = [("Conv", ["x", "weight"], ["a"]), ("Add", ["a", "bias"], ["y"])]
    nodes += [("Neg", ["a"], ["z"])] if second else []
    model = make_model(nodes, (2, 3, 5, 5), {"weight": draw(5, 3, 1, 1), "bias": draw(*bias)}, ["y", "z"][: 1 + second])
    assert change(model, simplify, (2, 3, 5, 5)) == ["Conv", *(["Add"] * (not merged)), *(["Neg"] * second)]


def test_shapes_that_follow_the_batch_become_constants():
    nodes = [
        ("Shape", ["x"], ["shape"]),
        ("Slice", ["shape", "0", "1"], ["batch"]),
        ("Mul", ["batch", "four"], ["rows"]),
        ("Concat", ["rows", "nine"], ["by_rows"], {"axis": 0}),
        ("Reshape", ["x", "by_rows"], ["y"]),
        ("Concat", ["nine", "rows"], ["turned"], {"axis": 0}),
        ("Reshape", ["x", "turned"], ["z"]),
        ("Mul", ["batch", "batch"], ["square"]),
        ("Concat", ["square", "minus"], ["by_square"], {"axis": 0}),
        ("Reshape", ["x", "by_square"], ["odd"]),
        ("ConstantOfShape", ["square"], ["zeros"]),
        ("Reshape", ["zeros", "square"], ["vector"]),
        ("Slice", ["shape", "1", "two"], ["second"]),
        ("Concat", ["second", "minus"], ["by_second"], {"axis": 0}),
        ("Reshape", ["table", "by_second"], ["same"]),
    ]
    constants = {"table": draw(6, 2), "two": np.int64([2])} | {
        name: np.int64([number]) for name, number in (("0", 0), ("1", 1), ("four", 4), ("nine", 9), ("minus", -1))
    }
    model = make_model(nodes, ("n", 4, 9), constants, ("y", "z", "odd", "vector", "same"))

    def fix(model):
        return fix_shapes(model, lambda probe, batch: run(probe, {"x": draw(batch, 4, 9)}))

    kinds = change(model, fix, (6, 4, 9))
    assert kinds.count("Reshape") == 5 and "Shape" in kinds  # for the square, whose shape is no multiple of the batch
    fixed = OnnxGraph(fix(model))
    shapes = [fixed.constants.get(node.input[1]) for node in fixed.nodes if node.op_type == "Reshape"]
    assert [None if shape is None else shape.tolist() for shape in shapes] == [
        *([-1, 9], [9, -1], None, None, [4, 3]),
    ]
    without = make_model([("Neg", ["x"], ["y"])], ("n", 2), {})
    assert fix_shapes(without, None) is without


def test_nodes_around_a_value_are_found_if_they_fit():
    nodes = [
        ("Transpose", ["x"], ["a"], {"perm": [1, 0]}),
        ("MatMul", ["a", "weight"], ["b"]),
        ("Add", ["b", "bias"], ["c"]),
        ("Neg", ["c"], ["y"]),
        ("Abs", ["a"], ["z"]),
    ]
    constants = {"weight": draw(3, 4), "bias": draw(4), "half": np.float32([[0.5]]), "cube": draw(2, 3, 4)}
    graph = OnnxGraph(make_model(nodes, (3, 2), constants, ("y", "z")))
    assert graph.producer("a", "Transpose", order=[1, 0]).op_type == "Transpose"
    assert graph.reader("b", "Add", "Neg").op_type == "Add" and graph.readers("y") == [None]
    product = graph.match_product("c")
    assert product.source == "a" and product.bias is graph.constants["bias"] and product.product.op_type == "MatMul"
    assert graph.match_product("b").bias is None and graph.bias_index(graph.producer("c")) == 1
    assert graph.is_number("half", 0.5) and not graph.is_number("half", 0.4) and not graph.is_number("bias", 0.5)
    for call in (
        lambda: graph.producer("x"),
        lambda: graph.producer("a", "MatMul"),
        lambda: graph.producer("a", order=[0, 1]),
        lambda: graph.producer("b", order=[1, 0]),
        lambda: graph.reader("a"),  # two
        lambda: graph.reader("y"),  # the output
        lambda: graph.constant("a"),
        lambda: graph.match_product("y"),
    ):
        with pytest.raises(PatternMismatch):
            call()


def test_an_output_keeps_its_name_where_another_value_takes_its_place():
    nodes = [("Neg", ["x"], ["a"]), ("Neg", ["a"], ["b"]), ("Abs", ["a"], ["y"]), ("Exp", ["y"], ["z"])]
    graph = OnnxGraph(make_model(nodes, (2, 3), {"unused": draw(2)}, ("y", "z")))
    (absolute,) = (node for node in graph.nodes if node.op_type == "Abs")
    graph.insert([], absolute, instead_of=[absolute])
    graph.redirect("y", "b")
    found = run(graph.finish(), {"x": (x := draw(2, 3))})
    np.testing.assert_allclose(found["y"], x)
    np.testing.assert_allclose(found["z"], np.exp(x), rtol=1e-6)
    assert [node.op_type for node in graph.nodes] == ["Neg", "Neg", "Exp"] and graph.constants == {}


def tokens(*slices, weight=(4, 4), axis=1):
    """Linear layers of tokens (2, 7, 4), of which these slices are read."""
    nodes = [
        ("MatMul", ["x", "weight"], ["a"]),
        ("Add", ["a", "bias"], ["b"]),
        ("Add", ["b", "positions"], ["c"]),
        ("MatMul", ["c", "other"], ["d"]),
    ]
    constants = {"weight": draw(*weight), "bias": draw(4), "positions": draw(1, 7, 4), "other": draw(4, 4, seed=2)}
    constants["axis"] = np.int64([axis])
    for number, (start, end) in enumerate(slices):
        constants |= {f"s{number}": np.int64([start]), f"e{number}": np.int64([end])}
        nodes.append(("Slice", ["d", f"s{number}", f"e{number}", "axis"], [f"part{number}"]))
        nodes.append(("Neg", [f"part{number}"], [f"y{number}"]))
    return make_model(nodes, (2, 7, 4), constants, [f"y{number}" for number in range(len(slices))])


def test_only_the_tokens_that_are_read_are_computed():
    kinds = change(tokens((0, 1), (0, 1)), fuse, (2, 7, 4))
    assert kinds.count("Slice") == 1 and kinds.index("Slice") < len(kinds) - 3  # in front of the last product
    several = change(tokens((0, 1), (1, 3)), fuse, (2, 7, 4))
    assert several.count("Slice") == 2 and several.index("Slice") > several.index("MatMul")
    channels = change(tokens((0, 2), axis=2), fuse, (2, 7, 4))
    assert channels.index("Slice") == len(channels) - 2  # of channels, which a product mixes
