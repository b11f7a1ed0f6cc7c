"""A fused graph computes what it did before, and a graph that only resembles a pattern is left alone."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from paddlevit_dist.export.fusion import fuse
from paddlevit_dist.export.onnx_files import run

SIDE, CHANNELS = 6, 4  # of the image inside of the graph
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


def patches(before=FIRST, after=LAST, group=1, side=2, **facts) -> onnx.ModelProto:
    constants = {
        "image": np.array([-1, SIDE, SIDE, CHANNELS]),
        "weight": draw(5 if group == 1 else 4, 4 // group, 2, 2),
    }
    constants["bias"] = draw(len(constants["weight"]))
    given = {"strides": [side] * 2, "pads": [0] * 4, "dilations": [1, 1], "kernel_shape": [2, 2], "group": group}
    nodes = [
        helper.make_node("Reshape", ["x", "image"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=before),
        helper.make_node("Conv", ["b", "weight", "bias"], ["c"], **{**given, **facts}),
        helper.make_node("Transpose", ["c"], ["y"], perm=after),
    ]
    return make_model(nodes, [2, SIDE * SIDE, CHANNELS], constants)


@pytest.mark.parametrize(
    "changes, has_fused",
    [
        ({}, True),
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
    require_equal(patches(**changes), (2, SIDE * SIDE, CHANNELS), has_fused, "Conv")


def gelu(divisor=2**0.5, one=1.0, half=0.5, factor="x") -> onnx.ModelProto:
    constants = {name: np.float32(value) for name, value in (("root", divisor), ("one", one), ("half", half))}
    nodes = [
        helper.make_node("Div", ["x", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["c", factor], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["y"]),
    ]
    return make_model(nodes, [3, 7], constants)


@pytest.mark.parametrize(
    "changes, has_fused",
    [({}, True), ({"divisor": 1.5}, False), ({"one": 2.0}, False), ({"half": 0.25}, False), ({"factor": "a"}, False)],
)
def test_only_a_gelu_becomes_one(changes, has_fused):
    require_equal(gelu(**changes), (3, 7), has_fused, "Erf")


def depthwise(before=FIRST, after=LAST, **facts) -> onnx.ModelProto:
    """A linear layer with bias, a depthwise convolution and a GELU, as in a network with convolved tokens."""
    constants = {
        "linear": draw(3, CHANNELS), "linear_bias": 3 + draw(CHANNELS), "weight": draw(CHANNELS, 1, 3, 3),
        "bias": draw(CHANNELS), "image": np.array([-1, SIDE, SIDE, CHANNELS]),
        "tokens": np.array([2, -1, CHANNELS]), "root": np.float32(math.sqrt(2)), "one": np.float32(1),
        "half": np.float32(0.5),
    }  # fmt: skip
    given = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1], "kernel_shape": [3, 3], "group": CHANNELS}
    nodes = [
        helper.make_node("MatMul", ["x", "linear"], ["product"]),
        helper.make_node("Add", ["product", "linear_bias"], ["sum"]),
        helper.make_node("Reshape", ["sum", "image"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=before),
        helper.make_node("Conv", ["b", "weight", "bias"], ["c"], **{**given, **facts}),
        helper.make_node("Transpose", ["c"], ["d"], perm=after),
        helper.make_node("Reshape", ["d", "tokens"], ["e"]),
        helper.make_node("Div", ["e", "root"], ["f"]),
        helper.make_node("Erf", ["f"], ["g"]),
        helper.make_node("Add", ["g", "one"], ["h"]),
        helper.make_node("Mul", ["e", "h"], ["i"]),
        helper.make_node("Mul", ["i", "half"], ["y"]),
    ]
    return make_model(nodes, [2, SIDE * SIDE, 3], constants)


@pytest.mark.parametrize(
    "changes, has_fused",
    [
        ({}, True),
        ({"before": [0, 3, 2, 1]}, False),
        ({"after": [0, 3, 2, 1]}, False),
        ({"strides": [2, 2]}, False),
        ({"pads": [0] * 4}, False),
        ({"dilations": [2, 2]}, False),
        ({"dilations": [2, 2], "pads": [2] * 4}, False),
    ],
)
def test_a_bias_moves_through_a_depthwise_convolution_of_the_same_size_only(changes, has_fused):
    require_equal(depthwise(**changes), (2, SIDE * SIDE, 3), has_fused, "Gelu")
