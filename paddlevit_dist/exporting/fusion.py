"""A classifier's ONNX graph for onnxruntime: its own operators for attention, GELU and layer norms after additions.

What a fused operator replaces is mathematically the same; which sums are rounded in which order is not. The domain
"com.microsoft" is onnxruntime's: other runtimes do not know it, so the plain ONNX file stays the one for them.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .graph import Graph, Weighted, attributes, matching

_DOMAIN, _VERSION = "com.microsoft", 1


def fuse(model: Any, patches_as_product: bool = True) -> Any:
    """Rewrite a simplified model of fixed picture size for onnxruntime; ``model`` is changed."""
    from onnx import helper

    graph = Graph(model)
    _fuse_gelus(graph)
    _pad_with_tokens(graph)
    if patches_as_product:
        _replace_first_patches(graph)
    _fuse_attention(graph)
    _replace_patch_convolutions(graph)
    _carry_bias_through_depthwise(graph)
    _push_slices(graph)
    _fuse_biases(graph)
    _fuse_sums_before_norms(graph)
    model = graph.finish()
    if not any(one.domain == _DOMAIN for one in model.opset_import):
        model.opset_import.append(helper.make_opsetid(_DOMAIN, _VERSION))
    return model


# ---- GELU --------------------------------------------------------------------------------------------------------


def _fuse_gelus(graph: Graph) -> None:
    """x * (erf(x / sqrt 2) + 1) * 0.5, in whatever order it is multiplied, as Gelu."""
    producers, readers = graph.producers(), graph.consumers()
    for erf in matching(graph, "Erf"):
        division = producers.get(erf.input[0])
        if division is None or not _is_by(graph, division, "Div", 2**0.5) and not _is_by(graph, division, "Mul", 0.5**0.5):
            continue
        x = division.input[0]
        plus = _only(readers, erf.output[0])
        if plus is None or not _is_by(graph, plus, "Add", 1.0):
            continue
        last, nodes = plus, [division, erf, plus]
        factors = {x: 1, "half": 1}
        while factors:
            times = _only(readers, last.output[0])
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
        gelu = graph.make("Gelu", [x], [last.output[0]], domain=_DOMAIN)
        graph.insert_before(division, [gelu])
        graph.remove(nodes)
        producers, readers = graph.producers(), graph.consumers()


def _is_by(graph: Graph, node: Any, kind: str, number: float) -> bool:
    """Whether ``node`` is this operation with this number."""
    if node.op_type != kind:
        return False
    value = graph.constant(node.input[1])
    return value is not None and value.size == 1 and abs(float(value.item()) - number) < 1e-6


def _only(readers: Dict[str, List[Any]], name: str) -> Optional[Any]:
    """The node that reads a value, if there is just one and the graph does not give it away."""
    found = readers.get(name, [])
    return found[0] if len(found) == 1 else None


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
        logits, mixed = producers.get(softmax.input[0]), _only(readers, softmax.output[0])
        if logits is None or mixed is None or logits.op_type != "MatMul" or mixed.op_type != "MatMul":
            continue
        scale, queries = _scaled(graph, producers, logits.input[0])
        turned = producers.get(logits.input[1])
        if turned is None or not _is_turned(turned, [0, 1, 3, 2]) or mixed.input[0] != softmax.output[0]:
            continue
        q, k, v = (_heads(graph, producers, name) for name in (queries, turned.input[0], mixed.input[1]))
        back = _only(readers, mixed.output[0])
        if q is None or k is None or v is None or back is None or not _is_turned(back, [0, 2, 1, 3]):
            continue
        flat = _only(readers, back.output[0])
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
        "MultiHeadAttention", names, [flat.output[0]], domain=_DOMAIN, num_heads=heads[0].num_heads, scale=scale
    )
    graph.insert_before(flat, [*nodes, attention])
    graph.remove([flat])
    graph.sweep()


def _join_projection(graph: Graph, name: str, bias: np.ndarray) -> bool:
    """Add what ``bias`` on the value ``name`` becomes behind the projection that reads it; whether there is one."""
    readers = graph.consumers()
    product = _only(readers, name)
    if product is None or product.op_type != "MatMul" or product.input[0] != name:
        return False
    weight, add = graph.constant(product.input[1]), _only(readers, product.output[0])
    if weight is None or add is None or add.op_type != "Add":
        return False
    places = [number for number, one in enumerate(add.input) if one in graph.constants]
    if len(places) != 1 or graph.constants[add.input[places[0]]].ndim != 1:
        return False
    own = graph.constants[add.input[places[0]]]
    joined = own.astype(np.float64) + bias.astype(np.float64) @ weight.astype(np.float64)
    add.input[places[0]] = graph.add_constant(joined.astype(own.dtype), "bias")
    return True


def _scaled(graph: Graph, producers: Dict[str, Any], name: str) -> Tuple[float, str]:
    """The factor and the value of a product with a number; 1 and the value itself if it is none."""
    node = producers.get(name)
    value = None if node is None or node.op_type != "Mul" else graph.constant(node.input[1])
    return (1.0, name) if value is None or value.size != 1 else (float(value.item()), node.input[0])


def _is_turned(node: Any, order: List[int]) -> bool:
    return node.op_type == "Transpose" and list(attributes(node)["perm"]) == order


def _heads(graph: Graph, producers: Dict[str, Any], name: str) -> Optional[_Heads]:
    """What (batch, heads, tokens, head_dim) was made of: weighted tokens, reshaped, turned, and split by whole heads."""
    node, part = producers.get(name), (0, 1)
    if node is not None and node.op_type == "Split":
        if attributes(node).get("axis", 0) != 1:
            return None
        part = list(node.output).index(name), len(node.output)
        node = producers.get(node.input[0])
    if node is None or not _is_turned(node, [0, 2, 1, 3]):
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


# ---- convolutions ------------------------------------------------------------------------------------------------


def _replace_patch_convolutions(graph: Graph) -> None:
    """A convolution of patches that touch, on (batch, height, width, channels) that was turned for it and is turned
    back after it, as one product of patches."""
    for conv in matching(graph, "Conv"):
        producers, readers = graph.producers(), graph.consumers()
        before, after = producers.get(conv.input[0]), _only(readers, conv.output[0])
        if before is None or after is None or not _is_turned(before, [0, 3, 1, 2]) or not _is_turned(after, [0, 2, 3, 1]):
            continue
        source = producers.get(before.input[0])
        shape = None if source is None or source.op_type != "Reshape" else graph.constant(source.input[1])
        facts, weight = attributes(conv), graph.constants[conv.input[1]]
        out, channels, side, other = weight.shape
        if shape is None or side != other or list(facts["strides"]) != [side, side] or facts.get("group", 1) != 1:
            continue
        _, height, width, _ = (int(length) for length in shape)
        if side == 1 or any(facts["pads"]) or height % side or width % side:
            continue
        rows, columns = height // side, width // side
        split = graph.add_constant(np.array([-1, rows, side, columns, side * channels]), "shape")
        joined = graph.add_constant(np.array([-1, rows, columns, side * side * channels]), "shape")
        matrix = weight.transpose(2, 3, 1, 0).reshape(side * side * channels, out)
        nodes = [graph.make("Reshape", [source.input[0], split])]
        nodes.append(graph.make("Transpose", [nodes[-1].output[0]], perm=[0, 1, 3, 2, 4]))
        nodes.append(graph.make("Reshape", [nodes[-1].output[0], joined]))
        nodes.append(graph.make("MatMul", [nodes[-1].output[0], graph.add_constant(matrix, "weight")]))
        if len(conv.input) > 2:
            nodes.append(graph.make("Add", [nodes[-1].output[0], conv.input[2]]))
        nodes[-1].output[0] = after.output[0]
        graph.insert_before(conv, nodes)
        graph.remove([conv, after])
        graph.sweep()


def _carry_bias_through_depthwise(graph: Graph) -> None:
    """The bias of a linear layer, seen by a depthwise convolution and a GELU behind it, as one bias of the GELU.

    A constant picture convolved with zeros around it is a constant map (height, width, channels): its values differ
    only at the border. So that map, with the convolution's own bias, is added to the convolution's output instead:
    one pass over memory that the GELU makes anyway.
    """
    for conv in matching(graph, "Conv"):
        producers, readers = graph.producers(), graph.consumers()
        before, after = producers.get(conv.input[0]), _only(readers, conv.output[0])
        if before is None or after is None or not _is_turned(before, [0, 3, 1, 2]) or not _is_turned(after, [0, 2, 3, 1]):
            continue
        source, flat = producers.get(before.input[0]), _only(readers, after.output[0])
        if source is None or flat is None or source.op_type != "Reshape" or flat.op_type != "Reshape":
            continue
        shape, gelu = graph.constant(source.input[1]), _only(readers, flat.output[0])
        weighted = graph.weighted(source.input[0], producers)
        is_single = _only(readers, source.input[0]) is source
        if shape is None or weighted is None or weighted.bias is None or gelu is None or gelu.op_type != "Gelu":
            continue
        facts, weight = attributes(conv), graph.constants[conv.input[1]]
        is_depthwise = facts.get("group", 1) == weight.shape[0] == shape[3] and list(facts["strides"]) == [1, 1]
        if not is_single or not is_depthwise or list(facts["pads"]) != [weight.shape[2] // 2] * 4:
            continue
        own = graph.constants[conv.input[2]] if len(conv.input) > 2 else 0.0
        total = _map_of_constant(weight, weighted.bias, int(shape[1]), int(shape[2])) + own
        source.input[0] = weighted.product.output[0]
        del conv.input[2:]
        line = graph.make("Reshape", [after.output[0], graph.add_constant(np.array([-1, total.size]), "shape")])
        added = graph.add_constant(total.reshape(-1).astype(weight.dtype), "bias")
        fused = graph.make("BiasGelu", [line.output[0], added], domain=_DOMAIN)
        graph.insert_before(gelu, [line, fused])
        flat.input[0] = fused.output[0]
        graph.remove([flat])
        graph.insert_before(gelu, [flat])
        flat.output[0] = gelu.output[0]
        graph.remove([gelu])
        graph.sweep()


def _map_of_constant(weight: np.ndarray, bias: np.ndarray, height: int, width: int) -> np.ndarray:
    """A depthwise convolution of a picture that is ``bias`` everywhere: float64 (height, width, channels)."""
    channels, _, side, _ = weight.shape
    half = side // 2
    ones = np.pad(np.ones((height, width)), half)
    total = np.zeros((height, width, channels))
    for row in range(side):
        for column in range(side):
            inside = ones[row : row + height, column : column + width]
            total += inside[..., None] * weight[:, 0, row, column].astype(np.float64)
    return total * bias.astype(np.float64)


def _replace_first_patches(graph: Graph) -> None:
    """The convolution of patches that touch, on (batch, channels, height, width), whose output becomes a sequence, as
    one product of patches."""
    for conv in matching(graph, "Conv"):
        readers = graph.consumers()
        flat = _only(readers, conv.output[0])
        turned = None if flat is None else _only(readers, flat.output[0])
        if conv.input[0] not in graph.inputs or turned is None or not _is_turned(turned, [0, 2, 1]):
            continue
        facts, weight = attributes(conv), graph.constants[conv.input[1]]
        shape = graph.constant(flat.input[1]) if flat.op_type == "Reshape" else None
        out, channels, side, other = weight.shape
        if shape is None or side != other or list(facts["strides"]) != [side, side] or any(facts["pads"]):
            continue
        height, width = (one.dim_value for one in graph.model.graph.input[0].type.tensor_type.shape.dim[2:])
        if height % side or width % side or facts.get("group", 1) != 1:
            continue
        rows, columns = height // side, width // side
        split = graph.add_constant(np.array([-1, channels, rows, side, columns, side]), "shape")
        joined = graph.add_constant(np.array([-1, rows * columns, channels * side * side]), "shape")
        matrix = weight.reshape(out, -1).T
        nodes = [graph.make("Reshape", [conv.input[0], split])]
        nodes.append(graph.make("Transpose", [nodes[-1].output[0]], perm=[0, 2, 4, 1, 3, 5]))
        nodes.append(graph.make("Reshape", [nodes[-1].output[0], joined]))
        nodes.append(graph.make("MatMul", [nodes[-1].output[0], graph.add_constant(matrix, "weight")]))
        if len(conv.input) > 2:
            nodes.append(graph.make("Add", [nodes[-1].output[0], conv.input[2]]))
        nodes[-1].output[0] = turned.output[0]
        graph.insert_before(conv, nodes)
        graph.remove([conv, flat, turned])


def _pad_with_tokens(graph: Graph) -> None:
    """Learnt tokens in front of the patches, then a sum with constant positions: as zeros in front, and positions that
    the tokens have been added to. No shape has to be computed."""
    for concat in matching(graph, "Concat"):
        producers, readers = graph.producers(), graph.consumers()
        add, (*fronts, patches) = _only(readers, concat.output[0]), concat.input
        nodes = [producers.get(name) for name in fronts]
        if attributes(concat)["axis"] != 1 or add is None or add.op_type != "Add" or not fronts:
            continue
        if any(node is None or node.op_type != "Expand" or node.input[0] not in graph.constants for node in nodes):
            continue
        tokens = [graph.constants[node.input[0]] for node in nodes]
        positions = next((graph.constants[name] for name in add.input if name in graph.constants), None)
        if positions is None or positions.ndim != 3 or any(token.shape[:2] != (1, 1) for token in tokens):
            continue
        total = positions.copy()
        for number, token in enumerate(tokens):
            total[:, number] += token[:, 0]
        pads = graph.add_constant(np.array([0, len(tokens), 0, 0, 0, 0]), "pads")
        padded = graph.make("Pad", [patches, pads])
        graph.insert_before(concat, [padded])
        for number, name in enumerate([padded.output[0], graph.add_constant(total, "positions")]):
            add.input[number] = name
        graph.sweep()


# ---- first token only --------------------------------------------------------------------------------------------

_ROW_WISE = {"Add", "Mul", "Div", "Erf", "Gelu", "BiasGelu", "LayerNormalization", "MatMul", "MultiHeadAttention"}


def _push_slices(graph: Graph) -> None:
    """Compute only the tokens that are read: a slice of tokens moves up in front of whatever treats tokens one by one,
    and, through an attention, to its queries."""
    is_moving = True
    while is_moving:
        _merge_slices(graph)
        producers, readers = graph.producers(), graph.consumers()
        is_moving = any(_push(graph, cut, producers, readers) for cut in matching(graph, "Slice"))


def _push(graph: Graph, cut: Any, producers: Dict[str, Any], readers: Dict[str, List[Any]]) -> bool:
    axes = graph.constant(cut.input[3]) if len(cut.input) > 3 else None
    source = producers.get(cut.input[0])
    if axes is None or axes.tolist() != [1] or source is None or source.op_type not in _ROW_WISE:
        return False
    if _only(readers, cut.input[0]) is not cut or len(source.output) != 1:
        return False
    first_only = source.op_type in ("MatMul", "MultiHeadAttention", "LayerNormalization", "BiasGelu")
    places = [0] if first_only else [n for n, name in enumerate(source.input) if name not in graph.constants]
    if any(graph.constants[name].ndim > 1 for name in source.input if name in graph.constants and not first_only):
        return False  # it may differ between tokens
    if source.op_type == "MatMul" and source.input[1] not in graph.constants:
        return False
    above = [graph.make("Slice", [source.input[place], *cut.input[1:]]) for place in places]
    for place, one in zip(places, above):
        source.input[place] = one.output[0]
    graph.insert_before(source, above)
    graph.remove([cut])
    graph.redirect(cut.output[0], source.output[0])
    return True


def _merge_slices(graph: Graph) -> None:
    """Equal slices of the same value become one."""
    known: Dict[Tuple[Any, ...], str] = {}
    for cut in matching(graph, "Slice"):
        if any(name not in graph.constants for name in cut.input[1:]):
            continue
        key = (cut.input[0], *(tuple(graph.constants[name].tolist()) for name in cut.input[1:]))
        if key in known and cut.output[0] not in graph.outputs:
            graph.remove([cut])
            graph.redirect(cut.output[0], known[key])
        else:
            known[key] = cut.output[0]


# ---- sums, biases and norms --------------------------------------------------------------------------------------


def _fuse_biases(graph: Graph) -> None:
    """Gelu of a sum with a bias as BiasGelu."""
    for gelu in matching(graph, "Gelu"):
        producers, readers = graph.producers(), graph.consumers()
        add = producers.get(gelu.input[0])
        if add is None or add.op_type != "Add" or _only(readers, add.output[0]) is not gelu:
            continue
        bias = [name for name in add.input if name in graph.constants and graph.constants[name].ndim == 1]
        if len(bias) != 1:
            continue
        x = next(name for name in add.input if name != bias[0])
        graph.insert_before(gelu, [graph.make("BiasGelu", [x, bias[0]], [gelu.output[0]], domain=_DOMAIN)])
        graph.remove([gelu, add])


def _fuse_sums_before_norms(graph: Graph) -> None:
    """LayerNormalization of a residual sum as SkipLayerNormalization, which gives the sum as well."""
    for norm in matching(graph, "LayerNormalization"):
        producers = graph.producers()
        add = producers.get(norm.input[0])
        if add is None or add.op_type != "Add" or len(norm.input) < 3 or len(norm.output) != 1:
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
            domain=_DOMAIN,
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
