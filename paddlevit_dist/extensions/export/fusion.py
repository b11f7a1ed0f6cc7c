"""Fusion of a classifier's ONNX graph for onnxruntime.

Attention, GELU and layer norms after additions become onnxruntime's operators, and nodes around them take forms with
fewer passes over memory. A fused operator is mathematically equal to the nodes it replaces; the order of rounded sums
differs. Other runtimes do not support the domain "com.microsoft" and need the plain ONNX file.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .graph import DOMAIN, OnnxGraph, PatternMismatch, WeightedProduct, attributes, require

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_VERSION = 1
_CHANNELS_FIRST, _CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # from (batch, height, width, channels), and back
_SPLIT_HEADS = (0, 2, 1, 3)  # (batch, tokens, heads, head_dim) to (batch, heads, tokens, head_dim), and back


def fuse(model: "ModelProto") -> "ModelProto":
    """Rewrite a simplified model of fixed image size for onnxruntime; ``model`` is changed.

    Only patterns of image transformers are rewritten.
    """
    from onnx import helper, shape_inference

    values = shape_inference.infer_shapes(model).graph.value_info
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in values}
    graph = OnnxGraph(model)
    graph.apply("Erf", _gelu)
    graph.apply("Concat", _pad_with_tokens)
    graph.apply("Conv", _multiply_first_patches)
    graph.apply("Softmax", _attention)
    graph.apply("Conv", _multiply_patches)
    graph.apply("Conv", _carry_bias_through_depthwise)
    _move_slices_up(graph)
    graph.apply("Gelu", _bias_of_gelu)
    graph.apply("LayerNormalization", functools.partial(_sum_before_norm, ranks=ranks))
    model = graph.finish()
    model.opset_import.append(helper.make_opsetid(DOMAIN, _VERSION))
    return model


def _gelu(graph: OnnxGraph, erf: "NodeProto") -> None:
    """Replace x * (erf(x / sqrt 2) + 1) * 0.5, with factors in any order, by Gelu."""
    division = graph.producer(erf.input[0], "Div", "Mul")
    require(graph.is_number(division.input[1], (2.0 if division.op_type == "Div" else 0.5) ** 0.5))
    plus = graph.reader(erf.output[0], "Add")
    require(graph.is_number(plus.input[1], 1.0))
    x, nodes = division.input[0], [division, erf, plus]
    factors: set[str | None] = {x, None}  # None: 0.5
    while factors:
        before = nodes[-1].output[0]
        times = graph.reader(before, "Mul")
        other = next((name for name in times.input if name != before), "")
        factor = None if graph.is_number(other, 0.5) else other
        require(factor in factors)
        factors.remove(factor)
        nodes.append(times)
    gelu = graph.make_node("Gelu", [x], [nodes[-1].output[0]], domain=DOMAIN)
    graph.insert([gelu], division, instead_of=nodes)


def _bias_of_gelu(graph: OnnxGraph, gelu: "NodeProto") -> None:
    """Replace Gelu of a sum with a bias by BiasGelu."""
    add = graph.producer(gelu.input[0], "Add")
    require(graph.reader(add.output[0]) is gelu)
    bias = graph.bias_index(add)
    fused = graph.make_node("BiasGelu", [add.input[1 - bias], add.input[bias]], [gelu.output[0]], domain=DOMAIN)
    graph.insert([fused], gelu, instead_of=[gelu, add])


class _HeadColumns(NamedTuple):
    """Queries, keys or values: columns of a product with constant weights."""

    weighted: WeightedProduct
    columns: slice
    num_heads: int


def _attention(graph: OnnxGraph, softmax: "NodeProto") -> None:
    """Replace softmax(scale q k^T) v, where q, k, v have constant weights, by MultiHeadAttention.

    The bias of the keys is dropped: it adds one number to all logits of a query, which does not change softmax. The
    bias of the values is merged into the bias of the next projection, as attention weights sum to 1.
    """
    logits = graph.producer(softmax.input[0], "MatMul")
    mixed = graph.reader(softmax.output[0], "MatMul")
    require(mixed.input[0] == softmax.output[0])
    scale, queries = _read_scale(graph, logits.input[0])
    keys = graph.producer(logits.input[1], order=(0, 1, 3, 2)).input[0]
    heads = [_heads(graph, name) for name in (queries, keys, mixed.input[1])]
    flat = graph.reader(graph.reader(mixed.output[0], order=_SPLIT_HEADS).output[0], "Reshape")
    names, nodes = [], []
    for kind, part in zip("qkv", heads, strict=True):
        weight = graph.add_constant(part.weighted.weight[:, part.columns], "weight")
        nodes.append(graph.make_node("MatMul", [part.weighted.source, weight]))
        bias = None if part.weighted.bias is None or kind == "k" else part.weighted.bias[part.columns]
        if bias is not None and not (kind == "v" and _join_projection(graph, flat.output[0], bias)):
            nodes.append(graph.make_node("Add", [nodes[-1].output[0], graph.add_constant(bias, "bias")]))
        names.append(nodes[-1].output[0])
    options = {"domain": DOMAIN, "num_heads": heads[0].num_heads, "scale": scale}
    nodes.append(graph.make_node("MultiHeadAttention", names, [flat.output[0]], **options))
    graph.insert(nodes, flat, instead_of=[flat])
    graph.sweep()


def _join_projection(graph: OnnxGraph, name: str, bias: np.ndarray) -> bool:
    """Merge ``bias`` of the value ``name`` into the projection that reads it; return whether there is one."""
    with contextlib.suppress(PatternMismatch):
        product = graph.reader(name, "MatMul")
        require(product.input[0] == name)
        weight, add = graph.constant(product.input[1]), graph.reader(product.output[0], "Add")
        place = graph.bias_index(add)
        current = graph.constants[add.input[place]]
        joined = current.astype(np.float64) + bias.astype(np.float64) @ weight.astype(np.float64)
        add.input[place] = graph.add_constant(joined.astype(current.dtype), "bias")
        return True
    return False


def _read_scale(graph: OnnxGraph, name: str) -> tuple[float, str]:
    """Return factor and value of a product with a number; 1 and ``name`` if the value is another node."""
    node = graph.producer(name)
    value = graph.constants.get(node.input[1]) if node.op_type == "Mul" else None
    return (1.0, name) if value is None or value.size != 1 else (float(value.item()), node.input[0])


def _heads(graph: OnnxGraph, name: str) -> _HeadColumns:
    """Find the weighted tokens that were reshaped, transposed and split to (batch, heads, tokens, head_dim)."""
    node, number, parts = graph.producer(name), 0, 1
    if node.op_type == "Split":
        require(attributes(node).get("axis", 0) == 1)
        number, parts, name = list(node.output).index(name), len(node.output), node.input[0]
    reshape = graph.producer(graph.producer(name, order=_SPLIT_HEADS).input[0], "Reshape")
    shape = graph.constant(reshape.input[1])
    require(len(shape) == 4)
    heads, dim = int(shape[2]), int(shape[3])
    weighted = graph.match_product(reshape.input[0])
    require(weighted.weight.shape[1] == heads * dim and heads % parts == 0)
    width = heads // parts * dim
    return _HeadColumns(weighted, slice(number * width, (number + 1) * width), heads // parts)


def _sum_before_norm(graph: OnnxGraph, norm: "NodeProto", ranks: dict[str, int]) -> None:
    """Replace LayerNormalization of a residual sum (batch, tokens, channels) by SkipLayerNormalization."""
    add = graph.producer(norm.input[0], "Add")
    require(len(norm.input) >= 3 and len(norm.output) == 1)
    require(ranks.get(add.output[0]) == 3 and attributes(norm).get("axis", -1) in (-1, 2))
    skip, branch = add.input
    require(skip not in graph.constants)
    if branch in graph.constants:  # learned positions
        require(graph.constants[branch].ndim == 3)
        skip, branch = branch, skip
    biases = []
    with contextlib.suppress(PatternMismatch):
        inner = graph.producer(branch, "Add")
        require(len(graph.readers(branch)) == 1)
        place = graph.bias_index(inner)
        branch, biases = inner.input[1 - place], [inner.input[place]]
    fused = graph.make_node(
        "SkipLayerNormalization",
        [branch, skip, norm.input[1], norm.input[2], *biases],
        [norm.output[0], "", "", add.output[0]],
        domain=DOMAIN,
        epsilon=attributes(norm).get("epsilon", 1e-5),
    )
    graph.insert([fused], norm, instead_of=[norm, add])
    _order(graph)
    graph.sweep()


def _order(graph: OnnxGraph) -> None:
    """Sort nodes in the order of computation."""
    computed = {*graph.inputs, *graph.constants, ""}
    waiting, ordered = list(graph.nodes), []
    while waiting:
        ready = [op for op in waiting if all(name in computed for name in op.input)]
        if not ready:
            raise RuntimeError("the rewritten graph has a cycle")
        for node in ready:
            computed.update(node.output)
        ordered += ready
        done = {id(op) for op in ready}
        waiting = [op for op in waiting if id(op) not in done]
    graph.nodes = ordered


def _patches(graph: OnnxGraph, conv: "NodeProto", height: int, width: int) -> tuple[np.ndarray, int, int, int]:
    """Return weight (out, channels, side, side), rows, columns and side of a convolution of adjacent square patches."""
    facts, weight = attributes(conv), graph.constant(conv.input[1])
    require(weight.ndim == 4)
    side = weight.shape[2]
    require(side == weight.shape[3] > 1 and list(facts["strides"]) == [side, side] and not any(facts["pads"]))
    require(facts.get("group", 1) == 1 and height % side == 0 and width % side == 0)
    require(set(facts.get("dilations", [1])) == {1})
    return weight, height // side, width // side, side


def _insert_product(
    graph: OnnxGraph,
    conv: "NodeProto",
    images: str,
    split: Sequence[int],
    permutation: Sequence[int],
    joined: Sequence[int],
    matrix: np.ndarray,
    instead_of: Sequence[Any],
) -> None:
    """Lay out patches of ``images`` as rows and multiply them with ``matrix`` (pixels of a patch, out).

    Args:
        graph: the graph.
        conv: the convolution that is replaced; its bias is kept.
        images: name of the input.
        split: shape with separate axes for patches.
        permutation: order of the axes of ``split``.
        joined: shape of the rows.
        matrix: weights.
        instead_of: removed nodes; the last one computed the result.
    """
    shapes = [graph.add_constant(np.array(shape), "shape") for shape in (split, joined)]
    nodes = [graph.make_node("Reshape", [images, shapes[0]])]
    nodes.append(graph.make_node("Transpose", [nodes[-1].output[0]], perm=list(permutation)))
    nodes.append(graph.make_node("Reshape", [nodes[-1].output[0], shapes[1]]))
    nodes.append(graph.make_node("MatMul", [nodes[-1].output[0], graph.add_constant(matrix, "weight")]))
    if len(conv.input) > 2:
        nodes.append(graph.make_node("Add", [nodes[-1].output[0], conv.input[2]]))
    nodes[-1].output[0] = instead_of[-1].output[0]
    graph.insert(nodes, conv, instead_of)
    graph.sweep()


def _multiply_patches(graph: OnnxGraph, conv: "NodeProto") -> None:
    """Replace a convolution of adjacent patches, (batch, height, width, channels), by one product of patches."""
    before = graph.producer(conv.input[0], order=_CHANNELS_FIRST)
    after = graph.reader(conv.output[0], order=_CHANNELS_LAST)
    source = graph.producer(before.input[0], "Reshape")
    _, height, width, _ = (int(length) for length in graph.constant(source.input[1]))
    weight, rows, columns, side = _patches(graph, conv, height, width)
    out, channels = weight.shape[:2]
    _insert_product(
        graph,
        conv,
        source.input[0],
        [-1, rows, side, columns, side * channels],
        [0, 1, 3, 2, 4],
        [-1, rows, columns, side * side * channels],
        weight.transpose(2, 3, 1, 0).reshape(side * side * channels, out),
        [conv, after],
    )


def _multiply_first_patches(graph: OnnxGraph, conv: "NodeProto") -> None:
    """Replace the patch embedding, a convolution of (batch, channels, height, width), by one product of patches."""
    require(conv.input[0] in graph.inputs)
    flat = graph.reader(conv.output[0], "Reshape")
    graph.constant(flat.input[1])
    transposed = graph.reader(flat.output[0], order=(0, 2, 1))
    lengths = [dim.dim_value for dim in graph.model.graph.input[0].type.tensor_type.shape.dim[2:]]
    require(len(lengths) == 2)
    weight, rows, columns, side = _patches(graph, conv, *lengths)
    out, channels = weight.shape[:2]
    _insert_product(
        graph,
        conv,
        conv.input[0],
        [-1, channels, rows, side, columns, side],
        [0, 2, 4, 1, 3, 5],
        [-1, rows * columns, channels * side * side],
        weight.reshape(out, -1).T,
        [conv, flat, transposed],
    )


def _carry_bias_through_depthwise(graph: OnnxGraph, conv: "NodeProto") -> None:
    """Move the bias of a linear layer through a depthwise convolution into the bias of the next GELU.

    A constant image, convolved with zero padding, gives a constant map (height, width, channels) that differs at the
    border only. This map, plus the convolution's bias, is added to the convolution's output, in the pass over memory
    that the GELU makes anyway.
    """
    before = graph.producer(conv.input[0], order=_CHANNELS_FIRST)
    after = graph.reader(conv.output[0], order=_CHANNELS_LAST)
    source, flat = graph.producer(before.input[0], "Reshape"), graph.reader(after.output[0], "Reshape")
    require(graph.reader(source.input[0]) is source)
    shape, gelu = graph.constant(source.input[1]), graph.reader(flat.output[0], "Gelu")
    weighted = graph.match_product(source.input[0])
    facts, weight = attributes(conv), graph.constant(conv.input[1])
    require(facts.get("group", 1) == weight.shape[0] == shape[3] and list(facts["strides"]) == [1, 1])
    require(weighted.bias is not None and list(facts["pads"]) == [weight.shape[2] // 2] * 4)
    require(set(facts.get("dilations", [1])) == {1})
    conv_bias = graph.constants[conv.input[2]] if len(conv.input) > 2 else 0.0
    total = _map_of_constant(weight, weighted.bias, int(shape[1]), int(shape[2])) + conv_bias
    source.input[0] = weighted.product.output[0]
    del conv.input[2:]
    line = graph.make_node("Reshape", [after.output[0], graph.add_constant(np.array([-1, total.size]), "shape")])
    added = graph.add_constant(total.reshape(-1).astype(weight.dtype), "bias")
    fused = graph.make_node("BiasGelu", [line.output[0], added], domain=DOMAIN)
    back = graph.make_node("Reshape", [fused.output[0], flat.input[1]], [gelu.output[0]])
    graph.insert([line, fused, back], gelu, instead_of=[flat, gelu])
    graph.sweep()


def _map_of_constant(weight: np.ndarray, bias: np.ndarray, height: int, width: int) -> np.ndarray:
    """Convolve an image that is ``bias`` everywhere depthwise: float64 (height, width, channels)."""
    channels, _, side, _ = weight.shape
    half = side // 2
    ones = np.pad(np.ones((height, width)), half)
    total = np.zeros((height, width, channels))
    for row in range(side):
        for column in range(side):
            inside = ones[row : row + height, column : column + width]
            total += inside[..., None] * weight[:, 0, row, column].astype(np.float64)
    return total * bias.astype(np.float64)


def _pad_with_tokens(graph: OnnxGraph, concat: "NodeProto") -> None:
    """Replace learned tokens before the patches by zeros and larger positions, without a computation of shapes."""
    add, (*fronts, patches) = graph.reader(concat.output[0], "Add"), concat.input
    require(attributes(concat)["axis"] == 1 and len(fronts) > 0)
    tokens = [graph.constant(graph.producer(name, "Expand").input[0]) for name in fronts]
    positions = [graph.constants[name] for name in add.input if name in graph.constants]
    require(len(positions) > 0 and positions[0].ndim == 3 and all(each.shape[:2] == (1, 1) for each in tokens))
    total = positions[0].copy()
    for number, token in enumerate(tokens):
        total[:, number] += token[:, 0]
    pads = graph.add_constant(np.array([0, len(tokens), 0, 0, 0, 0]), "pads")
    padded = graph.make_node("Pad", [patches, pads])
    graph.insert([padded], concat)
    add.input[:] = [padded.output[0], graph.add_constant(total, "positions")]
    graph.sweep()


_TOKENS_FIRST = ("MatMul", "MultiHeadAttention", "LayerNormalization", "BiasGelu")  # other inputs are parameters
_ELEMENTWISE = ("Add", "Mul", "Div", "Erf", "Gelu")


def _move_slices_up(graph: OnnxGraph) -> None:
    """Compute only the tokens that are read: slices move before nodes that compute tokens independently."""
    _merge_slices(graph)
    while graph.apply("Slice", _move_slice_up):
        _merge_slices(graph)


def _move_slice_up(graph: OnnxGraph, slice_node: "NodeProto") -> None:
    require(len(slice_node.input) > 3 and graph.constant(slice_node.input[3]).tolist() == [1])
    source = graph.producer(slice_node.input[0], *_TOKENS_FIRST, *_ELEMENTWISE)
    require(graph.reader(slice_node.input[0]) is slice_node and len(source.output) == 1)
    if source.op_type in _TOKENS_FIRST:
        positions = [0]
        require(source.op_type != "MatMul" or source.input[1] in graph.constants)
    else:
        positions = [n for n, name in enumerate(source.input) if name not in graph.constants]
        others = [graph.constants[name] for name in source.input if name in graph.constants]
        require(all(constant.ndim <= 1 for constant in others))  # larger constants may differ between tokens
    slices = [graph.make_node("Slice", [source.input[n], *slice_node.input[1:]]) for n in positions]
    for position, node in zip(positions, slices, strict=True):
        source.input[position] = node.output[0]
    graph.insert(slices, source, instead_of=[slice_node])
    graph.redirect(slice_node.output[0], source.output[0])


def _merge_slices(graph: OnnxGraph) -> None:
    """Merge equal slices of a value."""
    results: dict[tuple[Any, ...], str] = {}

    def merge(graph: OnnxGraph, slice_node: "NodeProto") -> None:
        key = (slice_node.input[0], *(tuple(graph.constant(name).tolist()) for name in slice_node.input[1:]))
        if key in results and slice_node.output[0] not in graph.outputs:
            graph.insert([], slice_node, instead_of=[slice_node])
            graph.redirect(slice_node.output[0], results[key])
        else:
            results[key] = slice_node.output[0]

    graph.apply("Slice", merge)
