"""Plan of a run for a dataset in nnU-Net's layout, written as a YAML file for ``-cfg``."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.printing import count
from ..planning import MAX_WIDTH, WIDTH, NetworkPlan, Size, format_lengths, plan_network
from .dataset import SegmentationOptions
from .fingerprint import choose_kind, compute_fingerprint, plan_intensities
from .nnunet import NnUNet
from .settings import AXES

_BASE = "volume_unet3d_phantoms"  # the recipe, for all other keys


def write_plan(data_path: str, file: Path, memory_gb: int, cache_folder: Path, *limits: int) -> list[str]:
    """Write the keys that nnU-Net's rules set for the labeled volumes of a dataset; return lines that describe them.

    ``memory_gb`` is a device's memory, ``cache_folder`` for decoded label maps, ``limits`` are VOLUMES.MAX_VOXELS and
    FOLD. UserError if the YAML file exists, the data cannot be read, or there is no plan.
    """
    if file.exists():
        raise UserError(f"{file} exists: remove it, or name another file")
    options = SegmentationOptions((1.0, 1.0, 1.0), *limits)  # any spacing: only stored voxels are read
    dataset, other = (NnUNet(data_path, split, cache_folder, options) for split in ("train", "val"))
    volumes = sorted(
        ((part, index) for part in (dataset, other) for index in range(len(part))),
        key=lambda pair: pair[0].case(pair[1]),
    )
    found = compute_fingerprint(volumes)
    plan = plan_network(found.spacings, found.shapes, dataset.num_classes, memory_gb, len(volumes))
    content = {
        "BASE": _BASE,
        "DATA": {"DATASET": "nnunet", "DATA_PATH": dataset.root, "BATCH_SIZE": plan.batch_size},
        "VOLUMES": {**_network_keys(plan), **plan_intensities(dataset.channels, found)},
    }
    lines = [
        f"{count(len(volumes), 'volume')} of training and validation, median "
        f"{format_lengths(np.median(found.shapes, axis=0))} voxels, resampled to "
        f"{format_lengths(plan.spacing_mm)} mm",
        f"patches of {format_lengths(plan.levels.size)} voxels, {plan.batch_size} in a batch, for one device of "
        f"{memory_gb} GB",
        "intensities: " + ", ".join(f"channel {name} {choose_kind(name)}" for name in dataset.channels),
        *dict.fromkeys([*dataset.notices, *other.notices]),  # also on volumes that the fold leaves out
    ]
    text = "".join(f"# {line}\n" for line in lines) + yaml.safe_dump(
        content, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True
    )
    with atomic_file(file) as out:
        out.write(text.encode("utf-8"))
    return lines


def _network_keys(plan: NetworkPlan) -> dict[str, Any]:
    levels = plan.levels
    return {
        "SPACING_MM": [float(f"{length:.6g}") for length in plan.spacing_mm],
        "CROP_SIZE": list(levels.size),
        "UNET_WIDTH": WIDTH,
        "UNET_MAX_WIDTH": MAX_WIDTH,
        "UNET_DEPTH": len(levels.strides),
        "UNET_KERNELS": list(map(_format_size, levels.kernels)),
        "UNET_STRIDES": list(map(_format_size, levels.strides)),
        "FOREGROUND_FRACTION": 0.33,
        "MIRROR_AXES": list(AXES),
    }


def _format_size(size: Size) -> str:
    return "x".join(map(str, size))
