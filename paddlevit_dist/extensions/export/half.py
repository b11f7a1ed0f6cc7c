"""Conversion of an ONNX graph to float16, with float32 where 11 bits are too few.

onnxruntime's conversion has a list of nodes that stay float32, too, but rounds what each of them computes to float16,
so that it selects other objects, and cuts a weight beyond float16 to 65,504 without a word.
"""

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.runtime.errors import UserError
from .graph import DOMAIN, OnnxGraph

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_FLOAT_INPUTS = {"Resize": (1, 2)}  # inputs of an operator that stay float32
_SELECTION, _SAMPLING = "TopK", "GridSample"
_SHAPE = "Shape"  # accepts any type
_LARGEST_SIZES = 1024  # bytes of a constant that shapes may depend on
_BEGINS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "LayerNormalization", _SHAPE)


def to_float16(model: "ModelProto", types: Mapping[str, int]) -> Any:
    """Convert weights, input and all values to float16; the outputs stay float32. The model is changed.

    Sums in products, norms and softmax are float32 in onnxruntime's GPU kernels. A network that selects its best
    objects computes boxes, scores and sampling points in float32, from the last product on: in float16 half of the
    boxes would be pixels away, and too many scores equal. ``types`` are the element types by name, at least of values
    that are not floating-point numbers; see ``value_types``. Raises UserError: a weight is too large for float16.
    """
    from onnx import TensorProto
    from onnx.helper import np_dtype_to_tensor_dtype

    graph = OnnxGraph(model)
    single = _find_float32_nodes(graph)
    whole = {output for op in single.values() for output in op.output}  # values that are float32
    converted: dict[tuple[str, bool], str] = {}

    def convert_value(name: str, is_single: bool, before: "NodeProto") -> str:
        """Convert the value or constant ``name`` to the precision of the node ``before``."""
        constant = graph.constants.get(name)
        kind = types.get(name, TensorProto.FLOAT) if constant is None else np_dtype_to_tensor_dtype(constant.dtype)
        if kind != TensorProto.FLOAT or is_single == (name in whole or constant is not None):
            return name
        if (name, is_single) not in converted and constant is not None:
            converted[name, is_single] = graph.add_constant(_half(name, constant), f"{name}.float16")
        elif (name, is_single) not in converted:
            cast = graph.make_node("Cast", [name], to=TensorProto.FLOAT if is_single else TensorProto.FLOAT16)
            graph.insert([cast], before)
            converted[name, is_single] = cast.output[0]
        return converted[name, is_single]

    for node in list(graph.nodes):
        is_single, float_inputs = id(node) in single, _FLOAT_INPUTS.get(node.op_type, ())
        for number, name in enumerate(node.input):
            if name and node.op_type != _SHAPE:
                node.input[number] = convert_value(name, is_single or number in float_inputs, node)
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT and not is_single:
                attribute.i = TensorProto.FLOAT16
    _convert_inputs_and_outputs(graph, whole)
    return graph.finish()


def _convert_inputs_and_outputs(graph: OnnxGraph, float32_values: Set[str]) -> None:
    """Make inputs float16, and append a conversion to float32 to each output that is now float16."""
    from onnx import TensorProto

    for value in graph.model.graph.input:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for value in graph.model.graph.output:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and value.name not in float32_values:
            inner = f"{value.name}.float16"
            for node in graph.nodes:
                for names in (node.input, node.output):
                    names[:] = [inner if each == value.name else each for each in names]
            graph.nodes.append(graph.make_node("Cast", [inner], [value.name], to=TensorProto.FLOAT))


def _half(name: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise UserError(
            f"export: the weight {name} reaches {np.abs(values).max():g}, which float16 cannot hold "
            "(65,504): remove -precision=float16"
        )
    return half


def value_types(model: "ModelProto") -> dict[str, int]:
    """Return the element types of the values whose type ONNX can infer."""
    from onnx import helper, shape_inference

    whole = model.graph
    sizes = [weights for weights in whole.initializer if len(weights.raw_data) <= _LARGEST_SIZES]
    others = [weights for weights in whole.initializer if len(weights.raw_data) > _LARGEST_SIZES]
    inputs = [*whole.input, *(helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in others)]
    graph = helper.make_graph(whole.node, "", inputs, whole.output, sizes)  # onnx takes up to 2 GB
    graph = shape_inference.infer_shapes(helper.make_model(graph, opset_imports=model.opset_import)).graph
    return {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}


def _find_float32_nodes(graph: OnnxGraph) -> dict[int, Any]:
    """Find the float32 nodes, by id, of a network that selects objects: from a product to points, integers, outputs."""
    if not any(op.op_type == _SELECTION for op in graph.nodes):
        return {}
    producers = {name: op for op in graph.nodes for name in op.output}
    float32_nodes = {id(op): op for op in graph.nodes if op.op_type == _SAMPLING}
    pending = [*graph.outputs, *(name for op in graph.nodes for name in _list_exact_inputs(op))]
    while pending:
        node = producers.get(pending.pop())
        if node is not None and id(node) not in float32_nodes and not _begins_float32(node):
            float32_nodes[id(node)] = node
            pending += node.input
    return float32_nodes


def _list_exact_inputs(node: "NodeProto") -> list[str]:
    """List the inputs of a node that have to be float32: what is selected or made an integer, and where is sampled."""
    from onnx import TensorProto

    is_integer = node.op_type == "Cast" and node.attribute[0].i in (TensorProto.INT32, TensorProto.INT64)
    if is_integer or node.op_type == _SELECTION:
        return [node.input[0]]
    return [node.input[1]] if node.op_type == _SAMPLING else []


def _begins_float32(node: "NodeProto") -> bool:
    """Return whether what a node computes is float32 only from then on: a product, whose sums are float32 anyway."""
    return node.op_type in _BEGINS or node.domain == DOMAIN
