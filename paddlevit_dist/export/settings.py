"""The keys of the evaluation of an exported model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from yacs.config import CfgNode

from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..settings.key import COMMAND_LINE, ConfigView, KeySetting, KeyTable
from ..settings.section import PathText, key, rows
from .files import find


class ExportSettings(RunSettings):
    EXPORTED: PathText | None = key(
        None,
        "with EVAL: an exported model that is scored in place of MODEL.NAME: an ONNX file, Paddle's inference files, "
        "or their folder; MODEL.PRETRAINED then names the weights that it is compared with",
    )
    EXPORTED_OUTPUT: str | None = key(None, "which output of EXPORTED is scored, if several fit")


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """The weights that the exported model was made from, in place of those that a training started with."""
    if values.EXPORTED is None or not values.EVAL:
        return []
    given = {name for name, setting in settings.items() if setting.source == COMMAND_LINE}
    exported, is_resumed = find(values.EXPORTED), "MODEL.RESUME" in given
    if not is_resumed:
        values.MODEL.RESUME = None
    if "MODEL.PRETRAINED" in given:
        return []
    values.MODEL.PRETRAINED, weights = None, exported.weights()
    if is_resumed:
        return []
    if weights is None or not Path(weights).exists():
        gone = "" if weights is None else f": {weights}, which it was made from, is not here"
        return [f"note: the exported model is compared with no trained weights{gone}; -pretrained=RUN names some"]
    values.MODEL.PRETRAINED = weights
    return [f"the exported model is compared with {weights}, of which it was made (-pretrained=none: with nothing)"]


def _check(given: ConfigView[ExportSettings]) -> list[str]:
    values = given.values
    if values.EXPORTED is None:
        return [] if values.EXPORTED_OUTPUT is None else [f"{given['EXPORTED_OUTPUT']}: no effect without EXPORTED"]
    if not values.EVAL:
        raise UserError(f"{given['EXPORTED']}: an exported model is not trained; evaluate it with -eval")
    if values.MODEL.RESUME is not None:
        raise UserError(f"{given['MODEL.RESUME']}: name the weights to compare {values.EXPORTED} with by -pretrained")
    if values.EVAL_AMP:
        raise UserError(
            f"{given['EVAL_AMP']}: {values.EXPORTED} computes in the precision that it was exported in; set it to false"
        )
    return []


TABLE = KeyTable(
    rows(ExportSettings),
    effects={"place": ("EXPORTED", "EXPORTED_OUTPUT")},
    resolve_defaults=_complete,
    check=_check,
    is_optional=True,
)
