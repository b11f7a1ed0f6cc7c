"""A fused graph computes what it did before, and a graph that only resembles a pattern is left alone."""

import math

import numpy as np
import pytest

from paddlevit_dist.extensions.export.fusion import fuse
from paddlevit_dist.extensions.export.onnx_files import run

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

HEIGHT, WIDTH, CHANNELS = 4, 6, 4  # of the image inside of the graph
FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]  # channels


def make_model(nodes, shape, constants) -> onnx.ModelProto:
    """A graph of ``nodes`` from ``x`` of this shape to ``y``."""
    graph = helper.make_graph(
        nodes,
        "drawn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def require_equal(model, shape, has_fused: bool, kind: str) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    before = run(model, {"x": x})["y"]
    fused = fuse(model)
    onnx.checker.check_model(fused)  # onnxruntime also takes nodes in any order, and domains without a version
    np.testing.assert_allclose(run(fused, {"x": x})["y"], before, rtol=1e-5, atol=1e-5)
    assert (kind not in {node.op_type for node in fused.graph.node}) == has_fused


def draw(*shape) -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def patches(before=FIRST, after=LAST, group=1, kernel=(2, 2), bias=True, sides=(HEIGHT, WIDTH), **facts):
    constants = {
        "image": np.array([-1, *sides, CHANNELS]),
        "weight": draw(5 if group == 1 else 4, 4 // group, *kernel),
        "bias": draw(5 if group == 1 else 4),
    }
    given = {"strides": kernel, "pads": [0] * 4, "dilations": [1, 1], "kernel_shape": kernel, "group": group}
    given = {name: value for name, value in {**given, **facts}.items() if value is not None}
    nodes = [
        helper.make_node("Reshape", ["x", "image"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=before),
        helper.make_node("Conv", ["b", "weight", *(["bias"] if bias else [])], ["c"], **given),
        helper.make_node("Transpose", ["c"], ["y"], perm=after),
    ]
    return make_model(nodes, [2, HEIGHT * WIDTH, CHANNELS], constants)


@pytest.mark.parametrize(
    "changes, has_fused",
    [
        ({}, True),
        ({"bias": False}, True),
        ({"dilations": None}, True),
        ({"sides": (12, 2)}, True),
        ({"sides": (8, 3)}, False),  # a column is left over
        ({"sides": (3, 8)}, False),
        ({"kernel": (1, 1)}, False),
        ({"kernel": (2, 3)}, False),
        ({"strides": [2, 1]}, False),
        ({"before": [0, 3, 2, 1]}, False),  # the image is transposed, too
        ({"after": [0, 3, 2, 1]}, False),
        ({"strides": [1, 1]}, False),  # patches overlap
        ({"strides": [3, 3]}, False),
        ({"pads": [1, 1, 1, 1]}, False),
        ({"pads": [0, 0, 1, 1]}, False),
        ({"group": 2}, False),
        ({"dilations": [2, 2]}, False),  # patches have holes
    ],
)
def test_only_a_convolution_of_adjacent_patches_becomes_a_product(changes, has_fused):
    require_equal(patches(**changes), (2, HEIGHT * WIDTH, CHANNELS), has_fused, "Conv")


def embed(kernel=(2, 2), order=(0, 2, 1), has_input=True, bias=True, sides=(HEIGHT, WIDTH)):
    """The patch embedding of images (2, 3, rows, columns): tokens (2, patches, 5)."""
    given = {"strides": kernel, "pads": [0] * 4, "dilations": [1, 1], "kernel_shape": kernel, "group": 1}
    constants = {"weight": draw(5, 3, *kernel), "bias": draw(5), "tokens": np.array([2, 5, -1])}
    nodes = [] if has_input else [helper.make_node("Abs", ["x"], ["a"])]
    nodes += [
        helper.make_node("Conv", ["x" if has_input else "a", "weight", *(["bias"] if bias else [])], ["b"], **given),
        helper.make_node("Reshape", ["b", "tokens"], ["c"]),
        helper.make_node("Transpose", ["c"], ["y"], perm=order),
    ]
    return make_model(nodes, [2, 3, *sides], constants)


@pytest.mark.parametrize(
    "changes, has_fused",
    [
        ({}, True),
        ({"bias": False}, True),
        ({"sides": (6, 2)}, True),
        ({"sides": (4, 3)}, False),
        ({"sides": (3, 4)}, False),
        ({"order": (1, 2, 0)}, False),
        ({"has_input": False}, False),
    ],
)
def test_only_the_embedding_of_patches_of_the_input_becomes_a_product(changes, has_fused):
    require_equal(embed(**changes), (2, 3, *changes.get("sides", (HEIGHT, WIDTH))), has_fused, "Conv")


def gelu(divisor=2**0.5, one=1.0, half=0.5, kind="Div", factors=("c x", "d half"), bias=None):
    """GELU of x, or of x and a bias (7,) or (3, 7)."""
    constants = {name: np.float32(value) for name, value in (("root", divisor), ("one", one), ("half", half))}
    nodes = [
        helper.make_node(kind, ["x" if bias is None else "sum", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", factors[0].split(), ["d"]),
        helper.make_node("Mul", factors[1].split(), ["y"]),
    ]
    if bias is not None:
        constants["bias"] = draw(*bias[1])
        nodes.insert(0, helper.make_node("Add", bias[0].split(), ["sum"]))
    return make_model(nodes, [3, 7], constants)


@pytest.mark.parametrize(
    "changes, has_fused",
    [
        ({}, True),
        ({"kind": "Mul", "divisor": 0.5**0.5}, True),
        ({"kind": "Mul"}, False),
        ({"factors": ("half c", "x d")}, True),
        ({"factors": ("c c", "d half")}, False),
        ({"factors": ("c half", "d half")}, False),
        ({"factors": ("c x", "d x")}, False),
        ({"divisor": 0.5**0.5}, False),
        ({"divisor": 1.5}, False),
        ({"one": 2.0}, False),
        ({"half": 0.25}, False),
        ({"factors": ("c a", "d half")}, False),
    ],
)
def test_only_a_gelu_becomes_one(changes, has_fused):
    require_equal(gelu(**changes), (3, 7), has_fused, "Erf")


@pytest.mark.parametrize(
    "bias, kinds",
    [
        (("x bias", (7,)), ["BiasGelu"]),
        (("bias x", (7,)), ["BiasGelu"]),
        (("x bias", (3, 7)), ["Add", "Gelu"]),  # a number for each element
        (("x x", (7,)), ["Add", "Gelu"]),
    ],
)
def test_the_bias_before_a_gelu_becomes_a_part_of_it(bias, kinds):
    model = gelu(factors=("c sum", "d half"), bias=bias)
    require_equal(model, (3, 7), True, "Erf")
    assert [node.op_type for node in model.graph.node] == kinds


def depthwise(before=FIRST, after=LAST, side=3, has_bias=(True, True), **facts) -> onnx.ModelProto:
    """A linear layer with bias, a depthwise convolution and a GELU, as in a network with convolved tokens."""
    constants = {
        "linear": draw(3, CHANNELS), "linear_bias": 3 + draw(CHANNELS), "weight": draw(CHANNELS, 1, side, side),
        "bias": draw(CHANNELS), "image": np.array([-1, HEIGHT, WIDTH, CHANNELS]),
        "tokens": np.array([2, -1, CHANNELS]), "root": np.float32(math.sqrt(2)), "one": np.float32(1),
        "half": np.float32(0.5),
    }  # fmt: skip
    given = {"strides": [1, 1], "pads": [side // 2] * 4, "dilations": [1, 1], "group": CHANNELS}
    biases = ["bias"] if has_bias[1] else []
    nodes = [
        helper.make_node("MatMul", ["x", "linear"], ["product"]),
        *([helper.make_node("Add", ["product", "linear_bias"], ["sum"])] if has_bias[0] else []),
        helper.make_node("Reshape", ["sum" if has_bias[0] else "product", "image"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=before),
        helper.make_node("Conv", ["b", "weight", *biases], ["c"], kernel_shape=[side] * 2, **{**given, **facts}),
        helper.make_node("Transpose", ["c"], ["d"], perm=after),
        helper.make_node("Reshape", ["d", "tokens"], ["e"]),
        helper.make_node("Div", ["e", "root"], ["f"]),
        helper.make_node("Erf", ["f"], ["g"]),
        helper.make_node("Add", ["g", "one"], ["h"]),
        helper.make_node("Mul", ["e", "h"], ["i"]),
        helper.make_node("Mul", ["i", "half"], ["y"]),
    ]
    return make_model(nodes, [2, HEIGHT * WIDTH, 3], constants)


@pytest.mark.parametrize(
    "changes, has_fused",
    [
        ({}, True),
        ({"side": 5}, True),
        ({"has_bias": (True, False)}, True),
        ({"has_bias": (False, True)}, False),
        ({"side": 5, "pads": [1] * 4}, False),
        ({"pads": [0, 2, 2, 0]}, False),
        ({"before": [0, 3, 2, 1]}, False),
        ({"after": [0, 3, 2, 1]}, False),
        ({"strides": [2, 2]}, False),
        ({"pads": [0] * 4}, False),
        ({"dilations": [2, 2]}, False),
        ({"dilations": [2, 2], "pads": [2] * 4}, False),
    ],
)
def test_a_bias_moves_through_a_depthwise_convolution_of_the_same_size_only(changes, has_fused):
    require_equal(depthwise(**changes), (2, HEIGHT * WIDTH, 3), has_fused, "Gelu")
