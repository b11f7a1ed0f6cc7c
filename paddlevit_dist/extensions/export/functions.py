"""Computation of exported models: ONNX files with onnxruntime or OpenVINO, Paddle's inference models with Paddle."""

import functools
import importlib
import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...core.launch import gpu
from ...core.runtime.errors import UserError
from ...core.runtime.printing import captured_output, shorten
from ...core.runtime.transfers import is_on_gpu, read, to_device
from .files import ExportedModel, is_quantized
from .openvino_model import OpenVinoModel
from .settings import OPENVINO

_FLOATS = {"float": "float32", "float16": "float16", "float32": "float32"}
_GPU_PROVIDER, _CPU_PROVIDER = "CUDAExecutionProvider", "CPUExecutionProvider"


class TensorSpec(NamedTuple):
    """Name, shape and type of an input or output."""

    name: str  # in the file
    shape: tuple[int | None, ...] | None  # a dimension of any length is None; None: the file does not specify it
    dtype: str  # "float32", "float16", or the file's name of another type, such as "uint8"

    def __str__(self) -> str:
        lengths = "of any shape" if self.shape is None else format_shape(self.shape)
        return f"{shorten(self.name, 60)} {lengths} {self.dtype}"


def format_shape(shape: tuple[int | None, ...]) -> str:
    """Format a shape, such as ``(batch, 3, any, any)``."""
    lengths = ["any" if length is None else str(length) for length in shape]
    if shape and shape[0] is None:
        lengths[0] = "batch"
    return f"({', '.join(lengths)})"


class ExportedFunction(NamedTuple):
    """An exported model as a function."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    about: dict[str, Any]  # the description that ``export`` wrote; empty for models of other programs
    computed_by: str  # library and device
    note: str  # a warning about the device or the description, or ""
    #: inputs in order, on the device, and indices of outputs -> these outputs, float32
    run: Callable[[Sequence[paddle.Tensor], Sequence[int]], list[paddle.Tensor]]
    is_quantized: bool = False  # it computes with integers


def load(model: ExportedModel, runtime: str | None = None) -> ExportedFunction:
    """Load an exported model as a function.

    ``runtime`` computes an ONNX file: "openvino", or else onnxruntime. Raises a UserError if files are damaged or a
    package is missing.
    """
    if not model.is_onnx:
        return _load_paddle(model)
    return _load_openvino(model) if runtime == OPENVINO else _load_onnx(model)


def _load_openvino(model: ExportedModel) -> ExportedFunction:
    loaded = OpenVinoModel(model.file, _count_threads())
    inputs, outputs = ([TensorSpec(*slot) for slot in slots] for slots in (loaded.inputs, loaded.outputs))

    def run(tensors: Sequence[paddle.Tensor], numbers: Sequence[int]) -> list[paddle.Tensor]:
        arrays = [array.astype(slot.dtype) for slot, array in zip(inputs, read(*tensors))]
        return [to_device(array.astype(np.float32)) for array in loaded.run(arrays, numbers)]

    notes = [model.note] if model.note else []
    if is_on_gpu():
        notes.append(f"note: {model.file} runs on the CPU: here OpenVINO computes on nothing else")
    computed_by = f"OpenVINO {loaded.version}, CPU"
    return ExportedFunction(inputs, outputs, model.about, computed_by, "; ".join(notes), run, is_quantized(model.file))


def _count_threads() -> int:
    """Return how many threads Paddle computes with in this process."""
    return max(1, paddle.get_flags(["FLAGS_paddle_num_threads"])["FLAGS_paddle_num_threads"])


def _load_onnx(model: ExportedModel) -> ExportedFunction:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise UserError(
            f"{model.file}: ONNX files need onnxruntime, which cannot be imported ({error}): pip install onnxruntime, "
            "or onnxruntime-gpu on a machine with GPUs"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its exceptions contain the messages
    options.intra_op_num_threads = _count_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    providers: list[Any] = [_CPU_PROVIDER]
    if is_on_gpu() and _GPU_PROVIDER in onnxruntime.get_available_providers():
        device = paddle.get_device().partition(":")[2]
        providers.insert(0, (_GPU_PROVIDER, {"device_id": device, "use_tf32": str(int(gpu.rounds_to_tf32()))}))

    @functools.cache
    def open_session(process: int) -> Any:
        """Load the model in a process; a fork has none of the threads of its parent's, and would wait for them."""
        try:
            with captured_output():
                return onnxruntime.InferenceSession(str(model.file), options, providers=providers)
        except Exception as error:  # onnxruntime's exceptions have no common class
            raise UserError(
                f"{model.file}: onnxruntime {onnxruntime.__version__} cannot load it: {find_reason(error)}"
            ) from error

    session = open_session(os.getpid())
    inputs, outputs = ([_onnx_spec(slot) for slot in slots] for slots in (session.get_inputs(), session.get_outputs()))

    def run(tensors: Sequence[paddle.Tensor], numbers: Sequence[int]) -> list[paddle.Tensor]:
        values = zip(inputs, read(*tensors))  # the session reads host memory: waits for the GPU
        feeds = {slot.name: array.astype(slot.dtype) for slot, array in values}
        here = open_session(os.getpid())
        try:
            arrays = here.run([outputs[number].name for number in numbers], feeds)
        except Exception as error:  # onnxruntime's exceptions have no common class
            sizes = ", ".join(" x ".join(map(str, array.shape)) for array in feeds.values())
            raise UserError(
                f"{model.file}: onnxruntime cannot compute an input of {sizes}: {find_reason(error)}; the smallest "
                "images may be too small for this network: enlarge them"
            ) from error
        return [to_device(array.astype(np.float32)) for array in arrays]

    used = session.get_providers()[0]  # onnxruntime silently skips a requested provider that cannot start
    notes = [model.note] if model.note else []
    if is_on_gpu() and used != _GPU_PROVIDER:
        note = f"note: {model.file} runs on the CPU: {_GPU_PROVIDER} of onnxruntime cannot start here"
        notes.append(f"{note} (pip install onnxruntime-gpu)")
    computed_by = f"onnxruntime {onnxruntime.__version__}, {used}"
    return ExportedFunction(inputs, outputs, model.about, computed_by, "; ".join(notes), run, is_quantized(model.file))


