"""The input that weights of a run without labels expect, for the tasks that start from them; without Paddle."""

import os

from ...core.checkpoint.published import is_fetched
from ...core.registry.lookup import list_names
from ...core.registry.manifest import NO_LABELS
from ..models.pretrained_input import IMAGENET_MEAN, ExpectedInput

_READ = {"IMAGE_CHANNELS", "IMAGENET_MEAN", "IMAGENET_STD", "CROP_PCT", "INTERPOLATION", "IMAGE_SIZE", "CROP_MODE"}


def find_run_input(source: object, is_hub_asked: bool = True) -> ExpectedInput | None:
    """Return the input of the run without labels at ``source``, a folder or checkpoint; None for other weights.

    A recipe for published weights would prepare images as these expect, and not as the run has learned.
    """
    if not isinstance(source, str) or not (is_fetched(source) or os.path.exists(os.path.expanduser(source))):
        return None
    from ...core.checkpoint.model_record import read_stored_settings  # it needs NumPy

    stored = read_stored_settings(source, is_hub_asked)
    if stored is None or stored.get("TASK") not in list_names("task", NO_LABELS):
        return None
    data = stored.get("DATA") or {}
    if not _READ.issubset(data) or data["IMAGE_CHANNELS"] != len(IMAGENET_MEAN):
        return None
    return ExpectedInput.from_settings(data)
