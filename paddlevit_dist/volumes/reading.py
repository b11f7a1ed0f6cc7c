"""Volumes from files, NIfTI, NumPy's .npy and .npz, MetaImage and NRRD, and from folders of DICOM slices."""

from __future__ import annotations

import importlib
import os
import re
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np

from ..errors import UserError
from ..files import require_regular
from . import dicom, landmark_files
from .geometry import Geometry, affine_from, checked, spatial

_INSTALL = "pip install '.[volumes]' in the folder of paddlevit_dist's setup.py"
_DETACHED = (".mhd", ".nhdr")  # headers whose voxels are in other files
_NO_NIFTI_PLACE = (
    "no orientation in the header (sform_code and qform_code are 0): laid with x to the left, y to the front, z "
    "upwards and the middle at 0; check left and right"
)
_NO_NRRD_PLACE = (
    "no orientation in the header (no line 'space:'): laid as LPS, x to the left, y to the back, z upwards; check left "
    "and right"
)
_NIFTI_UNITS = {1: ("metres", 1000.0), 3: ("microns", 0.001)}  # code in xyzt_units; 2 is mm, 0 is unknown


class Header(NamedTuple):
    """A volume's header, before the voxels are read.

    Attributes:
        geometry: shape (depth, height, width) and affine to the world; axes are as in the file, only in the order
            z, y, x.
        convention: "ras" or "lps", the convention of its format, and so of a CSV or JSON file next to it.
        remarks: assumptions about the file or changes to it that the user should know about.
    """

    geometry: Geometry
    convention: str
    remarks: Tuple[str, ...] = ()


class _Opened(NamedTuple):
    shape: Tuple[int, ...]  # in the order z, y, x; more than three for a series
    affine: np.ndarray  # to millimetres in the convention
    convention: str
    load: Callable[[], np.ndarray]
    remarks: Tuple[str, ...] = ()


def read_header(path: str) -> Header:
    """Shape and place of a volume, a file or a folder of DICOM slices.

    Raises:
        UserError: no such file, unknown format, damaged, not three-dimensional, or a singular affine.
    """
    file = os.fspath(path)
    return _header(file, _open(file))


def read_volume(path: str) -> Tuple[np.ndarray, Header]:
    """The voxels (depth, height, width), in the file's dtype, and the header.

    Raises:
        UserError: as ``read_header``; or voxels are not real, finite numbers.
    """
    file = os.fspath(path)
    opened = _open(file)
    header = _header(file, opened)
    array = _understood(file, opened.load).reshape(header.geometry.shape)
    if array.dtype.kind not in "uifb":
        raise UserError(f"{file}: voxels are {array.dtype}, expected real numbers; convert colours to intensities")
    if array.dtype.kind == "f":
        bad = int(array.size - np.isfinite(array).sum())
        if bad:
            raise UserError(
                f"{file}: {bad:,} of {array.size:,} voxels are not finite; replace them, e.g. by the intensity of "
                "air (numpy.nan_to_num)"
            )
    return array, header


def list_volumes(folder: str) -> List[str]:
    """Paths of the volumes in a folder, sorted by name; hidden files are ignored.

    A folder in it is a volume if it holds DICOM files, or if there is a file of landmarks for it.

    Raises:
        UserError: two of them have the same name apart from the format.
    """
    visible = [path for path in Path(folder).iterdir() if not path.name.startswith(".")]
    files = [str(path) for path in visible if not path.is_dir() and path.name.lower().endswith(tuple(_READERS))]
    names = {case_name(file) for file in files}
    for path in visible:
        if path.is_dir() and (dicom.holds_dicom(str(path)) or (path.name not in names and _has_landmarks(str(path)))):
            files.append(str(path))
    by_name: Dict[str, str] = {}
    for file in sorted(files):
        other = by_name.setdefault(case_name(file), file)
        if other != file:
            raise UserError(f"{file} and {os.path.basename(other)} have one name, and so one landmark file; rename one")
    return sorted(files)


def _has_landmarks(path: str) -> bool:
    return bool(landmark_files.files_of(os.path.dirname(path), os.path.basename(path)))


def parts_of(path: str) -> List[str]:
    """All files that hold a volume: itself, the voxels beside a detached header, or the files of a folder."""
    if os.path.isdir(path):
        return dicom.files_in(path)
    named = _named_by(path) if path.lower().endswith(_DETACHED) else []
    return [path, *(part for part in named if os.path.isfile(part))]


def _named_by(header: str) -> List[str]:
    """Files that the text of a detached header names, there or not."""
    with open(header, "rb") as content:
        text = content.read(1 << 20).split(b"\n\n")[0].decode("utf-8", errors="replace")
    found = re.search(r"^(?:ElementDataFile\s*=|data ?file:)\s*(.*)", text, re.IGNORECASE | re.MULTILINE | re.DOTALL)
    if found is None:
        return []
    folder = os.path.dirname(header)
    first, *more = [line.strip() for line in found.group(1).splitlines()] or [""]
    names = more if first.split(" ")[0] == "LIST" else [first]  # after LIST, one per line
    is_name = [bool(name) and name.upper() != "LOCAL" and "%" not in name for name in names]  # %: of numbered files
    return [os.path.join(folder, name) for name, is_one in zip(names, is_name) if is_one]


def case_name(path: str) -> str:
    """File name without folder and suffix; the whole name of a folder."""
    name = os.path.basename(path)
    return name if os.path.isdir(path) else name[: -len(_suffix(name))]


def _header(file: str, opened: _Opened) -> Header:
    return Header(
        checked(opened.shape, affine_from(opened.affine, opened.convention), file),
        opened.convention,
        opened.remarks,
    )


