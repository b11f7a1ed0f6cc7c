"""An ONNX graph in float16, with float32 where 11 bits are too few."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from .graph import DOMAIN, OnnxGraph

_FLOAT_INPUTS = {"Resize": (1, 2)}  # inputs of an operator that stay float32
_CHOOSES, _SAMPLES = "TopK", "GridSample"
_SHAPE = "Shape"  # takes any type
_BEGINS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "LayerNormalization", _SHAPE)


def to_float16(model: Any, types: Mapping[str, int]) -> Any:
    """Weights, input and all values as float16, and the outputs as float32. Sums in products, norms and softmax are
    float32 in onnxruntime's GPU kernels. A network that chooses its best objects computes boxes, scores and the points
    it looks at in float32, from the last product on: half of them would be pixels away, and of equal scores too many.
    ``model`` is changed.

    Args:
        types: of values that are not floating-point numbers, at least; see ``value_types``.
    Raises:
        UserError: a weight is too large for float16.
    """
    from onnx import TensorProto
    from onnx.helper import np_dtype_to_tensor_dtype

    graph = OnnxGraph(model)
    single = _in_float32(graph)
    whole = {name for node in single.values() for name in node.output}  # values that are float32
    made: dict[tuple[str, bool], str] = {}

    def as_wanted(name: str, is_single: bool, before: Any) -> str:
        """The value or constant ``name`` in the precision that the node ``before`` takes."""
        constant = graph.constants.get(name)
        kind = types.get(name, TensorProto.FLOAT) if constant is None else np_dtype_to_tensor_dtype(constant.dtype)
        if kind != TensorProto.FLOAT or is_single == (name in whole or constant is not None):
            return name
        if (name, is_single) not in made and constant is not None:
            made[name, is_single] = graph.add_constant(_half(name, constant), f"{name}.float16")
        elif (name, is_single) not in made:
            cast = graph.make("Cast", [name], to=TensorProto.FLOAT if is_single else TensorProto.FLOAT16)
            graph.put([cast], before)
            made[name, is_single] = cast.output[0]
        return made[name, is_single]

    for node in list(graph.nodes):
        is_single, kept = id(node) in single, _FLOAT_INPUTS.get(node.op_type, ())
        for number, name in enumerate(node.input):
            if name and node.op_type != _SHAPE:
                node.input[number] = as_wanted(name, is_single or number in kept, node)
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT and not is_single:
                attribute.i = TensorProto.FLOAT16
    for value in graph.model.graph.input:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for value in graph.model.graph.output:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and value.name not in whole:
            inner = f"{value.name}.float16"
            for node in graph.nodes:
                for names in (node.input, node.output):
                    names[:] = [inner if name == value.name else name for name in names]
            graph.nodes.append(graph.make("Cast", [inner], [value.name], to=TensorProto.FLOAT))
    return graph.finish()


def _half(name: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise UserError(
            f"export: the weight {name} reaches {np.abs(values).max():g}, which float16 cannot hold "
            "(65,504): leave out -precision=float16"
        )
    return half


def value_types(model: Any) -> dict[str, int]:
    """The element types of values that ONNX knows of."""
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(model).graph
    return {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}


def _in_float32(graph: OnnxGraph) -> dict[int, Any]:
    """The nodes that stay float32, by their ids: where points are sampled, and whatever leads from products to the
    places of points, to whole numbers, to what is chosen, and to the outputs of a network that chooses."""
    from onnx import TensorProto

    choosing = [node for node in graph.nodes if node.op_type == _CHOOSES]
    if not choosing:
        return {}
    sampling = [node for node in graph.nodes if node.op_type == _SAMPLES]
    casts = [node for node in graph.nodes if node.op_type == "Cast"]
    whole = [node.input[0] for node in casts if node.attribute[0].i in (TensorProto.INT32, TensorProto.INT64)]
    makers = {name: node for node in graph.nodes for name in node.output}
    wanted = [*graph.outputs, *whole, *(node.input[0] for node in choosing), *(node.input[1] for node in sampling)]
    found = {id(node): node for node in sampling}
    while wanted:
        node = makers.get(wanted.pop())
        if node is not None and id(node) not in found and node.op_type not in _BEGINS and node.domain != DOMAIN:
            found[id(node)] = node
            wanted += node.input
    return found
