"""Conversion of Paddle's inference models to ONNX, and computation of ONNX models on the CPU."""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ...core.launch import stale_resources
from ...core.runtime.errors import UserError
from ...core.runtime.files import library_errors_as_os_errors, os_errors_as_user_errors
from ...core.runtime.printing import captured_output
from .descriptions import format_about
from .files import ONNX, ONNX_WEIGHTS, PROPERTY
from .fusion import fuse
from .graph import fix_shapes, simplify
from .half import to_float16, value_types

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17  # the first with LayerNormalization
_PACKAGES = ("paddle2onnx", "onnx", "onnxruntime")
LARGEST_FILE = 2**31 - 2**20  # bytes of weights in an ONNX file; other parts of the file share its 2 GB
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


def require_packages() -> None:
    """Check that the packages for ONNX can be imported.

    Raises:
        UserError: a package is missing, or does not support this version of Paddle.
    """
    for name in _PACKAGES:
        try:
            with captured_output():
                importlib.import_module(name)
        except ImportError as error:
            raise UserError(
                f"export: ONNX needs {', '.join(_PACKAGES)}, and {name} cannot be imported ({error}): "
                "pip install '.[onnx]' in the folder of paddlevit_dist's setup.py"
            ) from error
        except ValueError as error:  # paddle2onnx raises it if Paddle is too old
            raise UserError(f"export: {name} does not support this Paddle: {first_line(error)}") from error


def to_onnx(
    prefix: Path,
    inputs: Callable[[int], dict[str, np.ndarray]],
    *,
    is_fused: bool,
    is_half: bool,
    names: Sequence[str],
    has_one_size: bool = True,
    largest_file: int = LARGEST_FILE,
) -> Any:
    """Convert Paddle's inference model ``prefix.*``.

    Args:
        prefix: common path of Paddle's files.
        inputs: batch size -> inputs by name.
        is_fused: use fused operators of onnxruntime.
        is_half: convert to float16, except the outputs.
        names: names of the outputs.
        has_one_size: whether only the batch is free.
        largest_file: bytes of weights that paddle2onnx can write.

    Raises:
        UserError: paddle2onnx cannot convert the model, or its weights do not fit into float16.
    """
    model = convert_program(prefix, prefix.with_name(f"{prefix.name}.pdiparams").stat().st_size > largest_file)
    rename_outputs(model, names)
    model = simplify(model)
    if has_one_size:
        model = fix_shapes(model, lambda probe, batch: run(probe, inputs(batch)))
    types = value_types(model)  # ONNX cannot infer types of onnxruntime's operators
    if is_fused:
        model = fuse(model)
    return to_float16(model, types) if is_half else model


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder for files of the conversion; a UserError names it if its file system takes no more of them."""
    with (
        stale_resources.temporary_folder("export") as folder,
        os_errors_as_user_errors(folder, " (TMPDIR names another folder)"),
        library_errors_as_os_errors(folder),
    ):
        yield folder


def run(model: "ModelProto", inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute all outputs of a model on the CPU, and return them by name.

    The inputs are arrays (batch, ...) by name; floats are converted to the input type of the model. Raises UserError:
    onnxruntime cannot load or compute the model.
    """
    with temporary_folder() as folder:
        file = folder / "model.onnx"
        write(model, file)
        return compute(file, inputs)


def compute(file: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute all outputs of the model in a file, as ``run``."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        expected = {value.name: _TYPES.get(value.type) for value in session.get_inputs()}
        names = [value.name for value in session.get_outputs()]
        feeds = {
            name: inputs[name] if dtype is None else inputs[name].astype(dtype) for name, dtype in expected.items()
        }
        return dict(zip(names, session.run(names, feeds)))
    except Exception as error:  # onnxruntime's exceptions have no common class
        reason = first_line(error)
        raise UserError(
            f"export: onnxruntime cannot compute the converted model: {reason}; try -format=paddle"
        ) from error


def write(model: "ModelProto", file: Path, largest_file: int = LARGEST_FILE) -> None:
    """Write an ONNX file; weights that exceed what one file holds are written to ``file.data``."""
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    if sum(len(weights.raw_data) for weights in model.graph.initializer) <= largest_file:
        file.write_bytes(model.SerializeToString())
        return
    location = f"{file.name}{ONNX_WEIGHTS.removeprefix(ONNX)}"
    onnx.save_model(model, str(file), save_as_external_data=True, location=location)
    load_external_data_for_model(model, str(file.parent))  # the writer has taken them out of the model


def describe(model: "ModelProto", about: dict[str, Any]) -> None:
    """Write the description into the model as well, as JSON under "about"."""
    from onnx import helper

    helper.set_model_props(model, {PROPERTY: format_about(about)})


def convert_program(prefix: Path, is_large: bool = False) -> Any:
    """Return the ONNX model of an exported program, or raise UserError.

    For weights that one file does not hold (``is_large``), paddle2onnx writes an empty file: they are added afterwards.
    """
    import onnx
    import paddle
    import paddle2onnx

    with temporary_folder() as folder:
        program, file = readable_program(prefix, folder), folder / "model.onnx"
        with captured_output() as output:
            try:
                paddle2onnx.export(
                    str(program),
                    "" if is_large else str(prefix.with_name(f"{prefix.name}.pdiparams")),
                    str(file),
                    opset_version=OPSET,
                    auto_upgrade_opset=False,
                    optimize_tool="None",  # its default would install packages
                    **({"enable_optimize": False, "enable_onnx_checker": False} if is_large else {}),
                )
            except (Exception, SystemExit) as error:  # it prints the reason and exits
                raise UserError(
                    f"export: paddle2onnx cannot convert this model: {explain_failure(output, error)}"
                ) from error
        model = onnx.load(str(file))
    if is_large:
        for value in paddle.jit.load(str(prefix)).state_dict().values():
            name = value.name.rpartition("_")[0]  # Paddle has added a number
            model.graph.initializer.append(onnx.numpy_helper.from_array(value.numpy(), name))
    return model


def readable_program(prefix: Path, folder: Path) -> Path:
    """Rewrite the 64-bit float attributes of Paddle 3.3, which paddle2onnx 2.1 misreads (Paddle2ONNX issue 1646)."""
    program = folder / "program.json"
    text = prefix.with_name(f"{prefix.name}.json").read_text(encoding="utf-8")
    program.write_text(text.replace('"0.a_f64"', '"0.a_f32"'), encoding="utf-8")
    return program


def rename_outputs(model: "ModelProto", names: Sequence[str]) -> None:
    """Name the batch dimension "batch", and the outputs ``names``."""
    graph = model.graph
    for output, name in zip(graph.output, names, strict=True):
        for node in graph.node:
            node.output[:] = [name if value == output.name else value for value in node.output]
            node.input[:] = [name if value == output.name else value for value in node.input]
        output.name = name
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"


def explain_failure(output: BinaryIO, error: BaseException) -> str:
    """Return the line of a converter's output that names the reason; if there is none, the error's first line."""
    output.seek(0)
    lines = [line.strip() for line in output.read().decode("utf-8", "replace").splitlines()]
    error_lines = [line for line in lines if "rror" in line or "support" in line or "ailed" in line]
    return error_lines[0][:300] if error_lines else first_line(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error that is not blank, else the name of its class."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
