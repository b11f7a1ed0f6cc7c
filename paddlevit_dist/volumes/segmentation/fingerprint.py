"""Statistics of volumes with label maps for choosing keys, like nnU-Net's dataset fingerprint."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count, shorten
from ..geometry import step_lengths, turned_spacing
from ..nonzero import choose_evenly, compute_box, nonzero_mask
from .dataset import IGNORED, SegmentedVolumes
from .regions import group_labels
from .samples import upright_shape

_SAMPLED = 10_000_000  # voxels drawn from all volumes; nnU-Net draws ten times as many
_SEED = 1234  # nnU-Net's
_KIND_BY_NAME = {"ct": "ct", "nonorm": "none", "rescale_to_0_1": "min_max", "rgb_to_0_1": "percentiles"}
_RGB_WINDOW = (0.0, 255.0)


class ChannelStatistics(NamedTuple):
    """Intensities of a channel within all classes but the background."""

    percentiles: tuple[float, float, float]  # 0.5, 50 and 99.5
    mean: float  # of the drawn voxels
    deviation: float  # of the drawn voxels

    @property
    def is_constant(self) -> bool:
        """Whether nearly all drawn voxels have one intensity, so that "ct" has no range to scale."""
        return self.percentiles[0] >= self.percentiles[2]


class DatasetFingerprint(NamedTuple):
    """Statistics of volumes with label maps."""

    spacings: np.ndarray  # (volumes, 3), millimeters (depth, height, width), of the volumes that were read
    shapes: np.ndarray  # (volumes, 3), voxels of the boxes around their nonzero voxels
    box_shares: list[float]  # share of each box
    voxels: np.ndarray  # (volumes, classes), with the background; classes may share voxels
    milliliters: np.ndarray  # (volumes, classes)
    labeled: int  # voxels of all classes in all volumes
    channels: list[ChannelStatistics]  # of each channel; empty if no voxel has a class
    constant: list[str]  # volume and channel, by name, of all voxels with one intensity


def compute_fingerprint(volumes: Sequence[tuple[SegmentedVolumes, int]]) -> DatasetFingerprint:
    """Compute the statistics of volumes, at their stored spacing.

    Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, supplementary note 2, and its
    ``fingerprint_extractor.py``: percentiles 0.5 and 99.5, mean and deviation of the intensities within all classes but
    the background. An equal number of voxels is drawn from each volume, with replacement. ``volumes`` are dataset and
    index; all have the same classes.
    """
    groups = group_labels(volumes[0][0].class_names, volumes[0][0].regions).values()
    counts, labeled, values, boxes, shares = [], 0, [], [], []
    constant: list[str] = []
    for dataset, index in tqdm(volumes, desc="counting voxels", unit="volume", disable=None, leave=False):
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
        named = zip(dataset.channels, channels)
        constant += [f"{dataset.case(index)} ({name})" for name, image in named if image.min() == image.max()]
        inside = np.flatnonzero((labels.array > 0) & (labels.array != IGNORED))
        if len(inside):
            drawn = np.random.RandomState(_SEED).choice(inside, _SAMPLED // len(volumes))
            values.append([np.asarray(channel).reshape(-1)[drawn] for channel in channels])
    spacings = np.array([step_lengths(turned_spacing(data.source(i).geometry)) for data, i in volumes])
    by_channel = [_statistics(np.concatenate(samples)) for samples in zip(*values)]
    voxel_counts, milliliters = np.stack(counts, axis=1)
    counted = voxel_counts, milliliters, labeled
    return DatasetFingerprint(spacings, np.array(boxes), shares, *counted, by_channel, constant)


def _statistics(samples: np.ndarray) -> ChannelStatistics:
    values = samples.astype(np.float64)
    low, middle, high = (float(value) for value in np.percentile(values, (0.5, 50, 99.5)))
    return ChannelStatistics((low, middle, high), float(values.mean()), float(values.std()))


def fingerprint(dataset: SegmentedVolumes) -> Iterator[str]:
    """Yield lines with the statistics of a dataset, each with the keys that it helps to set.

    Sizes and spacings are of all volumes, the rest is from ``compute_fingerprint`` of at most 50, evenly spread.
    """
    geometries = [dataset.source(index).geometry for index in range(len(dataset))]
    spacings = np.array([step_lengths(turned_spacing(geometry)) for geometry in geometries])
    extents = np.array([upright_shape(geometry) for geometry in geometries]) * spacings
    whose = f"(depth, height, width) of {count(len(dataset), 'volume')}"
    yield f"spacing as stored {whose}: {_ranges(spacings)} mm (VOLUMES.SPACING_MM)"
    yield f"size (depth, height, width): {_ranges(extents)} mm (a crop covers VOLUMES.CROP_SIZE times the spacing)"
    found = compute_fingerprint([(dataset, index) for index in choose_evenly(len(dataset))])
    names = group_labels(dataset.class_names, dataset.regions)
    for name, class_counts, sizes in zip(names, found.voxels.T, found.milliliters.T):
        present = sizes[class_counts > 0]
        if not len(present):
            yield f"class {name}: in none of {len(sizes)} volumes: a network cannot learn it from them"
            continue
        share = 100 * class_counts.sum() / max(found.labeled, 1)
        size = f"{present.min():.4g} to {present.max():.4g} ml"
        yield f"class {name}: {share:.3g} % of the voxels, in {len(present)} of {len(sizes)} volumes, {size}"
    share = 100 * np.median(found.box_shares)
    yield f"box around nonzero voxels: median {share:.3g} % of a volume (VOLUMES.NORMALIZE z_score)"
    if found.constant:
        yield f"volumes (channel) whose voxels all have one intensity: {shorten(', '.join(found.constant), 200)}"
    for channel, statistics in zip(dataset.channels, found.channels or repeat(None)):
        yield _intensities(channel, statistics)
    if len(dataset.channels) > 1 and found.channels and not any(each.is_constant for each in found.channels):
        keys = plan_intensities(dataset.channels, found).items()
        words = " ".join(f"VOLUMES.{key} {_format_value(value)}" for key, value in keys)
        yield f"all channels as nnU-Net scales channels of these names: {words}"


def _intensities(channel: str, found: ChannelStatistics | None) -> str:
    if found is None:
        return f"channel {channel}: no voxel has a class"
    low, middle, high = found.percentiles
    if found.is_constant:
        return f"channel {channel} within the classes: nearly all voxels have the intensity {middle:.4g}"
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


def choose_kind(channel: str) -> str:
    """Return the value of VOLUMES.NORMALIZE that nnU-Net's normalization of a channel of this name corresponds to."""
    return _KIND_BY_NAME.get(channel.casefold(), "z_score")


