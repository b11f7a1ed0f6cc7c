"""A classifier's ONNX graph for onnxruntime: its own operators for attention, GELU and layer norms after additions.

What a fused operator replaces is mathematically the same; which sums are rounded in which order is not. The domain
"com.microsoft" is onnxruntime's: other runtimes do not know it, so the plain ONNX file stays the one for them.
"""

import contextlib
import functools
from typing import Any, NamedTuple

import numpy as np

from . import patch_fusion as patches
from .graph import DOMAIN, Graph, Unlike, Weighted, attributes, require

_VERSION = 1
_SPLIT_HEADS = (0, 2, 1, 3)  # (batch, tokens, heads, head_dim) to (batch, heads, tokens, head_dim), and back


def fuse(model: Any) -> Any:
    """Rewrite a simplified model of fixed picture size for onnxruntime; ``model`` is changed. What has another form
    than the transformers of pictures have stays as it is."""
    from onnx import helper, shape_inference

    known = shape_inference.infer_shapes(model).graph.value_info
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in known}
    graph = Graph(model)
    graph.apply("Erf", _gelu)
    graph.apply("Concat", patches.pad_with_tokens)
    graph.apply("Conv", patches.multiply_first_patches)
    graph.apply("Softmax", _attention)
    graph.apply("Conv", patches.multiply_patches)
    graph.apply("Conv", patches.carry_bias_through_depthwise)
    patches.push_slices(graph)
    graph.apply("Gelu", _bias_of_gelu)
    graph.apply("LayerNormalization", functools.partial(_sum_before_norm, ranks=ranks))
    model = graph.finish()
    if not any(one.domain == DOMAIN for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, _VERSION))
    return model


# ---- GELU --------------------------------------------------------------------------------------------------------


def _gelu(graph: Graph, erf: Any) -> None:
    """x * (erf(x / sqrt 2) + 1) * 0.5, in whatever order it is multiplied, as Gelu."""
    division = graph.maker(erf.input[0], "Div", "Mul")
    require(graph.is_number(division.input[1], (2.0 if division.op_type == "Div" else 0.5) ** 0.5))
    plus = graph.reader(erf.output[0], "Add")
    require(graph.is_number(plus.input[1], 1.0))
    x, nodes = division.input[0], [division, erf, plus]
    factors = {x, "half"}
    while factors:
        before = nodes[-1].output[0]
        times = graph.reader(before, "Mul")
        other = next((name for name in times.input if name != before), "")
        factor = "half" if graph.is_number(other, 0.5) else other
        require(factor in factors)
        factors.remove(factor)
        nodes.append(times)
    gelu = graph.make("Gelu", [x], [nodes[-1].output[0]], domain=DOMAIN)
    graph.put([gelu], division, instead_of=nodes)


def _bias_of_gelu(graph: Graph, gelu: Any) -> None:
    """Gelu of a sum with a bias as BiasGelu."""
    add = graph.maker(gelu.input[0], "Add")
    require(graph.reader(add.output[0]) is gelu)
    bias = graph.bias_place(add)
    fused = graph.make("BiasGelu", [add.input[1 - bias], add.input[bias]], [gelu.output[0]], domain=DOMAIN)
    graph.put([fused], gelu, instead_of=[gelu, add])


# ---- attention ---------------------------------------------------------------------------------------------------


class _Heads(NamedTuple):
    """Queries, keys or values: some columns of a weighted value."""

    weighted: Weighted
    columns: slice
    num_heads: int


def _attention(graph: Graph, softmax: Any) -> None:
    """softmax(scale q k^T) v with weights of q, k, v that are constants, as MultiHeadAttention.

    A bias of the keys adds the same to all logits of a query, which softmax does not see; a bias of the values adds
    itself to the output, whose weights always sum to 1, so it joins the bias of the projection behind.
    """
    logits = graph.maker(softmax.input[0], "MatMul")
    mixed = graph.reader(softmax.output[0], "MatMul")
    require(mixed.input[0] == softmax.output[0])
    scale, queries = _scaled(graph, logits.input[0])
    keys = graph.maker(logits.input[1], order=(0, 1, 3, 2)).input[0]
    heads = [_heads(graph, name) for name in (queries, keys, mixed.input[1])]
    flat = graph.reader(graph.reader(mixed.output[0], order=_SPLIT_HEADS).output[0], "Reshape")
    names, nodes = [], []
    for kind, part in zip("qkv", heads, strict=True):
        weight = graph.add_constant(part.weighted.weight[:, part.columns], "weight")
        nodes.append(graph.make("MatMul", [part.weighted.source, weight]))
        bias = None if part.weighted.bias is None or kind == "k" else part.weighted.bias[part.columns]
        if bias is not None and not (kind == "v" and _join_projection(graph, flat.output[0], bias)):
            nodes.append(graph.make("Add", [nodes[-1].output[0], graph.add_constant(bias, "bias")]))
        names.append(nodes[-1].output[0])
    options = {"domain": DOMAIN, "num_heads": heads[0].num_heads, "scale": scale}
    nodes.append(graph.make("MultiHeadAttention", names, [flat.output[0]], **options))
    graph.put(nodes, flat, instead_of=[flat])
    graph.sweep()


