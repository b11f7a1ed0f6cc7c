"""Options of a detector that are keys of its task, and the image sizes that it has to take."""

from typing import Any

import numpy as np

from ...core.runtime.environment import program
from ...core.runtime.errors import UserError
from ...core.tasks.model_factory import model_options
from .data.transforms import build_evaluation_transform, build_window_plan, export_size
from .detector import Detector
from .evaluation.match_tables import MAX_DETECTIONS
from .settings import ONE_SIZE, OPTIONS, DetectionSettings
from .windows import ImagePart


def read_model_options(config: DetectionSettings, family: object) -> dict[str, Any]:
    """Return the model's options that are keys of this task; raise UserError if ``family`` lacks a requested one."""
    model = config.MODEL
    if not (isinstance(family, type) and issubclass(family, Detector)):
        raise UserError(
            f"MODEL.NAME {model.NAME} is not a detector: use one that '{program('inspect')} --list' names below "
            "TASK detection, such as detr_resnet50"
        )
    defaults = model_options(model.NAME).defaults
    options: dict[str, Any] = {}
    if "dropout" in defaults:
        options["dropout"] = model.DROPOUT  # even if the variant's is not 0
    requested = {option: model[option] for option in OPTIONS if model[option] is not None}
    for key, value in {**requested, **({"MASK_PADDING": True} if model.MASK_PADDING else {})}.items():
        if key.lower() not in defaults:
            raise UserError(f"MODEL.{key} {value}: {model.NAME} has no such option; remove MODEL.{key}")
        options[key.lower()] = value
    most = config.DETECTION.MAX_DETECTIONS or 0
    if most > MAX_DETECTIONS[-1] and "rules" in defaults:  # the model has to detect what an evaluation counts
        options["rules"] = {**(defaults["rules"] or {}), "detections": most}
    return options


def list_fixed_sizes(config: DetectionSettings) -> list[tuple[str, tuple[int, int]]]:
    """Return the image sizes (height, width) that are known before images are read, each with its key."""
    data = config.DATA
    squares = {"DATA.SHORTEST_SIDES": data.SHORTEST_SIDES, "DATA.BATCH_SIDES": data.BATCH_SIDES}
    squares = squares if data.RESIZE_TO_SQUARE and not config.EVAL else {}
    sizes = [(key, (side, side)) for key, sides in squares.items() for side in sides]
    if config.DETECTION.EVAL_BATCHING == ONE_SIZE:
        name = "DETECTION.EXPORT_SIZE" if config.DETECTION.EXPORT_SIZE else "DATA.EVAL_SHORTEST_SIDE"
        sizes.append((name, export_size(config)))
    return sizes


def require_evaluated_sizes(config: DetectionSettings, model: Detector, sizes: np.ndarray) -> None:
    """Check that the network takes images that keep their proportions in an evaluation.

    Args:
        sizes: height and width of the stored images, int64 (images, 2).

    Raises:
        UserError: a side is not a multiple of ``model.side_multiple`` after resizing.
    """
    multiple, batching = model.side_multiple, config.DETECTION.EVAL_BATCHING
    if batching == ONE_SIZE or multiple == 1:
        return
    transform, plan = build_evaluation_transform(config), build_window_plan(config)
    for stored in np.unique(sizes, axis=0).tolist():
        parts = plan.find_parts(stored) if plan else [ImagePart(0, 0, *stored)]
        for height, width in (transform.resized((part.height, part.width)) for part in parts):
            if height % multiple or width % multiple:
                raise UserError(
                    f"DETECTION.EVAL_BATCHING {batching}: {config.MODEL.NAME} takes images whose sides are multiples "
                    f"of {multiple}, and this keeps proportions: an image of {stored[0]} x {stored[1]} pixels would be "
                    f"evaluated with {height} x {width}; set it to {ONE_SIZE}"
                )
