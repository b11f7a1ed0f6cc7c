"""A float32 ONNX model in float16."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UserError

_FLOAT_INPUTS = {"Resize": (1, 2)}  # inputs of an operator that stay float32


def to_float16(model: Any) -> Any:
    """Weights, input and all values as float16, and the outputs as float32. Sums in products, norms and softmax are
    float32 in onnxruntime's GPU kernels. ``model`` is changed.

    Raises:
        UserError: a weight is too large for float16.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    kept = {node.input[n] for node in graph.node for n in _FLOAT_INPUTS.get(node.op_type, ()) if n < len(node.input)}
    for constant in graph.initializer:
        if constant.data_type != TensorProto.FLOAT or constant.name in kept:
            continue
        values = numpy_helper.to_array(constant)
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if not np.isfinite(half).all():
            raise UserError(
                f"export: the weight {constant.name} reaches {np.abs(values).max():g}, which float16 cannot hold "
                "(65,504): leave out -precision=float16"
            )
        constant.CopyFrom(numpy_helper.from_array(half, constant.name))
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.FLOAT16
    for value in graph.input:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for value in graph.output:
        inner = f"{value.name}.float16"
        for node in graph.node:
            node.output[:] = [inner if name == value.name else name for name in node.output]
            node.input[:] = [inner if name == value.name else name for name in node.input]
        graph.node.append(helper.make_node("Cast", [inner], [value.name], to=TensorProto.FLOAT))
    del graph.value_info[:]
    return model
