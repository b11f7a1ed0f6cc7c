"""The landmark task: one process or several, what it writes, and what it says about bad input."""

from pathlib import Path

import numpy as np

from support.files.volume_files import world, write_landmarks, write_volume

TINY = "VOLUMES.UNET_WIDTH 4 VOLUMES.UNET_DEPTH 2 VOLUMES.CROP_SIZE [12,20,16] VOLUMES.OVERLAP 0.1".split()
TINY += ["DATA.NUM_WORKERS", "0"]


def small_folder(folder: Path) -> Path:
    """Two splits of two volumes whose sizes differ; one landmark is missing in one of them."""
    for split in ("train", "val"):
        for number, shape in enumerate([(10, 12, 14), (16, 18, 20)]):
            array = np.random.default_rng(number).integers(-1000, 1000, shape).astype(np.int16)
            write_volume(folder / split / f"case{number}.nii.gz", array)
            positions = {"nose": world((3.0, 4.0, 5.0)), "chin": world((8.0, 9.0, 6.0)) if number else None}
            write_landmarks(folder / split / f"case{number}.csv", positions)
    return folder