def plan_intensities(channels: Sequence[str], found: DatasetFingerprint) -> dict[str, Any]:
    """Return the keys of VOLUMES for nnU-Net's normalization of channels of these names.

    UserError if no voxel has a class, or all of them have one intensity, in a channel of CT.
    """
    kinds = [choose_kind(channel) for channel in channels]
    windows: dict[int, tuple[float, float]] = {}
    moments: dict[int, tuple[float, float]] = {}
    for number, (name, kind) in enumerate(zip(channels, kinds)):
        if kind == "percentiles":
            windows[number] = _RGB_WINDOW
        if kind == "ct":
            if not found.channels:
                raise UserError("no voxel of the labeled volumes has a class: the intensities of CT cannot be planned")
            statistics = found.channels[number]
            windows[number] = statistics.percentiles[0], statistics.percentiles[2]
            moments[number] = statistics.mean, statistics.deviation
            if statistics.is_constant:
                raise UserError(
                    f"channel {number} ({name}): nearly all voxels with a class have the intensity "
                    f"{statistics.mean:g}, so CT's normalization cannot be planned; correct the volumes or the labels"
                )
    return {
        "NORMALIZE": kinds,
        "INTENSITY_WINDOW": _join_pairs(windows, len(channels), (0.0, 1.0)),
        "INTENSITY_MEAN_STD": _join_pairs(moments, len(channels), (0.0, 1.0)),
    }


def _join_pairs(
    pairs: dict[int, tuple[float, float]], channels: int, unused: tuple[float, float]
) -> list[float] | None:
    """Return two numbers if all channels of ``pairs`` have the same, else two for each channel; None without any."""
    if not pairs:
        return None
    alike = len(set(pairs.values())) == 1
    chosen = list(pairs.values())[:1] if alike else [pairs.get(number, unused) for number in range(channels)]
    return [float(f"{value:.6g}") for pair in chosen for value in pair]


def _format_value(value: object) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def find_misnamed(channels: Sequence[str], kinds: Sequence[str]) -> list[str]:
    """Return a notice if the scaling of a channel does not match its name, such as "ct" for other channels than CT."""
    expected = [choose_kind(channel) for channel in channels]
    pairs = zip(expected, kinds)
    if all(kind == wanted or (wanted == "z_score" and kind != "ct") for wanted, kind in pairs):
        return []
    return [
        f"note: VOLUMES.NORMALIZE [{','.join(kinds)}] for the channels {', '.join(channels)}: for channels of these "
        f"names nnU-Net's normalization is [{','.join(expected)}]"
    ]