def _onnx_spec(slot: Any) -> TensorSpec:
    shape = None if slot.shape is None else tuple(x if isinstance(x, int) and x > 0 else None for x in slot.shape)
    match = re.fullmatch(r"tensor\((\w+)\)", slot.type)
    name = match[1] if match else slot.type
    return TensorSpec(slot.name, shape, _FLOATS.get(name, name))


def _load_paddle(model: ExportedModel) -> ExportedFunction:
    @functools.cache
    def open_layer(process: int) -> Any:
        """Load the model in a process; a fork has none of the threads of its parent's, and would wait for them."""
        try:
            with captured_output():
                layer = paddle.jit.load(model.prefix)
        except Exception as error:  # C++ errors of several classes
            raise UserError(f"{model.file}: Paddle cannot load it: {find_reason(error)}") from error
        check_size(model.file, layer.state_dict())
        layer.eval()
        return layer

    layer = open_layer(os.getpid())
    inputs, outputs = ([_paddle_spec(spec) for spec in specs] for specs in (layer._input_spec(), layer._output_spec()))
    names = model.about.get("outputs")  # Paddle's files do not store output names
    if isinstance(names, list) and len(names) == len(outputs):
        outputs = [slot._replace(name=str(name)) for slot, name in zip(outputs, names)]

    def run(tensors: Sequence[paddle.Tensor], numbers: Sequence[int]) -> list[paddle.Tensor]:
        result = open_layer(os.getpid())(*(tensor.astype(slot.dtype) for slot, tensor in zip(inputs, tensors)))
        parts = result if isinstance(result, (list, tuple)) else [result]
        return [parts[number].astype("float32") for number in numbers]

    return ExportedFunction(inputs, outputs, model.about, f"Paddle's inference model on {paddle.get_device()}", "", run)


def _paddle_spec(spec: Any) -> TensorSpec:
    dtype = str(spec.dtype).rpartition(".")[2].lower().replace("fp", "float")
    return TensorSpec(spec.name, tuple(x if x > 0 else None for x in spec.shape), _FLOATS.get(dtype, dtype))


def check_size(file: Path, state: dict[str, paddle.Tensor]) -> None:
    """Check that a file contains all parameters: Paddle reads past the end of a truncated file.

    Source: ``dense_tensor_serialize.cc`` of Paddle: each tensor has 20 bytes of versions and lengths, and a protocol
    buffer message with its type, 2 bytes, and lengths.
    """
    expected = 0
    for tensor in state.values():
        lengths = sum(1 + max(1, math.ceil(length.bit_length() / 7)) for length in map(int, tensor.shape))
        expected += int(tensor.size) * tensor.element_size() + 22 + lengths
    size = file.stat().st_size
    if size < expected:
        raise UserError(f"{file}: damaged: it has {size:,} bytes, its parameters need {expected:,}; export it again")


def find_reason(error: BaseException) -> str:
    """Return the line of a C++ error message that names the fault."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    error_lines = [line for line in lines if "Error:" in line or "rror]" in line or "[ONNXRuntimeError]" in line]
    return shorten((error_lines or lines or [type(error).__name__])[0], 300)
