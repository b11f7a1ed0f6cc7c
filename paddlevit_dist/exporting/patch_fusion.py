"""What networks of pictures compute around their blocks, in forms that need fewer passes over memory: patches as
products, learnt tokens, depthwise convolutions between linear layers, and the tokens that nobody reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import DOMAIN, Graph, attributes, is_turned, matching, only_reader


def _product_of_patches(
    graph: Graph,
    pictures: str,
    split: Sequence[int],
    permutation: Sequence[int],
    joined: Sequence[int],
    matrix: np.ndarray,
    bias: Sequence[str],
) -> list[Any]:
    """Nodes that lay out patches of ``pictures`` as rows and multiply them with ``matrix`` (pixels of a patch, out).

    Args:
        split, permutation, joined: the shape in which patches have axes of their own, their order, the shape of rows.
        bias: the name of what is added; empty: nothing.
    """
    shapes = [graph.add_constant(np.array(shape), "shape") for shape in (split, joined)]
    nodes = [graph.make("Reshape", [pictures, shapes[0]])]
    nodes.append(graph.make("Transpose", [nodes[-1].output[0]], perm=list(permutation)))
    nodes.append(graph.make("Reshape", [nodes[-1].output[0], shapes[1]]))
    nodes.append(graph.make("MatMul", [nodes[-1].output[0], graph.add_constant(matrix, "weight")]))
    if bias:
        nodes.append(graph.make("Add", [nodes[-1].output[0], bias[0]]))
    return nodes


def multiply_patches(graph: Graph) -> None:
    """A convolution of patches that touch, on (batch, height, width, channels) that was turned for it and is turned
    back after it, as one product of patches."""
    for conv in matching(graph, "Conv"):
        producers, readers = graph.producers(), graph.consumers()
        before, after = producers.get(conv.input[0]), only_reader(readers, conv.output[0])
        if before is None or after is None or not is_turned(before, [0, 3, 1, 2]) or not is_turned(after, [0, 2, 3, 1]):
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
        nodes = _product_of_patches(
            graph,
            source.input[0],
            [-1, rows, side, columns, side * channels],
            [0, 1, 3, 2, 4],
            [-1, rows, columns, side * side * channels],
            weight.transpose(2, 3, 1, 0).reshape(side * side * channels, out),
            conv.input[2:],
        )
        nodes[-1].output[0] = after.output[0]
        graph.insert_before(conv, nodes)
        graph.remove([conv, after])
        graph.sweep()


def carry_bias_through_depthwise(graph: Graph) -> None:
    """The bias of a linear layer, seen by a depthwise convolution and a GELU behind it, as one bias of the GELU.

    A constant picture convolved with zeros around it is a constant map (height, width, channels): its values differ
    only at the border. So that map, with the convolution's own bias, is added to the convolution's output instead:
    one pass over memory that the GELU makes anyway.
    """
    for conv in matching(graph, "Conv"):
        producers, readers = graph.producers(), graph.consumers()
        before, after = producers.get(conv.input[0]), only_reader(readers, conv.output[0])
        if before is None or after is None or not is_turned(before, [0, 3, 1, 2]) or not is_turned(after, [0, 2, 3, 1]):
            continue
        source, flat = producers.get(before.input[0]), only_reader(readers, after.output[0])
        if source is None or flat is None or source.op_type != "Reshape" or flat.op_type != "Reshape":
            continue
        shape, gelu = graph.constant(source.input[1]), only_reader(readers, flat.output[0])
        weighted = graph.weighted(source.input[0], producers)
        is_single = only_reader(readers, source.input[0]) is source
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
        fused = graph.make("BiasGelu", [line.output[0], added], domain=DOMAIN)
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


def multiply_first_patches(graph: Graph) -> None:
    """The convolution of patches that touch, on (batch, channels, height, width), whose output becomes a sequence, as
    one product of patches."""
    for conv in matching(graph, "Conv"):
        readers = graph.consumers()
        flat = only_reader(readers, conv.output[0])
        turned = None if flat is None else only_reader(readers, flat.output[0])
        if conv.input[0] not in graph.inputs or turned is None or not is_turned(turned, [0, 2, 1]):
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
        nodes = _product_of_patches(
            graph,
            conv.input[0],
            [-1, channels, rows, side, columns, side],
            [0, 2, 4, 1, 3, 5],
            [-1, rows * columns, channels * side * side],
            weight.reshape(out, -1).T,
            conv.input[2:],
        )
        nodes[-1].output[0] = turned.output[0]
        graph.insert_before(conv, nodes)
        graph.remove([conv, flat, turned])


def pad_with_tokens(graph: Graph) -> None:
    """Learnt tokens in front of the patches, then a sum with constant positions: as zeros in front, and positions that
    the tokens have been added to. No shape has to be computed."""
    for concat in matching(graph, "Concat"):
        producers, readers = graph.producers(), graph.consumers()
        add, (*fronts, patches) = only_reader(readers, concat.output[0]), concat.input
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


def push_slices(graph: Graph) -> None:
    """Compute only the tokens that are read: a slice of tokens moves up in front of whatever treats tokens one by one,
    and, through an attention, to its queries."""
    is_moving = True
    while is_moving:
        _merge_slices(graph)
        producers, readers = graph.producers(), graph.consumers()
        is_moving = any(_push(graph, cut, producers, readers) for cut in matching(graph, "Slice"))


def _push(graph: Graph, cut: Any, producers: dict[str, Any], readers: dict[str, list[Any]]) -> bool:
    axes = graph.constant(cut.input[3]) if len(cut.input) > 3 else None
    source = producers.get(cut.input[0])
    if axes is None or axes.tolist() != [1] or source is None or source.op_type not in _ROW_WISE:
        return False
    if only_reader(readers, cut.input[0]) is not cut or len(source.output) != 1:
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
    known: dict[tuple[Any, ...], str] = {}
    for cut in matching(graph, "Slice"):
        if any(name not in graph.constants for name in cut.input[1:]):
            continue
        key = (cut.input[0], *(tuple(graph.constants[name].tolist()) for name in cut.input[1:]))
        if key in known and cut.output[0] not in graph.outputs:
            graph.remove([cut])
            graph.redirect(cut.output[0], known[key])
        else:
            known[key] = cut.output[0]
