"""Statistics of volumes with label maps for choosing keys, like nnU-Net's dataset fingerprint."""

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
from tqdm import tqdm

from ..geometry import step_lengths, turned_spacing
from ..nonzero import choose_evenly, compute_box_share, nonzero_mask
from .dataset import IGNORED, SegmentedVolumes
from .regions import group_labels
from .samples import upright_shape

_SAMPLED = 10_000_000  # voxels drawn from all volumes; nnU-Net draws ten times as many
_SEED = 1234  # nnU-Net's


def fingerprint(dataset: SegmentedVolumes) -> Iterator[str]:
    """Yield lines with the statistics of a dataset, each with the keys that it helps to set.

    Sizes and spacings are read from all volumes, classes and intensities from at most 50 evenly spread ones, at their
    stored spacing.

    Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, supplementary note 2, and its
    ``fingerprint_extractor.py``: medians of sizes and spacings; percentiles 0.5 and 99.5, mean and deviation of the
    intensities within all classes but the background. An equal number of voxels is drawn from each volume, with
    replacement.
    """
    geometries = [dataset.source(index).geometry for index in range(len(dataset))]
    spacings = np.array([step_lengths(turned_spacing(geometry)) for geometry in geometries])
    extents = np.array([upright_shape(geometry) for geometry in geometries]) * spacings
    yield f"spacing as stored (depth, height, width): {_ranges(spacings)} mm (VOLUMES.SPACING_MM)"
    yield f"size (depth, height, width): {_ranges(extents)} mm (a crop covers VOLUMES.CROP_SIZE times the spacing)"
    indices, groups = choose_evenly(len(dataset)), group_labels(dataset.class_names, dataset.regions)
    counts, totals, values, shares = [], [], [], []
    for index in tqdm(indices, desc="counting voxels", unit="volume", disable=None, leave=False):
        channels, labels = dataset.stored(index), dataset.stored_labels(index)
        if labels is None:
            raise ValueError("the dataset has no labels")
        label_voxels = np.bincount(labels.array.ravel(), minlength=IGNORED + 1)
        voxels = np.array([label_voxels[list(group)].sum() for group in groups.values()])
        totals.append(label_voxels[:IGNORED].sum())
        counts.append(np.stack([voxels, voxels * labels.geometry.voxel_ml]))
        shares.append(compute_box_share(nonzero_mask(channels)))
        inside = np.flatnonzero((labels.array > 0) & (labels.array != IGNORED))
        if len(inside):
            drawn = np.random.RandomState(_SEED).choice(inside, _SAMPLED // len(indices))
            values.append([np.asarray(channel).reshape(-1)[drawn] for channel in channels])
    voxel_counts, milliliters = np.stack(counts, axis=1)  # (volumes, classes) each
    for name, class_counts, sizes in zip(groups, voxel_counts.T, milliliters.T):
        present = sizes[class_counts > 0]
        size = f", {present.min():.4g} to {present.max():.4g} ml" if len(present) else ""
        share = 100 * class_counts.sum() / max(sum(totals), 1)
        yield f"class {name}: {share:.3g} % of the voxels, in {len(present)} of {len(indices)} volumes{size}"
    yield f"box around nonzero voxels: median {100 * np.median(shares):.3g} % of a volume (VOLUMES.NORMALIZE z_score)"
    for channel, samples in zip(dataset.channels, zip(*values) if values else repeat(())):
        yield _intensities(channel, samples)


def _intensities(channel: str, samples: Sequence[np.ndarray]) -> str:
    if not samples:
        return f"channel {channel}: no voxel has a class"
    values = np.concatenate(samples).astype(np.float64)
    low, middle, high = (float(value) for value in np.percentile(values, (0.5, 50, 99.5)))
    mean, deviation = float(values.mean()), float(values.std())
    statistics = (
        f"channel {channel} within the classes: percentiles 0.5, 50 and 99.5 {low:.4g}, {middle:.4g} and {high:.4g}"
    )
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
