"""Attention and sums before norms become one operator that computes the same, and what looks alike does not."""

import numpy as np
import pytest

from paddlevit_dist.extensions.export.fusion import fuse
from paddlevit_dist.extensions.export.onnx_files import run

onnx = pytest.importorskip("onnx")
TensorProto, helper, numpy_helper = onnx.TensorProto, onnx.helper, onnx.numpy_helper

TOKENS, HEADS, DIM = 5, 2, 3
WIDTH = HEADS * DIM
ORDER = (0, 2, 1, 3)


def draw(*shape, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


class Drawn:
    """A graph from ``x`` (batch, 5 tokens, 6 channels) to its last value."""

    def __init__(self):
        self.nodes, self.constants = [], {}

    def constant(self, value) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def add(self, kind, *inputs, outputs=1, **options):
        names = [f"v{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **options))
        return names[0] if outputs == 1 else names

    def weigh(self, name, columns, seed, bias=True) -> str:
        product = self.add("MatMul", name, self.constant(draw(WIDTH, columns, seed=seed)))
        return self.add("Add", product, self.constant(draw(columns, seed=seed + 50))) if bias else product

    def reshape(self, name, *shape) -> str:
        return self.add("Reshape", name, self.constant(np.array([-1, *shape])))

    def make(self, *outputs) -> onnx.ModelProto:
        values = [("x", [None, TOKENS, WIDTH]), *((name, None) for name in outputs)]
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values]
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "drawn", values[:1], values[1:], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def require_same(model) -> list:
    """Check that the fused model computes the same; return its nodes."""
    x = {"x": draw(2, TOKENS, WIDTH, seed=9)}
    before = run(model, x)
    fused = fuse(onnx.ModelProto.FromString(model.SerializeToString()))
    onnx.checker.check_model(fused)  # onnxruntime also takes nodes in any order, and domains without a version
    for name, value in run(fused, x).items():
        np.testing.assert_allclose(value, before[name], rtol=1e-4, atol=1e-5)
    return list(fused.graph.node)


def attend(is_joint=False, bias=True, scale=0.37, projects=True, heads=ORDER, order=ORDER, times=1, first=None):
    """Attention; ``times`` tokens are computed of each, and ``first`` tokens are read."""
    drawn = Drawn()
    if is_joint:
        columns = drawn.weigh("x", times * 3 * WIDTH, 1, bias)
        tokens = drawn.reshape(columns, times * TOKENS, 3 * HEADS, DIM)
        parts = drawn.add("Transpose", tokens, perm=ORDER)
        q, k, v = drawn.add("Split", parts, drawn.constant(np.array([HEADS] * 3)), outputs=3, axis=1)
    else:
        weighed = [drawn.weigh("x", times * WIDTH, seed, bias) for seed in (1, 2, 3)]
        parts = [drawn.reshape(columns, times * TOKENS, HEADS, DIM) for columns in weighed]
        q, k, v = (drawn.add("Transpose", part, perm=heads) for part in parts)
    q = q if scale is None else drawn.add("Mul", q, drawn.constant(np.float32(scale)))
    logits = drawn.add("MatMul", q, drawn.add("Transpose", k, perm=(0, 1, 3, 2)))
    weights = drawn.add("Softmax", logits, axis=-1)
    mixed = drawn.add("MatMul", weights, v)
    flat = drawn.reshape(drawn.add("Transpose", mixed, perm=order), times * TOKENS, WIDTH)
    y = drawn.weigh(flat, WIDTH, 4) if projects else flat
    return drawn.make(y if first is None else drawn.add("Slice", y, *map(drawn.constant, ([0], [first], [1]))))


@pytest.mark.parametrize("is_joint", [False, True])
@pytest.mark.parametrize(
    "changes", [{}, {"bias": False}, {"scale": None}, {"projects": False}, {"projects": False, "bias": False}]
)
def test_attention_of_weighted_tokens_becomes_one_operator(is_joint, changes):
    nodes = require_same(attend(is_joint, **changes))
    (fused,) = (node for node in nodes if node.op_type == "MultiHeadAttention")
    options = {option.name: helper.get_attribute_value(option) for option in fused.attribute}
    assert options == {"num_heads": HEADS, "scale": pytest.approx(1.0 if "scale" in changes else 0.37)}
    kinds = [node.op_type for node in nodes]
    assert not {"Softmax", "Transpose", "Split", "Reshape", "Mul"} & set(kinds)
    # Queries keep their bias, that of keys changes nothing, and that of values moves into the next projection.
    has_bias, projects = changes.get("bias", True), changes.get("projects", True)
    assert kinds.count("Add") == has_bias + (projects or has_bias)


@pytest.mark.parametrize("is_joint", [False, True])
def test_only_the_queries_of_tokens_that_are_read_are_computed(is_joint):
    """Keys and values of all tokens are needed, and the slice stands in front of all that belongs to queries."""
    nodes = require_same(attend(is_joint, first=2))
    kinds = [node.op_type for node in nodes]
    assert kinds.count("Slice") == 1 and nodes[kinds.index("Slice")].input[0] == "x"
    (fused,) = (node for node in nodes if node.op_type == "MultiHeadAttention")
    sliced = {nodes[kinds.index("Slice")].output[0]}
    for node in nodes:
        sliced |= set(node.output) if node.input[0] in sliced else set()
    assert [name in sliced for name in fused.input] == [True, False, False]


@pytest.mark.parametrize(
    "changes",
    [
        {"order": (0, 1, 2, 3)},
        {"order": (0, 2, 3, 1)},
        {"heads": (0, 1, 2, 3)},  # heads that attend to each other
        {"scale": np.full(DIM, 0.37)},  # each channel has its own
        {"times": 2},
        {"times": 2, "is_joint": True},
    ],
)
def test_attention_of_another_form_stays_as_it_is(changes):
    kinds = [node.op_type for node in require_same(attend(**changes))]
    assert "MultiHeadAttention" not in kinds and "Softmax" in kinds


def normalize(axis=-1, bias=True, branch_bias=True, positions=None, is_read=True, shape=(), shares=False, **options):
    """A sum and its norm; with ``shape`` there are other axes than (batch, tokens, channels)."""
    drawn = Drawn()
    branch = drawn.weigh("x", WIDTH, 1, branch_bias) if positions is None else drawn.constant(positions)
    x, branch = (drawn.reshape(name, *shape) if shape else name for name in ("x", branch))
    total = drawn.add("Add", x, branch)
    length = (TOKENS, WIDTH) if axis == 1 else (WIDTH,)
    sides = [drawn.constant(draw(*length, seed=seed)) for seed in ((5, 6) if bias else (5,))]
    norm = drawn.add("LayerNormalization", total, *sides, axis=axis, **options)
    y = [drawn.add("Add", total, drawn.weigh(norm, WIDTH, 7))] if is_read else [norm]
    return drawn.make(*y, *([drawn.add("Neg", branch)] if shares else []))


@pytest.mark.parametrize(
    "changes, has_fused",
    [
        ({}, True),
        ({"epsilon": 1e-3}, True),
        ({"shares": True}, True),  # the branch is read elsewhere, too
        ({"shape": (WIDTH,)}, False),
        ({"shape": (1, TOKENS, WIDTH)}, False),
        ({"axis": 1}, False),
        ({"axis": 2}, True),
        ({"branch_bias": False}, True),
        ({"is_read": False}, True),
        ({"positions": draw(1, TOKENS, WIDTH, seed=8)}, True),
        ({"positions": draw(WIDTH, seed=8)}, False),  # a bias
        ({"bias": False}, False),
    ],
)
def test_a_sum_and_its_norm_become_one_operator_that_gives_both(changes, has_fused):
    nodes = require_same(normalize(**changes))
    fused = [node for node in nodes if node.op_type == "SkipLayerNormalization"]
    assert (
        len(fused) == has_fused and len([node for node in nodes if node.op_type == "LayerNormalization"]) != has_fused
    )
    for node in fused:
        options = {option.name: helper.get_attribute_value(option) for option in node.attribute}
        assert options == {"epsilon": pytest.approx(changes.get("epsilon", 1e-5))} and len(node.output) == 4
        assert len(node.input) == (5 if not {"branch_bias", "positions", "shares"} & changes.keys() else 4)


@pytest.mark.parametrize(
    "shape, numbers, kinds",
    [
        ((1,), (1, 1), ["Pad", "Add"]),
        ((), (1, 1), ["Expand", "Expand", "Concat", "Add"]),
        ((1,), (1, 2), ["Expand", "Expand", "Concat", "Add"]),  # a token, and two in one
    ],
)
def test_learned_tokens_become_zeros_and_larger_positions(shape, numbers, kinds):
    drawn = Drawn()
    tokens = [
        drawn.add("Expand", drawn.constant(draw(1, n, WIDTH, seed=k)), drawn.constant(np.array([2, n, WIDTH])))
        for k, n in enumerate(numbers)
    ]
    joined = drawn.add("Concat", *tokens, "x", axis=1)
    positions = drawn.constant(draw(*shape, TOKENS + sum(numbers), WIDTH, seed=3))
    nodes = require_same(drawn.make(drawn.add("Add", joined, positions)))
    assert [node.op_type for node in nodes] == kinds
