"""What ``export -precision=int8`` needs; does not import Paddle."""

from ...core.runtime.errors import UserError
from ...core.runtime.printing import captured_output

CALIBRATION = 256  # training samples


def require_int8(kind: str, outputs: str) -> None:
    """Raise a UserError unless int8 fits format and outputs of an export, and onnxruntime can quantize here."""
    if kind != "onnx":
        raise UserError(
            f"export: -precision=int8 is for -format=onnx, and this is -format={kind}: int8 has standard operators, "
            "which onnxruntime fuses when it loads the file"
        )
    if outputs != "logits":
        raise UserError("export: -precision=int8 is scored by its logits: remove -outputs=probabilities")
    try:
        with captured_output():
            import onnxruntime.quantization  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"export: -precision=int8 needs onnxruntime's quantization, which cannot be imported ({error}): "
            "pip install '.[onnx]' in the folder of paddlevit_dist's setup.py"
        ) from error
