"""What networks of pictures compute around their blocks, in forms that need fewer passes over memory: patches as
products, learnt tokens, depthwise convolutions between linear layers, and the tokens that nobody reads. Each is a rule
of ``graph.Graph``."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import DOMAIN, Graph, attributes, require

_CHANNELS_FIRST, _CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)  # of (batch, height, width, channels), and back


def _patches(graph: Graph, conv: Any, height: int, width: int) -> tuple[np.ndarray, int, int, int]:
    """Of a convolution of square patches that touch: its weight (out, channels, side, side), the patches' rows and
    columns, and their side."""
    facts, weight = attributes(conv), graph.constant(conv.input[1])
    require(weight.ndim == 4)
    side = weight.shape[2]
    require(side == weight.shape[3] > 1 and list(facts["strides"]) == [side, side] and not any(facts["pads"]))
    require(facts.get("group", 1) == 1 and height % side == 0 and width % side == 0)
    return weight, height // side, width // side, side


def _put_product(
    graph: Graph,
    conv: Any,
    pictures: str,
    split: Sequence[int],
    permutation: Sequence[int],
    joined: Sequence[int],
    matrix: np.ndarray,
    instead_of: Sequence[Any],
) -> None:
    """Lay out patches of ``pictures`` as rows and multiply them with ``matrix`` (pixels of a patch, out).

    Args:
        conv: what they went through, with its bias.
        split, permutation, joined: the shape in which patches have axes of their own, their order, the shape of rows.
        instead_of: nodes, the last of which gave the result.
    """
    shapes = [graph.add_constant(np.array(shape), "shape") for shape in (split, joined)]
    nodes = [graph.make("Reshape", [pictures, shapes[0]])]
    nodes.append(graph.make("Transpose", [nodes[-1].output[0]], perm=list(permutation)))
    nodes.append(graph.make("Reshape", [nodes[-1].output[0], shapes[1]]))
    nodes.append(graph.make("MatMul", [nodes[-1].output[0], graph.add_constant(matrix, "weight")]))
    if len(conv.input) > 2:
        nodes.append(graph.make("Add", [nodes[-1].output[0], conv.input[2]]))
    nodes[-1].output[0] = instead_of[-1].output[0]
    graph.put(nodes, conv, instead_of)
    graph.sweep()


def multiply_patches(graph: Graph, conv: Any) -> None:
    """A convolution of patches that touch, on (batch, height, width, channels) that was turned for it and is turned
    back after it, as one product of patches."""
    before = graph.maker(conv.input[0], order=_CHANNELS_FIRST)
    after = graph.reader(conv.output[0], order=_CHANNELS_LAST)
    source = graph.maker(before.input[0], "Reshape")
    _, height, width, _ = (int(length) for length in graph.constant(source.input[1]))
    weight, rows, columns, side = _patches(graph, conv, height, width)
    out, channels = weight.shape[:2]
    _put_product(
        graph,
        conv,
        source.input[0],
        [-1, rows, side, columns, side * channels],
        [0, 1, 3, 2, 4],
        [-1, rows, columns, side * side * channels],
        weight.transpose(2, 3, 1, 0).reshape(side * side * channels, out),
        [conv, after],
    )


def multiply_first_patches(graph: Graph, conv: Any) -> None:
    """The convolution of patches that touch, on (batch, channels, height, width), whose output becomes a sequence, as
    one product of patches."""
    require(conv.input[0] in graph.inputs)
    flat = graph.reader(conv.output[0], "Reshape")
    graph.constant(flat.input[1])
    turned = graph.reader(flat.output[0], order=(0, 2, 1))
    lengths = [one.dim_value for one in graph.model.graph.input[0].type.tensor_type.shape.dim[2:]]
    require(len(lengths) == 2)
    weight, rows, columns, side = _patches(graph, conv, *lengths)
    out, channels = weight.shape[:2]
    _put_product(
        graph,
        conv,
        conv.input[0],
        [-1, channels, rows, side, columns, side],
        [0, 2, 4, 1, 3, 5],
        [-1, rows * columns, channels * side * side],
        weight.reshape(out, -1).T,
        [conv, flat, turned],
    )


def carry_bias_through_depthwise(graph: Graph, conv: Any) -> None:
    """The bias of a linear layer, seen by a depthwise convolution and a GELU behind it, as one bias of the GELU.

    A constant picture convolved with zeros around it is a constant map (height, width, channels): its values differ
    only at the border. So that map, with the convolution's own bias, is added to the convolution's output instead:
    one pass over memory that the GELU makes anyway.
    """
    before = graph.maker(conv.input[0], order=_CHANNELS_FIRST)
    after = graph.reader(conv.output[0], order=_CHANNELS_LAST)
    source, flat = graph.maker(before.input[0], "Reshape"), graph.reader(after.output[0], "Reshape")
    require(graph.reader(source.input[0]) is source)
    shape, gelu = graph.constant(source.input[1]), graph.reader(flat.output[0], "Gelu")
    weighted = graph.weighted(source.input[0])
    facts, weight = attributes(conv), graph.constant(conv.input[1])
    require(facts.get("group", 1) == weight.shape[0] == shape[3] and list(facts["strides"]) == [1, 1])
    require(weighted.bias is not None and list(facts["pads"]) == [weight.shape[2] // 2] * 4)
    own = graph.constants[conv.input[2]] if len(conv.input) > 2 else 0.0
    total = _map_of_constant(weight, weighted.bias, int(shape[1]), int(shape[2])) + own
    source.input[0] = weighted.product.output[0]
    del conv.input[2:]
    line = graph.make("Reshape", [after.output[0], graph.add_constant(np.array([-1, total.size]), "shape")])
    added = graph.add_constant(total.reshape(-1).astype(weight.dtype), "bias")
    fused = graph.make("BiasGelu", [line.output[0], added], domain=DOMAIN)
    back = graph.make("Reshape", [fused.output[0], flat.input[1]], [gelu.output[0]])
    graph.put([line, fused, back], gelu, instead_of=[flat, gelu])
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


def pad_with_tokens(graph: Graph, concat: Any) -> None:
    """Learnt tokens in front of the patches, then a sum with constant positions: as zeros in front, and positions that
    the tokens have been added to. No shape has to be computed."""
    add, (*fronts, patches) = graph.reader(concat.output[0], "Add"), concat.input
    require(attributes(concat)["axis"] == 1 and len(fronts) > 0)
    tokens = [graph.constant(graph.maker(name, "Expand").input[0]) for name in fronts]
    positions = [graph.constants[name] for name in add.input if name in graph.constants]
    require(len(positions) > 0 and positions[0].ndim == 3 and all(token.shape[:2] == (1, 1) for token in tokens))
    total = positions[0].copy()
    for number, token in enumerate(tokens):
        total[:, number] += token[:, 0]
    pads = graph.add_constant(np.array([0, len(tokens), 0, 0, 0, 0]), "pads")
    padded = graph.make("Pad", [patches, pads])
    graph.put([padded], concat)
    add.input[:] = [padded.output[0], graph.add_constant(total, "positions")]
    graph.sweep()


# ---- first token only --------------------------------------------------------------------------------------------

_WITH_CONSTANTS = ("MatMul", "MultiHeadAttention", "LayerNormalization", "BiasGelu")  # the first input has tokens
_OF_VALUES = ("Add", "Mul", "Div", "Erf", "Gelu")


def push_slices(graph: Graph) -> None:
    """Compute only the tokens that are read: a slice of tokens moves up in front of whatever treats tokens one by one,
    and, through an attention, to its queries."""
    _merge_slices(graph)
    while graph.apply("Slice", _push):
        _merge_slices(graph)


def _push(graph: Graph, cut: Any) -> None:
    require(len(cut.input) > 3 and graph.constant(cut.input[3]).tolist() == [1])
    source = graph.maker(cut.input[0], *_WITH_CONSTANTS, *_OF_VALUES)
    require(graph.reader(cut.input[0]) is cut and len(source.output) == 1)
    if source.op_type in _WITH_CONSTANTS:
        places = [0]
        require(source.op_type != "MatMul" or source.input[1] in graph.constants)
    else:
        places = [n for n, name in enumerate(source.input) if name not in graph.constants]
        others = [graph.constants[name] for name in source.input if name in graph.constants]
        require(all(constant.ndim <= 1 for constant in others))  # others may differ between tokens
    above = [graph.make("Slice", [source.input[place], *cut.input[1:]]) for place in places]
    for place, one in zip(places, above, strict=True):
        source.input[place] = one.output[0]
    graph.put(above, source, instead_of=[cut])
    graph.redirect(cut.output[0], source.output[0])


def _merge_slices(graph: Graph) -> None:
    """Equal slices of the same value become one."""
    known: dict[tuple[Any, ...], str] = {}

    def merge(graph: Graph, cut: Any) -> None:
        key = (cut.input[0], *(tuple(graph.constant(name).tolist()) for name in cut.input[1:]))
        if key in known and cut.output[0] not in graph.outputs:
            graph.put([], cut, instead_of=[cut])
            graph.redirect(cut.output[0], known[key])
        else:
            known[key] = cut.output[0]

    graph.apply("Slice", merge)