def _join_projection(graph: Graph, name: str, bias: np.ndarray) -> bool:
    """Add what ``bias`` on the value ``name`` becomes behind the projection that reads it; whether there is one."""
    with contextlib.suppress(Unlike):
        product = graph.reader(name, "MatMul")
        require(product.input[0] == name)
        weight, add = graph.constant(product.input[1]), graph.reader(product.output[0], "Add")
        place = graph.bias_place(add)
        own = graph.constants[add.input[place]]
        joined = own.astype(np.float64) + bias.astype(np.float64) @ weight.astype(np.float64)
        add.input[place] = graph.add_constant(joined.astype(own.dtype), "bias")
        return True
    return False


def _scaled(graph: Graph, name: str) -> tuple[float, str]:
    """The factor and the value of a product with a number; 1 and the value itself if it is none."""
    node = graph.maker(name)
    value = graph.constants.get(node.input[1]) if node.op_type == "Mul" else None
    return (1.0, name) if value is None or value.size != 1 else (float(value.item()), node.input[0])


def _heads(graph: Graph, name: str) -> _Heads:
    """What (batch, heads, tokens, head_dim) was made of: weighted tokens, reshaped, turned, split by whole heads."""
    node, number, parts = graph.maker(name), 0, 1
    if node.op_type == "Split":
        require(attributes(node).get("axis", 0) == 1)
        number, parts, name = list(node.output).index(name), len(node.output), node.input[0]
    reshape = graph.maker(graph.maker(name, order=_SPLIT_HEADS).input[0], "Reshape")
    shape = graph.constant(reshape.input[1])
    require(len(shape) == 4)
    heads, dim = int(shape[2]), int(shape[3])
    weighted = graph.weighted(reshape.input[0])
    require(weighted.weight.shape[1] == heads * dim and heads % parts == 0)
    width = heads // parts * dim
    return _Heads(weighted, slice(number * width, (number + 1) * width), heads // parts)


# ---- norms -------------------------------------------------------------------------------------------------------


def _sum_before_norm(graph: Graph, norm: Any, ranks: dict[str, int]) -> None:
    """LayerNormalization of a residual sum as SkipLayerNormalization, which gives the sum as well; it is for
    (batch, tokens, channels)."""
    add = graph.maker(norm.input[0], "Add")
    require(len(norm.input) >= 3 and len(norm.output) == 1)
    require(ranks.get(add.output[0]) == 3 and attributes(norm).get("axis", -1) in (-1, 2))
    skip, branch = add.input
    require(skip not in graph.constants)
    if branch in graph.constants:  # learnt positions
        require(graph.constants[branch].ndim == 3)
        skip, branch = branch, skip
    biases = []
    with contextlib.suppress(Unlike):
        inner = graph.maker(branch, "Add")
        require(len(graph.readers(branch)) == 1)
        place = graph.bias_place(inner)
        branch, biases = inner.input[1 - place], [inner.input[place]]
    fused = graph.make(
        "SkipLayerNormalization",
        [branch, skip, norm.input[1], norm.input[2], *biases],
        [norm.output[0], "", "", add.output[0]],
        domain=DOMAIN,
        epsilon=attributes(norm).get("epsilon", 1e-5),
    )
    graph.put([fused], norm, instead_of=[norm, add])
    _order(graph)
    graph.sweep()


def _order(graph: Graph) -> None:
    """Put nodes in the order of computation."""
    known = {*graph.inputs, *graph.constants, ""}
    waiting, ordered = list(graph.nodes), []
    while waiting:
        ready = [node for node in waiting if all(name in known for name in node.input)]
        if not ready:
            raise RuntimeError("the rewritten graph has a circle")
        for node in ready:
            known.update(node.output)
        ordered += ready
        gone = {id(node) for node in ready}
        waiting = [node for node in waiting if id(node) not in gone]
    graph.nodes = ordered
