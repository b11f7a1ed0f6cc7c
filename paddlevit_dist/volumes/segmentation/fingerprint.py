"""Numbers of volumes with label maps to choose keys by, as nnU-Net's fingerprint of a dataset has them."""

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
from tqdm import tqdm

from ..geometry import step_lengths, turned_spacing
from ..nonzero import compute_share, evenly, nonzero_mask
from .dataset import IGNORED, SegmentedVolumes
from .samples import upright_shape

_SAMPLED = 10_000_000  # voxels of all volumes; nnU-Net draws ten times as many, whose percentiles differ by less
_SEED = 1234  # nnU-Net's


def fingerprint(dataset: SegmentedVolumes) -> Iterator[str]:
    """Lines about sizes and spacings of all volumes, and of at most 50 evenly spread ones about the classes and the
    intensities of voxels that have one, as they are stored, each with the keys that it is for.

    Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, supplementary note 2, and its
    ``fingerprint_extractor.py``: medians of sizes and spacings, and percentiles 0.5 and 99.5, mean and deviation of the
    intensities within all classes but the background, of which each volume gives as many, drawn with replacement.
    """
    geometries = [dataset.source(index).geometry for index in range(len(dataset))]
    spacings = np.array([step_lengths(turned_spacing(geometry)) for geometry in geometries])
    extents = np.array([upright_shape(geometry) for geometry in geometries]) * spacings
    yield f"spacing as stored (depth, height, width): {_ranges(spacings)} mm (VOLUMES.SPACING_MM)"
    yield f"size (depth, height, width): {_ranges(extents)} mm (a crop shows VOLUMES.CROP_SIZE times the spacing of it)"
    chosen = evenly(len(dataset))
    counts, values, shares = [], [], []
    for index in tqdm(chosen, desc="counting voxels", unit="volume", disable=None, leave=False):
        channels, labels = dataset.stored(index), dataset.stored_labels(index)
        own = np.bincount(labels.array.ravel(), minlength=IGNORED + 1)[: len(dataset.class_names)]
        counts.append(np.stack([own, own * labels.geometry.voxel_ml]))
        shares.append(compute_share(nonzero_mask(channels)))
        inside = np.flatnonzero((labels.array > 0) & (labels.array != IGNORED))
        if len(inside):
            drawn = np.random.RandomState(_SEED).choice(inside, _SAMPLED // len(chosen))
            values.append([np.asarray(one).reshape(-1)[drawn] for one in channels])
    found, milliliters = np.stack(counts, axis=1)  # (volumes, classes) each
    for name, own, sizes in zip(dataset.class_names, found.T, milliliters.T):
        there = sizes[own > 0]
        size = f", {there.min():.4g} to {there.max():.4g} ml" if len(there) else ""
        share = 100 * own.sum() / max(found.sum(), 1)
        yield f"class {name}: {share:.3g} % of the voxels, in {len(there)} of {len(chosen)} volumes looked at{size}"
    yield f"box around what is not zero: median {100 * np.median(shares):.3g} % of a volume (VOLUMES.NORMALIZE z_score)"
    for channel, of_volumes in zip(dataset.channels, zip(*values) if values else repeat(())):
        yield _intensities(channel, of_volumes)


def _intensities(channel: str, of_volumes: Sequence[np.ndarray]) -> str:
    if not of_volumes:
        return f"channel {channel}: no voxel has a class"
    values = np.concatenate(of_volumes).astype(np.float64)
    low, middle, high = (float(value) for value in np.percentile(values, (0.5, 50, 99.5)))
    mean, deviation = float(values.mean()), float(values.std())
    said = f"channel {channel} within the classes: percentiles 0.5, 50 and 99.5 {low:.4g}, {middle:.4g} and {high:.4g}"
    keys = f"VOLUMES.INTENSITY_WINDOW [{low:.4g},{high:.4g}] VOLUMES.INTENSITY_MEAN_STD [{mean:.4g},{deviation:.4g}]"
    return f"{said}, mean {mean:.4g}, deviation {deviation:.4g} (for VOLUMES.NORMALIZE ct: {keys})"


def _ranges(rows: np.ndarray) -> str:
    """Of numbers (volumes, 3) those of the middle volume, and between which they lie."""
    middle, low, high = (
        " x ".join(f"{one:.4g}" for one in own) for own in (np.median(rows, axis=0), rows.min(axis=0), rows.max(axis=0))
    )
    return middle if low == high else f"median {middle}, {low} to {high}"


def find_misnamed(channels: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """A notice for channels that are cut off like a CT and are none by their name, or the other way round."""
    wrong = [name for name, kind in zip(channels, kinds) if (name.casefold() == "ct") != (kind == "ct")]
    if not wrong:
        return []
    return [
        f"note: VOLUMES.NORMALIZE [{','.join(kinds)}] for the channels {', '.join(channels)}: nnU-Net takes ct for one "
        "that is called CT, and z_score for all others"
    ]
