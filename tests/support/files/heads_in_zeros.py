"""Volumes that were set to 0 around a head, in nnU-Net's layout."""

import json

import numpy as np

from support.files.volume_files import write_volume

SHAPE = (12, 14, 16)
AFFINE = np.diag([0.9, 1.2, 2.0, 1.0])


def head(seed, margin, channel=0):
    """Intensities about 500 with a deviation of 90 in a ball, a hole of zeros in it, and zeros around."""
    grid = (np.indices(SHAPE).T - (np.array(SHAPE) - 1) / 2).T / (np.array(SHAPE)[:, None, None, None] / 2 - margin)
    inside = (grid**2).sum(axis=0) < 1
    values = np.where(inside, np.random.default_rng([seed, channel]).normal(500, 90, SHAPE), 0).astype(np.float32)
    values[5:7, 6:8, 7:9] = 0
    if channel:
        values[2, 7, 8] = 0
    return values


def make_dataset(root, margin, channels=2):
    names = {str(number): ("CT", "MR", "PET")[number] for number in range(channels)}
    for case in range(3):
        for channel in range(channels):
            file = root / "imagesTr" / f"case_{case}_{channel:04d}.nii.gz"
            write_volume(file, head(case, margin, channel), AFFINE)
        write_volume(root / "labelsTr" / f"case_{case}.nii.gz", (head(case, margin) > 500).astype(np.uint8), AFFINE)
    labels = {"background": 0, "bright": 1}
    (root / "dataset.json").write_text(json.dumps({"channel_names": names, "labels": labels}))
    return root
