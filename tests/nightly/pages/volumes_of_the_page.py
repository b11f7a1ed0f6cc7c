"""The folders that docs/tutorials/volumes.md shows."""

import re
import shutil
from pathlib import Path

import numpy as np
from support.files.nnunet_folders import raw_data
from support.files.volume_files import write_landmarks, write_volume

from paddlevit_dist.volumes.slicer_files import LandmarkPoint, format_fcsv, format_markups

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "tutorials" / "volumes.md").read_text(encoding="utf-8")


def write_the_volumes_of_the_page(folder: Path) -> None:
    """As the page lays them out: formats, names of files, and the landmarks of its table."""
    (table,) = re.findall(r"```text\n(data/train/anna.*?)```", PAGE, flags=re.DOTALL)
    files = [line.split()[:2] for line in table.splitlines()]
    names = ["eye_left", "eye_right", "chin"]
    assert [row.split()[2].split(",")[0] for row in table.splitlines()] == ["name", *names]
    for volume, landmarks in files:
        is_series = volume.endswith("*.dcm")
        write_volume(
            folder / (volume.replace("/*.dcm", "") if is_series else volume), affine=np.diag([2.0, 1.5, 1.0, 1.0])
        )
        sign = 1 if volume.endswith(".nii.gz") else -1
        place = {"eye_left": (sign * 4.0, sign * 6.0, 3.0), "eye_right": (sign * 20.0, sign * 6.0, 3.0), "chin": None}
        points = [LandmarkPoint(name, tuple(map(str, xyz)), "") for name, xyz in place.items() if xyz]
        if landmarks.endswith((".fcsv", ".mrk.json")):
            text = format_fcsv(points, "lps") if landmarks.endswith(".fcsv") else format_markups(points, "lps")
            (folder / landmarks).write_text(text)
        else:
            write_landmarks(folder / landmarks, place)
    raw_data(folder / "data")
    shutil.copytree(folder / "data" / "imagesTr", folder / "scans")
