"""Dataset of a folder of volumes, each with a landmark file next to it."""

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import count_by_suffix
from ...core.runtime.printing import shorten
from ...core.tasks.dataset import require_folder, require_split
from .. import dicom, landmark_files
from ..dataset import DEFAULT_OPTIONS, VolumeDataset, VolumeOptions
from ..geometry import convert
from ..nonzero import VOLUME
from ..reading import VolumeHeader, case_name, common_spacing, format_remarks, list_parts, list_volumes, read_header
from ..store import DecodedStore, DecodedVolume, read_stored
from .position_notes import find_absent, find_exchanged

_LAYOUT = (
    "with the folders train and val, each with volumes (files, or a folder for each DICOM series) and, next to each, "
    "its landmarks as <name>.csv, .json, .fcsv or .mrk.json"
)
_TRAINED = ("train", "val")  # splits that must have landmarks; other folders may have none
_LOOSE = "loose DICOM files (move each series to a separate folder)"


class LandmarkCase(NamedTuple):
    """One volume and its landmarks."""

    name: str  # file name without suffix
    file: str  # path; a folder for a DICOM series
    # float64 (landmarks, 3), millimeters x, y, z to the right, to the front and up; NaN where missing
    world: np.ndarray
    convention: str  # "ras" or "lps", the convention of its predictions


class LandmarkDataset(VolumeDataset):
    """Volumes of ``data_path``/train, /val or another folder, which needs no landmarks.

    Headers and landmarks of all files are read and checked at once, in the order of their names. Voxels are read on
    demand and then from a decoded copy in ``cache_folder``. For ``options`` see ``VolumeOptions``. UserError if a
    folder or file is missing or damaged, a landmark is outside its volume, an affine is singular, or spacings differ
    and no common one is set.
    """

    within: Sequence[str] = (VOLUME,)

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path, options: VolumeOptions = DEFAULT_OPTIONS
    ) -> None:
        folder = _find_split(data_path, split)
        self.root = os.path.dirname(folder)
        self.store = DecodedStore(Path(cache_folder) / "volumes", options.spacing_mm, options.max_voxels)
        files = list_volumes(folder)
        if not files:
            loose = f" but {_LOOSE}" if dicom.contains_dicom(folder) else ""
            others = count_by_suffix(_other_files(folder))
            loose = loose or (f", but {others}" if others else "")
            raise UserError(f"{folder} contains no volumes{loose}; expected a folder {_LAYOUT}")
        headers = {file: read_header(file, options.max_voxels) for file in files}
        self.spacing = common_spacing(headers, options.spacing_mm)
        self.labeled = split in _TRAINED or any(
            landmark_files.find_landmark_files(folder, case_name(file)) for file in files
        )
        unknown = landmark_files.FileLandmarks({}, None)
        listed = {file: _read_case(folder, file) if self.labeled else unknown for file in files}
        self.names = list(options.landmarks or _collect_names(data_path, split, listed.values()))
        if not self.names:
            raise UserError(
                f"{folder} has no landmark files, nor have train and val next to it: set VOLUMES.LANDMARKS to "
                "the names of the model's landmarks, in their order"
            )
        self.cases = [_case(file, headers[file], listed[file], self.names, options, folder) for file in files]
        self.notices = [*format_remarks(headers), *_notices(folder, split, self.cases, self.names)]

    def __len__(self) -> int:
        return len(self.cases)

    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        """Return a volume with geometry, and its landmarks' voxels z, y, x, float64 (landmarks, 3)."""
        case = self.cases[index]
        decoded = self.store.get(case.file, self.within[0], (case.file,))
        return decoded, decoded.geometry.voxels(case.world)

    def stored(self, index: int) -> list[np.ndarray]:
        """Read the voxels of volume ``index`` at their stored spacing."""
        return [read_stored(self.cases[index].file, self.store.max_voxels)[0]]

    def world(self, index: int) -> np.ndarray:
        """Return the landmarks in RAS millimeters, float64 (landmarks, 3); NaN where missing."""
        return self.cases[index].world

    def placed(self) -> list[int]:
        """Count the volumes in which each landmark is present."""
        return np.sum([np.isfinite(case.world).all(axis=1) for case in self.cases], axis=0).tolist()

    def case(self, index: int) -> str:
        """Return the name of volume ``index``."""
        return self.cases[index].name

    def convention(self, index: int) -> str:
        """Return the convention of predictions for volume ``index``: "ras" or "lps"."""
        return self.cases[index].convention

    def describe(self, index: int) -> str:
        """Return the path of volume ``index``, for messages."""
        return self.cases[index].file

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return the facts that identify the dataset, by name."""
        # 0.01 mm, finer for voxels below 0.1 mm: the last digits differ between processors
        digits = max(2, 1 - math.floor(math.log10(self.spacing.min())))
        return {**super().listed(), "landmarks": [np.round(case.world, digits) + 0.0 for case in self.cases]}


def _read_case(folder: str, file: str) -> landmark_files.FileLandmarks:
    return landmark_files.read(landmark_files.find(folder, case_name(file)))


def _find_split(data_path: str | None, split: str) -> str:
    root = require_folder(data_path, "landmarks", _LAYOUT)
    folder = os.path.join(root, split)
    if split not in _TRAINED and not os.path.isdir(folder):
        require_split(
            split, [name for name in sorted(os.listdir(root)) if os.path.isdir(os.path.join(root, name))], root
        )
    return require_folder(folder, "landmarks", _LAYOUT)


def _collect_names(data_path: Any, split: str, listed: Iterable[landmark_files.FileLandmarks]) -> list[str]:
    """Collect the names in the files of this split, train and val, so that a model has the same outputs for each."""
    names = {name for landmarks in listed for name in landmarks.positions}
    for other in set(_TRAINED) - {split}:
        folder = os.path.join(os.path.abspath(os.path.expanduser(os.fspath(data_path))), other)
        if os.path.isdir(folder):
            for file in list_volumes(folder):
                names.update(_read_case(folder, file).positions)
    return sorted(names)


def _case(
    file: str,
    header: VolumeHeader,
    listed: landmark_files.FileLandmarks,
    names: list[str],
    options: VolumeOptions,
    folder: str,
) -> LandmarkCase:
    source = landmark_files.find(folder, case_name(file)) if listed.positions else file
    unknown = [landmark for landmark in listed.positions if landmark not in names]
    if unknown:
        raise UserError(
            f"{source}: landmark '{unknown[0]}' is not among VOLUMES.LANDMARKS ({', '.join(names)}): add it to "
            "the key, or remove it from the files"
        )
    convention = header.convention if options.coordinate_system == "file" else options.coordinate_system
    space = _space(source, listed.space, convention, options)
    world = np.full((len(names), 3), np.nan)
    for row, name in enumerate(names):
        position = listed.positions.get(name)
        if position is None:
            continue
        point = position[::-1] if space == "ijk" else header.geometry.voxels(convert(position, space))
        if not header.geometry.contains(point):
            voxel = ", ".join(f"{index:.1f}" for index in point[::-1])
            raise UserError(
                f"{source}: landmark '{shorten(name)}' is outside {os.path.basename(file)}: voxel ({voxel}) of "
                f"{' x '.join(map(str, header.geometry.shape[::-1]))} (x, y, z)"
                f"{_advice(position, space, header, is_stated=listed.space is not None)}"
            )
        world[row] = header.geometry.world(point)
    return LandmarkCase(case_name(file), file, world, convention)


def _space(source: str, stated: str | None, convention: str, options: VolumeOptions) -> str:
    """Return the unit of a landmark file's coordinates: "ras" or "lps" millimeters, or "ijk" voxels."""
    if stated == "unknown":
        if options.coordinate_system == "file":
            raise UserError(
                f"{source} has no coordinate system; add the line '# CoordinateSystem = LPS' (or RAS), or "
                "set VOLUMES.COORDINATE_SYSTEM"
            )
        return convention
    if stated is not None:
        return stated
    return "ijk" if options.landmark_units == "voxel" else convention


