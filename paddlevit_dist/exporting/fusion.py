"""A classifier's ONNX graph for onnxruntime: its own operators for attention, GELU and layer norms after additions.

What a fused operator replaces is mathematically the same; which sums are rounded in which order is not. The domain
"com.microsoft" is onnxruntime's: other runtimes do not know it, so the plain ONNX file stays the one for them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from . import patch_fusion as patches
from .graph import DOMAIN, Graph, Weighted, attributes, is_turned, matching, only_reader

_VERSION = 1


def fuse(model: Any) -> Any:
    """Rewrite a simplified model of fixed picture size for onnxruntime; ``model`` is changed. What has another form
    than the transformers of pictures have stays as it is."""
    from onnx import helper, shape_inference

    known = shape_inference.infer_shapes(model).graph.value_info
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in known}
    graph = Graph(model)
    _fuse_gelus(graph)
    patches.pad_with_tokens(graph)
    patches.multiply_first_patches(graph)
    _fuse_attention(graph)
    patches.multiply_patches(graph)
    patches.carry_bias_through_depthwise(graph)
    patches.push_slices(graph)
    _fuse_biases(graph)
    _fuse_sums_before_norms(graph, ranks)
    model = graph.finish()
    if not any(one.domain == DOMAIN for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(DOMAIN, _VERSION))
    return model


# ---- GELU --------------------------------------------------------------------------------------------------------


def _fuse_gelus(graph: Graph) -> None:
    """x * (erf(x / sqrt 2) + 1) * 0.5, in whatever order it is multiplied, as Gelu."""
    producers, readers = graph.producers(), graph.consumers()
    for erf in matching(graph, "Erf"):
        division = producers.get(erf.input[0])
        if (
            division is None
            or not _is_by(graph, division, "Div", 2**0.5)
            and not _is_by(graph, division, "Mul", 0.5**0.5)
        ):
            continue
        x = division.input[0]
        plus = only_reader(readers, erf.output[0])
        if plus is None or not _is_by(graph, plus, "Add", 1.0):
            continue
        last, nodes = plus, [division, erf, plus]
        factors = {x: 1, "half": 1}
        while factors:
            times = only_reader(readers, last.output[0])
            if times is None or times.op_type != "Mul":
                break
            other = next(name for name in times.input if name != last.output[0])
            value = graph.constant(other)
            key = "half" if value is not None and value.size == 1 and abs(float(value.item()) - 0.5) < 1e-6 else other
            if key not in factors:
                break
            del factors[key]
            last = times
            nodes.append(times)
        if factors:
            continue
        gelu = graph.make("Gelu", [x], [last.output[0]], domain=DOMAIN)
        graph.insert_before(division, [gelu])
        graph.remove(nodes)
        producers, readers = graph.producers(), graph.consumers()


def _is_by(graph: Graph, node: Any, kind: str, number: float) -> bool:
    """Whether ``node`` is this operation with this number."""
    if node.op_type != kind:
        return False
    value = graph.constant(node.input[1])
    return value is not None and value.size == 1 and abs(float(value.item()) - number) < 1e-6


# ---- attention ---------------------------------------------------------------------------------------------------


class _Heads(NamedTuple):
    """Queries, keys or values: some columns of a weighted value."""

    weighted: Weighted
    columns: slice
    num_heads: int
    tokens: np.ndarray  # the constant that the value was reshaped to


def _fuse_attention(graph: Graph) -> None:
    """softmax(scale q k^T) v with weights of q, k, v that are constants, as MultiHeadAttention.

    A bias of the keys adds the same to all logits of a query, which softmax does not see; a bias of the values adds
    itself to the output, whose weights always sum to 1, so it joins the bias of the projection behind.
    """
    for softmax in matching(graph, "Softmax"):
        producers, readers = graph.producers(), graph.consumers()
        logits, mixed = producers.get(softmax.input[0]), only_reader(readers, softmax.output[0])
        if logits is None or mixed is None or logits.op_type != "MatMul" or mixed.op_type != "MatMul":
            continue
        scale, queries = _scaled(graph, producers, logits.input[0])
        turned = producers.get(logits.input[1])
        if turned is None or not is_turned(turned, [0, 1, 3, 2]) or mixed.input[0] != softmax.output[0]:
            continue
        q, k, v = (_heads(graph, producers, name) for name in (queries, turned.input[0], mixed.input[1]))
        back = only_reader(readers, mixed.output[0])
        if q is None or k is None or v is None or back is None or not is_turned(back, [0, 2, 1, 3]):
            continue
        flat = only_reader(readers, back.output[0])
        if flat is None or flat.op_type != "Reshape":
            continue
        _replace_attention(graph, (q, k, v), scale, flat)


def _replace_attention(graph: Graph, heads: Sequence[_Heads], scale: float, flat: Any) -> None:
    names, nodes = [], []
    for number, part in enumerate(heads):
        weight = graph.add_constant(part.weighted.weight[:, part.columns], "weight")
        product = graph.make("MatMul", [part.weighted.source, weight])
        nodes.append(product)
        bias = None if part.weighted.bias is None else part.weighted.bias[part.columns]
        is_needed = bias is not None and number != 1
        if is_needed and number == 2:
            is_needed = not _join_projection(graph, flat.output[0], bias)
        if is_needed:
            nodes.append(graph.make("Add", [product.output[0], graph.add_constant(bias, "bias")]))
        names.append(nodes[-1].output[0])
    attention = graph.make(
        "MultiHeadAttention", names, [flat.output[0]], domain=DOMAIN, num_heads=heads[0].num_heads, scale=scale
    )
    graph.insert_before(flat, [*nodes, attention])
    graph.remove([flat])
    graph.sweep()


def _join_projection(graph: Graph, name: str, bias: np.ndarray) -> bool:
    """Add what ``bias`` on the value ``name`` becomes behind the projection that reads it; whether there is one."""
    readers = graph.consumers()
    product = only_reader(readers, name)
    if product is None or product.op_type != "MatMul" or product.input[0] != name:
        return False
    weight, add = graph.constant(product.input[1]), only_reader(readers, product.output[0])
    if weight is None or add is None or add.op_type != "Add":
        return False
    places = [number for number, one in enumerate(add.input) if one in graph.constants]
    if len(places) != 1 or graph.constants[add.input[places[0]]].ndim != 1:
        return False
    own = graph.constants[add.input[places[0]]]
    joined = own.astype(np.float64) + bias.astype(np.float64) @ weight.astype(np.float64)
    add.input[places[0]] = graph.add_constant(joined.astype(own.dtype), "bias")
    return True


def _scaled(graph: Graph, producers: dict[str, Any], name: str) -> tuple[float, str]:
    """The factor and the value of a product with a number; 1 and the value itself if it is none."""
    node = producers.get(name)
    value = None if node is None or node.op_type != "Mul" else graph.constant(node.input[1])
    return (1.0, name) if value is None or value.size != 1 else (float(value.item()), node.input[0])


def _heads(graph: Graph, producers: dict[str, Any], name: str) -> _Heads | None:
    """What (batch, heads, tokens, head_dim) was made of: weighted tokens, reshaped, turned, split by whole heads."""
    node, part = producers.get(name), (0, 1)
    if node is not None and node.op_type == "Split":
        if attributes(node).get("axis", 0) != 1:
            return None
        part = list(node.output).index(name), len(node.output)
        node = producers.get(node.input[0])
    if node is None or not is_turned(node, [0, 2, 1, 3]):
        return None
    reshape = producers.get(node.input[0])
    shape = None if reshape is None or reshape.op_type != "Reshape" else graph.constant(reshape.input[1])
    if shape is None or len(shape) != 4:
        return None
    weighted = graph.weighted(reshape.input[0], producers)
    heads, dim = int(shape[2]), int(shape[3])
    if weighted is None or weighted.weight.shape[1] != heads * dim or heads % part[1]:
        return None
    width = heads // part[1] * dim
    return _Heads(weighted, slice(part[0] * width, (part[0] + 1) * width), heads // part[1], shape)


# ---- sums, biases and norms --------------------------------------------------------------------------------------


def _fuse_biases(graph: Graph) -> None:
    """Gelu of a sum with a bias as BiasGelu."""
    for gelu in matching(graph, "Gelu"):
        producers, readers = graph.producers(), graph.consumers()
        add = producers.get(gelu.input[0])
        if add is None or add.op_type != "Add" or only_reader(readers, add.output[0]) is not gelu:
            continue
        bias = [name for name in add.input if name in graph.constants and graph.constants[name].ndim == 1]
        if len(bias) != 1:
            continue
        x = next(name for name in add.input if name != bias[0])
        graph.insert_before(gelu, [graph.make("BiasGelu", [x, bias[0]], [gelu.output[0]], domain=DOMAIN)])
        graph.remove([gelu, add])


def _fuse_sums_before_norms(graph: Graph, ranks: dict[str, int]) -> None:
    """LayerNormalization of a residual sum as SkipLayerNormalization, which gives the sum as well; it is for
    (batch, tokens, channels)."""
    for norm in matching(graph, "LayerNormalization"):
        producers = graph.producers()
        add = producers.get(norm.input[0])
        if add is None or add.op_type != "Add" or len(norm.input) < 3 or len(norm.output) != 1:
            continue
        if ranks.get(add.output[0]) != 3 or attributes(norm).get("axis", -1) not in (-1, 2):
            continue
        constant = [name for name in add.input if name in graph.constants]
        if constant and (graph.constants[constant[0]].ndim != 3 or add.input[0] in constant):
            continue
        skip, branch, bias = *add.input, ""
        if constant:  # learnt positions
            skip, branch = branch, skip
        inner = producers.get(branch)
        if inner is not None and inner.op_type == "Add" and len(graph.consumers()[branch]) == 1:
            constant = [name for name in inner.input if name in graph.constants and graph.constants[name].ndim == 1]
            if len(constant) == 1:
                bias = constant[0]
                branch = next(name for name in inner.input if name != bias)
        epsilon = attributes(norm).get("epsilon", 1e-5)
        fused = graph.make(
            "SkipLayerNormalization",
            [branch, skip, norm.input[1], norm.input[2], *([bias] if bias else [])],
            [norm.output[0], "", "", add.output[0]],
            domain=DOMAIN,
            epsilon=epsilon,
        )
        graph.insert_before(norm, [fused])
        graph.remove([norm, add])
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
