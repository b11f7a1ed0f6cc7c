"""Computation of exported models: an ONNX file by onnxruntime, an inference model of Paddle by Paddle."""

import importlib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..launch import gpu
from ..runtime.errors import UserError
from ..runtime.printing import captured_output, shorten
from ..runtime.transfers import is_on_gpu, read, to_device
from .files import ExportedModel, description_in

_FLOATS = {"float": "float32", "float16": "float16", "float32": "float32"}
_GPU_PROVIDER, _CPU_PROVIDER = "CUDAExecutionProvider", "CPUExecutionProvider"


class TensorSpec(NamedTuple):
    """An input or output; a length that is not fixed is None in its shape, which is None itself where nothing is said.
    ``dtype`` is "float32", "float16", or what the file calls another, as "uint8"."""

    name: str
    shape: tuple[int | None, ...] | None
    dtype: str

    def __str__(self) -> str:
        lengths = "of any shape" if self.shape is None else shape_text(self.shape)
        return f"{shorten(self.name, 60)} {lengths} {self.dtype}"


def shape_text(shape: tuple[int | None, ...]) -> str:
    """``(batch, 3, any, any)``."""
    first = "batch" if shape and shape[0] is None else None
    return f"({', '.join(str(first if first and not n else 'any' if x is None else x) for n, x in enumerate(shape))})"


class ExportedFunction(NamedTuple):
    """An exported model as a function.

    Attributes:
        inputs, outputs: as the files name them.
        about: what ``export`` has written of it.
        computed_by: which library, and on what.
        note: a line about that, or "".
        run: inputs in their order, on the device, and the numbers of outputs -> these outputs, float32.
    """

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    about: dict[str, Any]
    computed_by: str
    note: str
    run: Callable[[Sequence[paddle.Tensor], Sequence[int]], list[paddle.Tensor]]


def load(model: ExportedModel) -> ExportedFunction:
    """
    Raises:
        UserError: the files are damaged, or a package is missing.
    """
    return _of_onnx(model) if model.is_onnx else _of_paddle(model)


def _of_onnx(model: ExportedModel) -> ExportedFunction:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UserError(
            f"{model.file}: an ONNX file is computed by onnxruntime, which cannot be imported ({error}): pip install "
            "onnxruntime, or onnxruntime-gpu on a machine with GPUs"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what it says is in its exceptions, too
    options.intra_op_num_threads = max(1, paddle.get_flags(["FLAGS_paddle_num_threads"])["FLAGS_paddle_num_threads"])
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers: list[Any] = [_CPU_PROVIDER]
    if is_on_gpu() and _GPU_PROVIDER in onnxruntime.get_available_providers():
        device = paddle.get_device().partition(":")[2]
        providers.insert(0, (_GPU_PROVIDER, {"device_id": device, "use_tf32": str(int(gpu.rounds_to_tf32()))}))
    try:
        with captured_output():
            session = onnxruntime.InferenceSession(str(model.file), options, providers=providers)
    except Exception as error:  # its own classes, without a common one of their own
        raise UserError(
            f"{model.file}: onnxruntime {onnxruntime.__version__} cannot load it: {reason(error)}"
        ) from error
    inputs, outputs = ([_onnx_slot(one) for one in slots] for slots in (session.get_inputs(), session.get_outputs()))

    def run(given: Sequence[paddle.Tensor], numbers: Sequence[int]) -> list[paddle.Tensor]:
        values = zip(inputs, read(*given))  # the session reads memory of the host: this waits for a GPU
        feeds = {slot.name: array.astype(slot.dtype) for slot, array in values}
        found = session.run([outputs[number].name for number in numbers], feeds)
        return [to_device(array.astype(np.float32)) for array in found]

    about = description_in(session.get_modelmeta().custom_metadata_map.get("about")) or model.about
    used = session.get_providers()[0]  # not those that were asked for: one that cannot start is left out in silence
    note = ""
    if is_on_gpu() and used != _GPU_PROVIDER:
        note = f"note: {model.file} is computed on the CPU: this onnxruntime has no {_GPU_PROVIDER} that starts here"
        note += " (pip install onnxruntime-gpu)"
    return ExportedFunction(inputs, outputs, about, f"onnxruntime {onnxruntime.__version__}, {used}", note, run)


def _onnx_slot(slot: Any) -> TensorSpec:
    shape = None if slot.shape is None else tuple(x if isinstance(x, int) and x > 0 else None for x in slot.shape)
    found = re.fullmatch(r"tensor\((\w+)\)", slot.type)
    name = found[1] if found else slot.type
    return TensorSpec(slot.name, shape, _FLOATS.get(name, name))


def _of_paddle(model: ExportedModel) -> ExportedFunction:
    try:
        with captured_output():
            layer = paddle.jit.load(model.prefix)
    except Exception as error:  # of C++, of several classes
        raise UserError(f"{model.file}: Paddle cannot load it: {reason(error)}") from error
    _require_whole(model.file, layer.state_dict())
    layer.eval()
    inputs, outputs = ([_paddle_slot(one) for one in specs] for specs in (layer._input_spec(), layer._output_spec()))
    names = model.about.get("outputs")  # which Paddle's files do not keep
    if isinstance(names, list) and len(names) == len(outputs):
        outputs = [slot._replace(name=str(name)) for slot, name in zip(outputs, names)]

    def run(given: Sequence[paddle.Tensor], numbers: Sequence[int]) -> list[paddle.Tensor]:
        found = layer(*(tensor.astype(slot.dtype) for slot, tensor in zip(inputs, given)))
        parts = found if isinstance(found, (list, tuple)) else [found]
        return [parts[number].astype("float32") for number in numbers]

    return ExportedFunction(inputs, outputs, model.about, f"Paddle's inference model on {paddle.get_device()}", "", run)


def _paddle_slot(spec: Any) -> TensorSpec:
    dtype = str(spec.dtype).rpartition(".")[2].lower().replace("fp", "float")
    return TensorSpec(spec.name, tuple(x if x > 0 else None for x in spec.shape), _FLOATS.get(dtype, dtype))


def _require_whole(file: Path, state: dict[str, paddle.Tensor]) -> None:
    """See that a file holds all of its parameters: of one that was cut off Paddle takes what is in memory behind it.

    Source: ``dense_tensor_serialize.cc`` of Paddle: 20 bytes of versions and lengths before each tensor, and a message
    of protocol buffers with its type, 2 bytes, and lengths.
    """
    expected = 0
    for tensor in state.values():
        lengths = sum(1 + max(1, math.ceil(length.bit_length() / 7)) for length in map(int, tensor.shape))
        expected += int(tensor.size) * tensor.element_size() + 22 + lengths
    there = file.stat().st_size
    if there < expected:
        raise UserError(f"{file}: damaged: it has {there:,} bytes, its parameters need {expected:,}; export it again")


def reason(error: BaseException) -> str:
    """The line of an error of C++ that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error:" in line or "rror]" in line or "[ONNXRuntimeError]" in line]
    return shorten((telling or lines or [type(error).__name__])[0], 300)