def _advice(position: np.ndarray, space: str, header: VolumeHeader, is_stated: bool) -> str:
    """Format advice on a position outside its volume; see ``_case`` for ``space`` and ``position``."""
    other = {"ras": "lps", "lps": "ras"}.get(space)
    fits_other = other is not None and header.geometry.contains(header.geometry.voxels(convert(position, other)))
    if is_stated:
        guess = "; with x and y negated it would be inside" if fits_other else ""
        return f"{guess}; the file specifies its coordinate system: does it belong to this volume?"
    guess = f"; read as {other.upper()} instead of {space.upper()} it would be inside" if other and fits_other else ""
    return f"{guess}; check VOLUMES.LANDMARK_UNITS and VOLUMES.COORDINATE_SYSTEM, or leave its coordinates empty"


def _other_files(folder: str) -> list[str]:
    """List the visible files in a folder that are neither volumes nor landmarks."""
    used = {part for file in list_volumes(folder) for part in list_parts(file)}
    used.update(os.path.join(folder, name) for name in landmark_files.list_files(folder))
    return [file for file in dicom.list_regular_files(folder) if file not in used]


def _notices(folder: str, split: str, cases: list[LandmarkCase], names: list[str]) -> list[str]:
    notices = []
    case_names = {case.name for case in cases}
    unused = [file for file in landmark_files.list_files(folder) if landmark_files.get_case(file) not in case_names]
    if unused:
        more = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
        notices.append(f"note: {folder}: no volume matches {', '.join(unused[:3])}{more}; not used")
    others = _other_files(folder)
    if dicom.contains_dicom(folder):
        notices.append(f"note: {folder} contains {_LOOSE}; not used")
    elif others:
        notices.append(f"note: {folder} also contains {count_by_suffix(others)}; not used")
    worlds = [case.world for case in cases]
    notices += find_absent(folder, worlds, names) if split == "train" else []
    return [*notices, *find_exchanged(folder, worlds, names)]
