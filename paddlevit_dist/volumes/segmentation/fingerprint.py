"""Statistics of volumes with label maps for choosing keys, like nnU-Net's dataset fingerprint."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ..geometry import step_lengths, turned_spacing
from ..nonzero import choose_evenly, compute_box, nonzero_mask
from .dataset import IGNORED, SegmentedVolumes
from .regions import group_labels
from .samples import upright_shape

_SAMPLED = 10_000_000  # voxels drawn from all volumes; nnU-Net draws ten times as many
_SEED = 1234  # nnU-Net's


class ChannelStatistics(NamedTuple):
    """Intensities of a channel within all classes but the background.

    Attributes:
        percentiles: 0.5, 50 and 99.5.
        mean: of the drawn voxels.
        deviation: of the drawn voxels.
    """

    percentiles: tuple[float, float, float]
    mean: float
    deviation: float


class DatasetFingerprint(NamedTuple):
    """Statistics of volumes with label maps.

    Attributes:
        spacings: (volumes, 3), millimeters (depth, height, width), of the volumes that were read.
        shapes: (volumes, 3), voxels of the boxes around their nonzero voxels.
        box_shares: share of each box.
        voxels: (volumes, classes), with the background; classes may share voxels.
        milliliters: (volumes, classes).
        labeled: voxels of all classes in all volumes.
        channels: of each channel; empty if no voxel has a class.
    """

    spacings: np.ndarray
    shapes: np.ndarray
    box_shares: list[float]
    voxels: np.ndarray
    milliliters: np.ndarray
    labeled: int
    channels: list[ChannelStatistics]


def compute_fingerprint(volumes: Sequence[tuple[SegmentedVolumes, int]]) -> DatasetFingerprint:
    """Compute the statistics of at most 50 evenly spread volumes, at their stored spacing.

    Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, supplementary note 2, and its
    ``fingerprint_extractor.py``: percentiles 0.5 and 99.5, mean and deviation of the intensities within all classes but
    the background. An equal number of voxels is drawn from each volume, with replacement.

    Args:
        volumes: a dataset and an index in it, for each volume; the datasets have the same classes.
    """
    chosen = [volumes[place] for place in choose_evenly(len(volumes))]
    groups = group_labels(chosen[0][0].class_names, chosen[0][0].regions).values()
    counts, labeled, values, boxes, shares = [], 0, [], [], []
    for dataset, index in tqdm(chosen, desc="counting voxels", unit="volume", disable=None, leave=False):
        channels, labels = dataset.stored(index), dataset.stored_labels(index)
        if labels is None:
            raise ValueError("the dataset has no labels")
        label_voxels = np.bincount(labels.array.ravel(), minlength=IGNORED + 1)
        labeled += int(label_voxels[:IGNORED].sum())
        voxels = np.array([label_voxels[list(group)].sum() for group in groups])
        counts.append(np.stack([voxels, voxels * labels.geometry.voxel_ml]))
        box = [side.stop - side.start for side in compute_box(nonzero_mask(channels))]
        boxes.append(box)
        shares.append(float(np.prod(box) / labels.array.size))
        inside = np.flatnonzero((labels.array > 0) & (labels.array != IGNORED))
        if len(inside):
            drawn = np.random.RandomState(_SEED).choice(inside, _SAMPLED // len(chosen))
            values.append([np.asarray(channel).reshape(-1)[drawn] for channel in channels])
    spacings = np.array([step_lengths(turned_spacing(dataset.source(index).geometry)) for dataset, index in chosen])
    by_channel = [_statistics(np.concatenate(samples)) for samples in zip(*values)]
    voxel_counts, milliliters = np.stack(counts, axis=1)
    return DatasetFingerprint(spacings, np.array(boxes), shares, voxel_counts, milliliters, labeled, by_channel)


def _statistics(samples: np.ndarray) -> ChannelStatistics:
    values = samples.astype(np.float64)
    low, middle, high = (float(value) for value in np.percentile(values, (0.5, 50, 99.5)))
    return ChannelStatistics((low, middle, high), float(values.mean()), float(values.std()))


def fingerprint(dataset: SegmentedVolumes) -> Iterator[str]:
    """Yield lines with the statistics of a dataset, each with the keys that it helps to set.

    Sizes and spacings are of all volumes, the rest is from ``compute_fingerprint``.
    """
    geometries = [dataset.source(index).geometry for index in range(len(dataset))]
    spacings = np.array([step_lengths(turned_spacing(geometry)) for geometry in geometries])
    extents = np.array([upright_shape(geometry) for geometry in geometries]) * spacings
    yield f"spacing as stored (depth, height, width): {_ranges(spacings)} mm (VOLUMES.SPACING_MM)"
    yield f"size (depth, height, width): {_ranges(extents)} mm (a crop covers VOLUMES.CROP_SIZE times the spacing)"
    found = compute_fingerprint([(dataset, index) for index in range(len(dataset))])
    names = group_labels(dataset.class_names, dataset.regions)
    for name, class_counts, sizes in zip(names, found.voxels.T, found.milliliters.T):
        present = sizes[class_counts > 0]
        size = f", {present.min():.4g} to {present.max():.4g} ml" if len(present) else ""
        share = 100 * class_counts.sum() / max(found.labeled, 1)
        yield f"class {name}: {share:.3g} % of the voxels, in {len(present)} of {len(sizes)} volumes{size}"
    share = 100 * np.median(found.box_shares)
    yield f"box around nonzero voxels: median {share:.3g} % of a volume (VOLUMES.NORMALIZE z_score)"
    for channel, statistics in zip(dataset.channels, found.channels or repeat(None)):
        yield _intensities(channel, statistics)


def _intensities(channel: str, found: ChannelStatistics | None) -> str:
    if found is None:
        return f"channel {channel}: no voxel has a class"
    low, middle, high = found.percentiles
    statistics = (
        f"channel {channel} within the classes: percentiles 0.5, 50 and 99.5 {low:.4g}, {middle:.4g} and {high:.4g}"
    )
    mean, deviation = found.mean, found.deviation
    keys = f"VOLUMES.INTENSITY_WINDOW [{low:.4g},{high:.4g}] VOLUMES.INTENSITY_MEAN_STD [{mean:.4g},{deviation:.4g}]"
    return f"{statistics}, mean {mean:.4g}, deviation {deviation:.4g} (for VOLUMES.NORMALIZE ct: {keys})"


def _ranges(rows: np.ndarray) -> str:
    """Format numbers (volumes, 3) as the median and the range."""
    middle, low, high = (
        " x ".join(f"{value:.4g}" for value in row)
        for row in (np.median(rows, axis=0), rows.min(axis=0), rows.max(axis=0))
    )
    return middle if low == high else f"median {middle}, {low} to {high}"


def find_misnamed(channels: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Return a notice if the scaling of a channel does not match its name: "ct" is for CT only."""
    mismatched = [name for name, kind in zip(channels, kinds) if (name.casefold() == "ct") != (kind == "ct")]
    if not mismatched:
        return []
    return [
        f"note: VOLUMES.NORMALIZE [{','.join(kinds)}] for the channels {', '.join(channels)}: nnU-Net uses ct for a "
        "channel named CT and z_score for all others"
    ]
