"""ONNX files that OpenVINO computes on the CPU, in float32; does not import Paddle."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import captured_output, shorten

_STATISTICS = "openvino_telemetry"  # sends an event to the makers of OpenVINO when that is imported
_OUTPUT_END = "/sink_port_0"  # what OpenVINO adds to the name of an output in the file
_NAMES = {"f16": "float16", "f32": "float32", "u8": "uint8", "i8": "int8", "i32": "int32", "i64": "int64"}
Slot = tuple[str, tuple[int | None, ...] | None, str]  # name, shape and type, as in ``TensorSpec``


class OpenVinoModel:
    """An ONNX file, loaded by OpenVINO.

    Args:
        file: the ONNX file.
        threads: number of threads that compute.

    Attributes:
        inputs, outputs: names in the file, shapes and types.
        version: of OpenVINO.

    Raises:
        UserError: OpenVINO cannot load the file, or is not installed.
    """

    def __init__(self, file: Path, threads: int) -> None:
        openvino = _import_openvino(file)
        self.version = openvino.__version__.partition("-")[0]
        # Without the hint it computes in bfloat16 on processors that can.
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        try:
            with captured_output():
                # Forks of this process compute with it, too; if one loads the file again, it may wait forever.
                self._compiled = openvino.Core().compile_model(str(file), "CPU", settings)
        except Exception as error:  # C++ errors of several classes
            raise UserError(f"{file}: OpenVINO {self.version} cannot load it: {find_reason(error)}") from error
        self.inputs, self.outputs = (
            [_describe(port) for port in ports] for ports in (self._compiled.inputs, self._compiled.outputs)
        )

    def run(self, inputs: Sequence[np.ndarray], numbers: Sequence[int]) -> list[np.ndarray]:
        """Compute the outputs of these numbers, from all inputs in order."""
        request = self._compiled.create_infer_request()  # it holds the outputs of a call, and threads may call at once
        request.infer(list(inputs))
        return [request.get_output_tensor(number).data for number in numbers]


def find_reason(error: BaseException) -> str:
    """Return the line of OpenVINO's message that says what is wrong: the last one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shorten((lines or [type(error).__name__])[-1], 300)


def _import_openvino(file: Path) -> Any:
    """Import OpenVINO without its statistics."""
    is_absent = _STATISTICS not in sys.modules
    if is_absent:
        sys.modules[_STATISTICS] = None  # type: ignore[assignment]
    try:
        with captured_output():
            return importlib.import_module("openvino")
    except ImportError as error:
        raise UserError(
            f"{file}: -runtime=openvino needs openvino, which cannot be imported ({error}): pip install '.[openvino]' "
            "in the folder of paddlevit_dist's setup.py"
        ) from error
    finally:
        if is_absent:
            del sys.modules[_STATISTICS]


def _describe(port: Any) -> Slot:
    name = port.get_node().get_friendly_name().removesuffix(_OUTPUT_END)  # a port may have several other names
    shape, kind = port.partial_shape, port.element_type.get_type_name()
    lengths = None if shape.rank.is_dynamic else tuple(x.get_length() if x.is_static else None for x in shape)
    return name, lengths, _NAMES.get(kind, kind)
