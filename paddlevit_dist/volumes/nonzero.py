"""The part of a volume that is not zero, where around a head or a body all was set to 0: as nnU-Net crops to it, and
normalizes within it.

Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, and its ``cropping.py``, ``fingerprint_extractor.py``,
``default_experiment_planner.py`` and ``default_normalization_schemes.py``: volumes are cropped to the box around what
is not zero in any channel, and where the median of the boxes' shares of the training volumes is below 75 %, z_score is
of the voxels within that, whose holes are filled, before a volume is resampled; all others become 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ..checkpoint.content import read_about
from ..checkpoint.finding import resolve
from ..checkpoint.weights import evaluated_weights
from .reading import library
from .settings import VolumeSettings

MASK, BOX, VOLUME = "mask", "box", "volume"  # what z_score's mean and deviation are of
_SMALL_SHARE = 0.75
_MOST_VOLUMES = 50  # that are read before a training begins


def nonzero_mask(channels: Sequence[np.ndarray]) -> np.ndarray:
    """bool (depth, height, width): what is not zero in one of the channels, without holes; everything where nothing
    is."""
    mask = np.zeros(channels[0].shape, np.bool_)
    for one in channels:
        mask |= np.asarray(one) != 0
    if mask.all() or not mask.any():
        return np.ones_like(mask)
    return library("scipy.ndimage", "VOLUMES.NORMALIZE z_score").binary_fill_holes(mask)


def compute_box(mask: np.ndarray) -> tuple[slice, ...]:
    """The smallest box that holds the mask."""
    along = (np.flatnonzero(mask.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3))
    return tuple(slice(int(places[0]), int(places[-1]) + 1) for places in along)


def compute_share(mask: np.ndarray) -> float:
    """Of all voxels, those in the box."""
    return float(np.prod([own.stop - own.start for own in compute_box(mask)]) / mask.size)


def evenly(number: int) -> list[int]:
    """At most 50 of so many volumes."""
    return np.unique(np.linspace(0, number - 1, min(number, _MOST_VOLUMES)).astype(int)).tolist()


def decision(shares: Iterable[float]) -> str:
    """Decide what z_score is of, ``MASK`` or ``BOX``, with training volumes whose boxes have these shares of voxels."""
    return MASK if float(np.median(list(shares))) < _SMALL_SHARE else BOX


def compute_shares(dataset: Any) -> list[float]:
    """Those of 50 volumes of a dataset at most, evenly spread."""
    chosen = evenly(len(dataset))
    shown = tqdm(chosen, desc="looking for zeros", unit="volume", disable=None, leave=False)
    return [compute_share(nonzero_mask(dataset.stored(index))) for index in shown]


def settle(task: Any, dataset: Any, kinds: Sequence[str], is_training: bool) -> list[str]:
    """Let a dataset read its volumes as ``task.within`` says, which is what the weights that the run goes on with or
    evaluates were trained with, or else decided by the dataset; returns a line for the log.

    Args:
        dataset: with ``stored(index)`` and, where it can, ``within``.
        kinds: of VOLUMES.NORMALIZE, one for each channel.
    """
    if "z_score" not in kinds or dataset.within is None:
        task.within = VOLUME
        return []
    why = "as the weights were trained"
    task.within = task.within or _of_weights(task.config, is_training)
    if task.within is None:
        shares = compute_shares(dataset)
        task.within = decision(shares)
        why = f"boxes around what is not zero have a median of {100 * np.median(shares):.3g} % of a volume"
    dataset.within = per_channel(task.within, kinds)
    return [f"z_score is {_SAID[task.within]} ({why})"]


def per_channel(within: str, kinds: Sequence[str]) -> list[str]:
    """Return what the moments of each channel are of."""
    return [within if kind == "z_score" else VOLUME for kind in kinds]


def recorded(known: Mapping[str, Any]) -> str:
    """Read what z_score is of by what weights say of their input; those of whole volumes say nothing."""
    return str(known.get("z_score", VOLUME))


def _of_weights(config: VolumeSettings, is_training: bool) -> str | None:
    """That of the checkpoint which a training resumes, or which is evaluated; None: there is none, or it says nothing
    of its input."""
    model = config.MODEL
    source = model.RESUME if is_training or model.PRETRAINED is None else evaluated_weights(model.PRETRAINED)
    found = None if source is None else resolve(source, Path(config.SAVE) / "checkpoints", lambda line: None)
    known = None if found is None else (read_about(str(found)) or {}).get("input")
    return recorded(known) if known and "z_score" in known.get("normalize", ()) else None


_SAID = {
    MASK: "of what is not zero, holes filled, before resampling, and everything else becomes 0",
    BOX: "of the box around what is not zero, as it is stored",
    VOLUME: "of the whole volume, as it is resampled",
}