def _open(file: str) -> _Opened:
    if os.path.isdir(file):
        return _understood(file, lambda: _open_folder(file))
    reader = _READERS[_suffix(file)]
    try:
        require_regular(file)
    except FileNotFoundError:
        raise UserError(f"{file}: no such file") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return _understood(file, lambda: reader(file))


def _understood(file: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (UserError, MemoryError):
        raise
    except Exception as error:  # each library has errors of its own for what it cannot read
        reason = " ".join(str(error).split())
        raise UserError(f"{file} cannot be read as a volume ({reason}); is it complete? Copy it again") from error


def _suffix(file: str) -> str:
    for suffix in _READERS:
        if file.lower().endswith(suffix):
            return suffix
    raise UserError(f"{file}: not a volume; expected one of {', '.join(_READERS)}")


def _library(name: str, file: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{file}: reading it needs {name}: {_INSTALL}") from error


def _open_nifti(file: str) -> _Opened:
    nibabel = _library("nibabel", file)
    image = nibabel.load(file)
    affine, remarks = image.affine, []
    if isinstance(image.header, nibabel.Nifti1Header):  # NIfTI-2's too
        if not image.header["sform_code"] and not image.header["qform_code"]:
            remarks.append(_NO_NIFTI_PLACE)
        unit = int(image.header["xyzt_units"]) & 7
        if unit in _NIFTI_UNITS:
            name, factor = _NIFTI_UNITS[unit]
            affine = np.diag([factor] * 3 + [1.0]) @ affine
            remarks.append(f"lengths in the header are in {name} (xyzt_units): converted to millimetres")
        elif unit not in (0, 2):
            raise UserError(f"{file}: xyzt_units names the unknown unit of length {unit}; write 2 (mm) into the header")
    return _Opened(image.shape[::-1], affine, "ras", lambda: np.asanyarray(image.dataobj).T, tuple(remarks))


def _open_npy(file: str) -> _Opened:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return _Opened(array.shape, np.eye(4), "ras", lambda: array)


def _open_npz(file: str) -> _Opened:
    with np.load(file, allow_pickle=False) as stored:
        if "volume" not in stored:
            raise UserError(f"{file}: no array named 'volume' in it, only {', '.join(stored.files) or 'nothing'}")
        affine = np.eye(4)
        if "affine" in stored:
            affine = stored["affine"]
        elif "spacing" in stored:  # (depth, height, width), as the array
            spacing = np.asarray(stored["spacing"], dtype=np.float64)
            if spacing.shape != (3,) or not (spacing > 0).all():
                raise UserError(f"{file}: spacing is {spacing.tolist()}, expected 3 lengths (depth, height, width)")
            affine = np.diag([*spacing[::-1], 1.0])
    return _Opened(_npz_shape(file), affine, "ras", lambda: _load_npz(file))


def _npz_shape(file: str) -> Tuple[int, ...]:
    """Shape of the array "volume" from its header alone."""
    with zipfile.ZipFile(file) as archive, archive.open("volume.npy") as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        return read(member)[0]


def _load_npz(file: str) -> np.ndarray:
    with np.load(file, allow_pickle=False) as stored:
        return stored["volume"]


def _open_itk(file: str) -> _Opened:
    itk = _library("SimpleITK", file)
    # A part that is a pipe or a device counts as missing.
    missing = [part for part in (_named_by(file) if _suffix(file) in _DETACHED else []) if not os.path.isfile(part)]
    if missing:
        raise UserError(f"{file}: its voxels are in {missing[0]}, which does not exist; copy it beside the header")
    reader = itk.ImageFileReader()
    reader.SetFileName(file)
    if _suffix(file) in (".mha", ".mhd") and not file.endswith(_suffix(file)):
        reader.SetImageIO("MetaImageIO")  # by default it knows only the lowercase suffix
    _told_by_itk(file, "its header is damaged", reader.ReadImageInformation)
    size, parts = reader.GetSize(), reader.GetNumberOfComponents()
    shape = (*size[::-1], *([parts] if parts > 1 else []))
    axes = len(size)
    if axes < 3 or len(spatial(shape)) != 3:
        return _Opened(shape, np.eye(4), "lps", lambda: np.zeros(0))
    affine = np.eye(4)
    directions = np.asarray(reader.GetDirection()).reshape(axes, axes)[:3, :3]  # a column for each of x, y, z
    affine[:3, :3] = directions * np.asarray(reader.GetSpacing()[:3])
    affine[:3, 3] = reader.GetOrigin()[:3]
    says_place = _suffix(file) not in (".nrrd", ".nhdr") or reader.HasMetaDataKey("NRRD_space")
    return _Opened(
        shape,
        affine,
        "lps",
        lambda: itk.GetArrayFromImage(
            _told_by_itk(file, "there are fewer voxels than its header says", reader.Execute)
        ),
        () if says_place else (_NO_NRRD_PLACE,),
    )


def _told_by_itk(file: str, reason: str, read: Callable[[], Any]) -> Any:
    """What ``read`` returns; SimpleITK's own messages mention its source files."""
    try:
        return read()
    except RuntimeError as error:
        if "memory" in str(error).lower():
            raise
        raise UserError(
            f"{file} cannot be read as a volume: probably {reason}; is it complete? Copy it again"
        ) from error


def _open_folder(folder: str) -> _Opened:
    series = dicom.open_series(folder, _library("SimpleITK", folder))
    return _Opened(series.shape, series.affine, "lps", series.load)


_READERS: Dict[str, Callable[[str], _Opened]] = {
    ".nii.gz": _open_nifti,
    ".nii": _open_nifti,
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".mha": _open_itk,
    ".mhd": _open_itk,
    ".nrrd": _open_itk,
    ".nhdr": _open_itk,
}
