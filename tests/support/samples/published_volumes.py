"""Folders of volumes with landmark files in the formats of several programs: four landmarks, not in order of names."""

from pathlib import Path

import numpy as np

from paddlevit_dist.volumes.slicer_files import LandmarkPoint, format_fcsv, format_markups
from support.files.volume_files import world, write_landmarks, write_volume

SPACING = np.diag([1.0, 1.5, 2.0, 1.0])  # of x, y and z, in mm
# Voxels x, y, z of each landmark.
PLACES = {"nose": (3.0, 4.0, 5.0), "eye_right": (8.0, 9.0, 6.0), "eye_left": (2.0, 8.0, 6.0), "chin": (4.0, 3.0, 2.0)}


def write_landmark_folders(root: Path) -> dict[str, dict[str, np.ndarray | None]]:
    """Three volumes to train on and two for validation, of different shapes; the chin is missing in one of them.

    Returns:
        The place of each landmark in RAS, mm, by case and name.
    """
    written: dict[str, dict[str, np.ndarray | None]] = {}
    for name, shape, landmarks in (
        ("train/anna.nii.gz", (10, 12, 14), ".csv"),
        ("train/ben.nrrd", (11, 10, 15), ".mrk.json"),
        ("train/dora", (9, 14, 11), ".fcsv"),
        ("val/carla.mha", (10, 13, 12), ".json"),
        ("val/emil.nii.gz", (12, 10, 13), ".csv"),
    ):
        array = np.random.default_rng(len(name)).integers(-1000, 1500, shape).astype(np.int16)
        write_volume(root / name, array, SPACING)
        stem = root / name.split(".")[0]
        is_lps = not name.endswith(".nii.gz")
        sign = np.array([-1, -1, 1]) if is_lps else np.ones(3)
        ras = {landmark: np.array(world(place, SPACING)) for landmark, place in PLACES.items()}
        written[stem.name] = {**ras, **({"chin": None} if stem.name == "emil" else {})}
        places = {
            landmark: None if place is None else tuple((sign * place).tolist())
            for landmark, place in written[stem.name].items()
        }
        points = [LandmarkPoint(name, tuple(map(str, place)), "") for name, place in places.items() if place]
        file = stem.with_name(stem.name + landmarks)
        if landmarks in (".fcsv", ".mrk.json"):
            file.write_text((format_fcsv if landmarks == ".fcsv" else format_markups)(points, "lps"))
        else:
            write_landmarks(file, places)
    return written
