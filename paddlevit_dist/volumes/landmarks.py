"""A folder of volumes with a file of landmarks beside each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np

from ..errors import UserError
from . import landmark_files
from .geometry import Geometry, nearest_axes, other_handedness
from .reading import Header, case_name, list_volumes, read_header
from .store import Decoded, DecodedStore

_LAYOUT = "with the folders train and val, each with volumes and, beside each, its landmarks as <name>.csv or .json"


class Options(NamedTuple):
    """How a data set of volumes is read; see the keys VOLUMES.* of the same names."""

    spacing_mm: Optional[Sequence[float]] = None
    landmarks: Optional[Sequence[str]] = None
    landmark_units: str = "mm"
    world: str = "file"


class Case(NamedTuple):
    """One volume and its landmarks.

    Attributes:
        name: file name without suffix.
        file: its path.
        world: float64 (landmarks, 3), millimetres x, y, z in the world of the file; NaN where missing.
        flips_world: results are told in the other handedness than the file's.
    """

    name: str
    file: str
    world: np.ndarray
    flips_world: bool


class Landmarks:
    """Volumes of ``data_path``/train or /val.

    All files' headers and landmarks are read and checked at once, in the order of their names; voxels when they are
    asked for, from then on from a decoded copy in ``cache_folder``.

    Args:
        data_path: folder with train and val.
        split: "train" or "val".
        cache_folder: where decoded volumes go.
        options: see ``Options``.
    Raises:
        UserError: a folder or file is missing or damaged, a landmark lies outside its volume, an affine is singular,
            or spacings differ and no common one is given.
    """

    has_landmarks = True

    def __init__(
        self, data_path: Optional[str], split: str, cache_folder: Path, options: Optional[Options] = None
    ) -> None:
        options = required(options)
        folder = _existing(data_path, split)
        self.store = DecodedStore(Path(cache_folder) / "volumes", options.spacing_mm)
        files = list_volumes(folder)
        if not files:
            raise UserError(f"{folder} holds no volumes; expected a folder {_LAYOUT}")
        headers = {file: read_header(file) for file in files}
        self.spacing = _common_spacing(headers, options.spacing_mm)
        positions = {file: landmark_files.read(landmark_files.find(folder, case_name(file))) for file in files}
        self.names = list(options.landmarks or _all_names(data_path, positions))
        self.cases = [_case(file, headers[file], positions[file], self.names, options, folder) for file in files]

    def __len__(self) -> int:
        return len(self.cases)

    def volume(self, index: int) -> Decoded:
        """Voxels and place of volume ``index``."""
        decoded = self.store.get(self.cases[index].file)
        if not self.cases[index].flips_world:
            return decoded
        return decoded._replace(geometry=decoded.geometry._replace(affine=other_handedness(decoded.geometry.affine)))

    def points(self, index: int, geometry: Geometry) -> np.ndarray:
        """Voxel positions (landmarks, 3) in the order z, y, x within ``geometry``; NaN where missing."""
        return geometry.voxels(self.cases[index].world)

    def case(self, index: int) -> str:
        return self.cases[index].name

    def describe(self, index: int) -> str:
        return self.cases[index].file


def required(options: Optional[Options]) -> Options:
    """The options, which only a task for landmarks gives."""
    if options is None:
        raise UserError(
            "this data set holds volumes with landmarks: add TASK landmarks, as configs/landmark_unet3d.yaml"
        )
    return options


def _existing(data_path: Optional[str], split: str) -> str:
    if data_path is None:
        raise UserError(f"dataset landmarks needs -data_path=<folder>, {_LAYOUT}")
    folder = os.path.join(os.path.abspath(os.path.expanduser(os.fspath(data_path))), split)
    if not os.path.isdir(folder):
        raise UserError(f"data path {folder} is not a folder; dataset landmarks expects a folder {_LAYOUT}")
    return folder


def _common_spacing(headers: Dict[str, Header], wanted: Optional[Sequence[float]]) -> np.ndarray:
    if wanted is not None:
        return np.array(wanted, dtype=np.float64)
    first = next(iter(headers))
    reference = _turned_spacing(headers[first])
    for file, header in headers.items():
        spacing = _turned_spacing(header)
        if not np.allclose(spacing, reference, rtol=1e-3):
            raise UserError(
                f"{file}: the voxel spacing is {_millimetres(spacing)} but that of {os.path.basename(first)} is "
                f"{_millimetres(reference)} (depth, height, width); set VOLUMES.SPACING_MM to resample all to one"
            )
    return reference


def _turned_spacing(header: Header) -> np.ndarray:
    """Spacing (depth, height, width) once the axes run along the world's."""
    order, _ = nearest_axes(header.geometry.affine)
    return header.geometry.spacing[::-1][order][::-1]


def _millimetres(spacing: np.ndarray) -> str:
    return " x ".join(f"{length:.4g}" for length in spacing) + " mm"


def _all_names(data_path: Any, positions: Dict[str, landmark_files.Positions]) -> List[str]:
    """Names in the files of both splits, so that a model has the same outputs for either."""
    names = {name for found in positions.values() for name in found}
    for split in ("train", "val"):
        folder = os.path.join(os.path.abspath(os.path.expanduser(os.fspath(data_path))), split)
        if os.path.isdir(folder):
            for file in list_volumes(folder):
                names.update(landmark_files.read(landmark_files.find(folder, case_name(file))))
    return sorted(names)


def _case(
    file: str, header: Header, positions: landmark_files.Positions, names: List[str], options: Options, folder: str
) -> Case:
    listed = landmark_files.find(folder, case_name(file))
    unknown = [name for name in positions if name not in names]
    if unknown:
        raise UserError(f"{listed}: landmark '{unknown[0]}' is not among VOLUMES.LANDMARKS ({', '.join(names)})")
    flips = options.world not in ("file", header.world)
    geometry = header.geometry
    if flips:
        geometry = geometry._replace(affine=other_handedness(geometry.affine))
    world = np.full((len(names), 3), np.nan)
    for row, name in enumerate(names):
        position = positions.get(name)
        if position is None:
            continue
        in_voxels = options.landmark_units == "voxel"
        point = position[::-1] if in_voxels else geometry.voxels(position)
        if not geometry.contains(point):
            at, size = ", ".join(f"{index:.1f}" for index in point[::-1]), " x ".join(map(str, geometry.shape[::-1]))
            raise UserError(
                f"{listed}: landmark '{name}' lies outside {os.path.basename(file)}: voxel ({at}) of {size} (x, y, z); "
                "check VOLUMES.LANDMARK_UNITS and VOLUMES.WORLD, or leave its coordinates empty"
            )
        world[row] = geometry.world(point)
    return Case(case_name(file), file, world, flips)
