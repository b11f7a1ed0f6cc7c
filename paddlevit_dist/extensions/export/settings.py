"""Keys of the evaluation of an exported model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from yacs.config import CfgNode

from ...core.runtime.errors import UserError
from ...core.settings.every_run import RunSettings
from ...core.settings.key import Flag, PathText, key, rows
from ...core.settings.table import COMMAND_LINE, ConfigView, KeySetting, KeyTable

OPENVINO = "openvino"  # a value of EXPORTED_RUNTIME


class ExportSettings(RunSettings):
    """Keys of the evaluation of an exported model."""

    EXPORTED: PathText | None = key(
        None,
        "exported model that EVAL scores instead of MODEL.NAME: an ONNX file, Paddle's inference files, or their "
        "folder; MODEL.PRETRAINED then names the weights to compare it with",
        effect="place",
    )
    EXPORTED_OUTPUT: str | None = key(None, "name of the output of EXPORTED to score, if several fit", effect="place")
    EXPORTED_RUNTIME: Literal["onnxruntime", "openvino"] | None = key(
        None,
        "library that computes an ONNX file of EXPORTED; None: onnxruntime",
        effect="neutral",
        flag=Flag("runtime", "LIBRARY", "exported", 1, "of an ONNX file: onnxruntime or openvino"),
    )


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Set MODEL.PRETRAINED to the weights that the exported model was made from."""
    if values.EXPORTED is None or not values.EVAL:
        return []
    from .files import find_exported  # imports NumPy, which keys do without

    explicit = {name for name, setting in settings.items() if setting.source == COMMAND_LINE}
    exported, is_resumed = find_exported(values.EXPORTED), "MODEL.RESUME" in explicit
    if not is_resumed:
        values.MODEL.RESUME = None
    if "MODEL.PRETRAINED" in explicit:
        return []
    values.MODEL.PRETRAINED, weights = None, exported.weights()
    if is_resumed:
        return []
    if weights is None or not Path(weights).exists():
        missing = "" if weights is None else f": its weights {weights} do not exist"
        return [f"note: the exported model is not compared with trained weights{missing}; add -pretrained=RUN"]
    values.MODEL.PRETRAINED = weights
    return [f"the exported model is compared with its weights {weights} (add -pretrained=none for no comparison)"]


def _check(view: ConfigView[ExportSettings]) -> list[str]:
    values = view.values
    if values.EXPORTED_RUNTIME is not None:
        _require_onnx(view)
    if values.EXPORTED is None:
        return [] if values.EXPORTED_OUTPUT is None else [f"{view['EXPORTED_OUTPUT']}: no effect without EXPORTED"]
    if not values.EVAL:
        raise UserError(f"{view['EXPORTED']}: an exported model cannot be trained; add -eval to evaluate it")
    if values.MODEL.RESUME is not None:
        raise UserError(
            f"{view['MODEL.RESUME']}: use -pretrained=RUN to name the weights to compare {values.EXPORTED} with"
        )
    if values.EVAL_AMP:
        raise UserError(
            f"{view['EVAL_AMP']}: the precision of {values.EXPORTED} was fixed at export; set EVAL_AMP to false"
        )
    return []


def _require_onnx(view: ConfigView[ExportSettings]) -> None:
    """Raise a UserError unless EXPORTED is an ONNX file: Paddle alone computes weights and its inference models."""
    from .files import ONNX, find_exported  # imports NumPy, which keys do without

    source = view.values.EXPORTED
    if source is None or not find_exported(source).is_onnx:
        what = "no exported model is named" if source is None else f"Paddle computes {source}"
        raise UserError(f"{view['EXPORTED_RUNTIME']}: {what}: name a file MODEL{ONNX}, or remove it")


TABLE = KeyTable(rows(ExportSettings), resolve_defaults=_complete, check=_check, is_optional=True)
