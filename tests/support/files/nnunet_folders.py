"""Data sets in nnU-Net's layout."""

import json

import numpy as np

from support.files.volume_files import AFFINE, SHAPE, write_volume

SECOND = {"channel_names": {"0": "CT", "1": "PET"}, "labels": {"background": 0, "spleen": 2, "liver": 5, "ignore": 9}}

REGIONS = {
    "channel_names": {"0": "CT", "1": "PET"},
    "labels": {"background": 0, "organs": [2, 5], "liver": 5, "ignore": 9},
    "regions_class_order": [2, 5],
}


def make_labels(seed: int) -> np.ndarray:
    labels = np.zeros(SHAPE, np.uint8)
    labels[2:7, 3:9, 4:11] = 5
    labels[6:9, 2:5, 1:6] = 2
    labels[0, 0, :] = 9
    return np.roll(labels, seed, axis=2)


def raw_data(root, cases=3, suffix=".nii.gz", description=SECOND, affine=AFFINE):
    """A tiny copy of a dataset in nnU-Net's layout."""
    for number in range(cases):
        for channel in range(2):
            voxels = np.random.default_rng([number, channel]).normal(100 * channel, 20, SHAPE).astype(np.float32)
            write_volume(root / "imagesTr" / f"case_{number}_{channel:04d}{suffix}", voxels, affine)
        write_volume(root / "labelsTr" / f"case_{number}{suffix}", make_labels(number), affine)
    (root / "dataset.json").write_text(json.dumps({**description, "file_ending": suffix, "numTraining": cases}))
    return root
