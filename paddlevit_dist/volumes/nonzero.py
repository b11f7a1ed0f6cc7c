"""Region of a volume that is not zero, if the surroundings of a head or body were set to 0.

The original, nnU-Net, crops volumes to the box around all voxels that are not zero in any channel. If the median share
of the boxes in the training volumes is below 75 %, z_score uses the nonzero voxels with holes filled, before
resampling, and all other voxels become 0. Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, and its
``cropping.py``, ``fingerprint_extractor.py``, ``default_experiment_planner.py`` and
``default_normalization_schemes.py``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ..core.checkpoint.finding import resolve
from ..core.checkpoint.records import read_about
from ..core.checkpoint.weight_files import evaluated_weights
from ..core.runtime.text_files import convert_facts
from .input_facts import VolumeInputFacts
from .reading import import_extra
from .settings import VolumeSettings

# regions of z_score's mean and deviation
MASK: str = "mask"
BOX: str = "box"
VOLUME: str = "volume"
_SMALL_SHARE = 0.75
_MOST_VOLUMES = 50  # read before training begins


def nonzero_mask(channels: Sequence[np.ndarray]) -> np.ndarray:
    """Return voxels that are not 0 in any channel, holes filled, bool (depth, height, width); all if all are 0."""
    mask = np.zeros(channels[0].shape, np.bool_)
    for channel in channels:
        mask |= np.asarray(channel) != 0
    if mask.all() or not mask.any():
        return np.ones_like(mask)
    return import_extra("scipy.ndimage", "VOLUMES.NORMALIZE z_score").binary_fill_holes(mask)


def compute_box(mask: np.ndarray) -> tuple[slice, ...]:
    """Compute the smallest box that contains the mask."""
    indices_by_axis = (np.flatnonzero(mask.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3))
    return tuple(slice(int(indices[0]), int(indices[-1]) + 1) for indices in indices_by_axis)


def compute_box_share(mask: np.ndarray) -> float:
    """Compute the share of voxels that are in the box around the mask."""
    return float(np.prod([side.stop - side.start for side in compute_box(mask)]) / mask.size)


def choose_evenly(number: int) -> list[int]:
    """Choose the indices of at most 50 of ``number`` volumes, evenly spread."""
    return np.unique(np.linspace(0, number - 1, min(number, _MOST_VOLUMES)).astype(int)).tolist()


def choose_region(shares: Iterable[float]) -> str:
    """Choose the region of z_score, ``MASK`` or ``BOX``, from the box shares of training volumes."""
    return MASK if float(np.median(list(shares))) < _SMALL_SHARE else BOX


def compute_box_shares(dataset: Any) -> list[float]:
    """Compute the box shares of at most 50 volumes of a dataset, evenly spread."""
    chosen = choose_evenly(len(dataset))
    progress = tqdm(chosen, desc="finding nonzero boxes", unit="volume", disable=None, leave=False)
    return [compute_box_share(nonzero_mask(dataset.stored(index))) for index in progress]


def set_region(task: Any, dataset: Any, kinds: Sequence[str], is_training: bool) -> list[str]:
    """Set the region of z_score for a task and its dataset, and return lines for the log.

    The region is taken from ``task.within`` or the checkpoint that the run resumes or evaluates; otherwise the dataset,
    if it supports regions, decides it. ``kinds`` are values of VOLUMES.NORMALIZE, one for each channel.
    """
    if "z_score" not in kinds or dataset.within is None:
        task.within = VOLUME
        return []
    reason = "setting of the weights"
    task.within = task.within or read_checkpoint_region(task.config, is_training)
    if task.within is None:
        shares = compute_box_shares(dataset)
        task.within = choose_region(shares)
        reason = f"boxes around nonzero voxels have a median of {100 * np.median(shares):.3g} % of a volume"
    dataset.within = regions_per_channel(task.within, kinds)
    return [f"z_score uses {_REGION_TEXTS[task.within]} ({reason})"]


def regions_per_channel(within: str, kinds: Sequence[str]) -> list[str]:
    """Return the region of each channel's mean and deviation."""
    return [within if kind == "z_score" else VOLUME for kind in kinds]


def read_checkpoint_region(config: VolumeSettings, is_training: bool) -> str | None:
    """Read the region from the checkpoint that is resumed or evaluated; return None if it is not recorded."""
    path, about = read_checkpoint_about(config, is_training)
    facts = convert_facts(about.get("input") or {}, VolumeInputFacts, path)
    return facts.z_score if "z_score" in facts.normalize else None


def read_checkpoint_about(config: VolumeSettings, is_training: bool) -> tuple[str, dict[str, Any]]:
    """Return the path and metadata of the checkpoint that is resumed or evaluated; metadata are empty without one."""
    model = config.MODEL
    source = model.RESUME if is_training or model.PRETRAINED is None else evaluated_weights(model.PRETRAINED)
    path = None if source is None else resolve(source, Path(config.SAVE) / "checkpoints", lambda line: None)
    return str(path), (None if path is None else read_about(str(path))) or {}


_REGION_TEXTS = {
    MASK: "the nonzero voxels with holes filled, before resampling; all other voxels become 0",
    BOX: "the box around nonzero voxels, before resampling",
    VOLUME: "the whole volume, after resampling",
}
