"""Volumes from files, NIfTI, NumPy's .npy and .npz, MetaImage and NRRD, and from folders of DICOM slices."""

import gzip
import importlib
import math
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.files import require_regular
from . import dicom, landmark_files
from .geometry import (
    PACKED,
    PLAIN,
    VolumeGeometry,
    affine_from,
    check_fits,
    check_geometry,
    check_voxels,
    spatial,
    step_lengths,
    turned_spacing,
)
from .settings import MAX_VOXELS

_INSTALL = "pip install '.[volumes]' in the folder of paddlevit_dist's setup.py"
_OF_ITK = (".mha", ".mhd", ".nrrd", ".nhdr")
_VOXEL_FILE = re.compile(rb"^(?:ElementDataFile[ \t]*=|data ?file[ \t]*:)([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_LONGEST_HEADER = 1 << 16  # bytes in which that is looked for
_SAME_PLACE = 0.05  # of the smallest spacing: how far corners of files of one volume may be apart
_LONGEST_REASON = 200  # characters of what a library says
_SMALL_ARRAY = 4096  # bytes of an affine or a spacing in an .npz, its header included
_LONGEST_EXTENSIONS = 1 << 26  # bytes between a NIfTI's header and its voxels
_NO_NIFTI_PLACE = (
    "no orientation in the header (sform_code and qform_code are 0): laid with x to the left, y to the front, z "
    "upwards and the middle at 0; check left and right"
)
_TWO_NIFTI_PLACES = (
    "sform and qform in the header lay its voxels at different places: the sform is used, which other programs may not "
    "do; correct the header"
)
_NO_NRRD_PLACE = (
    "no orientation in the header (no line 'space:'): laid as LPS, x to the left, y to the back, z upwards; check left "
    "and right"
)
_NIFTI_UNITS = {1: ("meters", 1000.0), 3: ("microns", 0.001)}  # code in xyzt_units; 2 is mm, 0 is unknown


class VolumeHeader(NamedTuple):
    """A volume's header, before the voxels are read.

    Attributes:
        geometry: shape (depth, height, width) and affine to the world; axes are as in the file, only in the order
            z, y, x.
        convention: "ras" or "lps", the convention of its format, and so of a CSV or JSON file next to it.
        remarks: assumptions about the file or changes to it that the user should know about.
    """

    geometry: VolumeGeometry
    convention: str
    remarks: tuple[str, ...] = ()


class _OpenedVolume(NamedTuple):
    shape: tuple[int, ...]  # in the order z, y, x; more than three for a series
    affine: np.ndarray  # to millimeters in the convention
    convention: str
    load: Callable[[], np.ndarray]
    remarks: tuple[str, ...] = ()


def read_header(path: str, max_voxels: int = MAX_VOXELS) -> VolumeHeader:
    """Shape and place of a volume, a file or a folder of DICOM slices.

    Raises:
        UserError: no such file, unknown format, damaged, not three-dimensional, too large, or a singular affine.
    """
    file = os.fspath(path)
    return _header(file, _open(file), max_voxels)


def read_volume(path: str, max_voxels: int = MAX_VOXELS) -> tuple[np.ndarray, VolumeHeader]:
    """The voxels (depth, height, width), in the file's dtype, and the header.

    Raises:
        UserError: as ``read_header``; or voxels are not real, finite numbers.
    """
    file = os.fspath(path)
    opened = _open(file)
    header = _header(file, opened, max_voxels)
    array = _understood(file, opened.load).reshape(header.geometry.shape)
    if array.dtype.kind not in "uifb":
        raise UserError(f"{file}: voxels are {array.dtype}, expected real numbers; convert colors to intensities")
    if array.dtype.kind == "f":
        bad = int(array.size - np.isfinite(array).sum())
        if bad:
            raise UserError(
                f"{file}: {bad:,} of {array.size:,} voxels are not finite; replace them, e.g. by the intensity of "
                "air (numpy.nan_to_num)"
            )
    return array, header


def headers_in_one_place(files: Sequence[str], max_voxels: int = MAX_VOXELS) -> dict[str, VolumeHeader]:
    """Headers of files, such as an image and its labels, that have the same voxels at the same places.

    Raises:
        UserError: as ``read_header``; or names two files and what differs.
    """
    headers = {file: read_header(file, max_voxels) for file in files}
    for file in files[1:]:
        _require_same_place(files[0], headers[files[0]].geometry, file, headers[file].geometry)
    return headers


def _require_same_place(first: str, one: VolumeGeometry, second: str, other: VolumeGeometry) -> None:
    if one.shape != other.shape:
        both = [" x ".join(map(str, geometry.shape[::-1])) for geometry in (other, one)]
        what = f"{both[0]} voxels (x, y, z) and {both[1]}"
    else:
        apart = _farthest_apart(one, other)
        if apart <= _SAME_PLACE * one.spacing.min():
            return
        if not np.allclose(one.spacing, other.spacing, rtol=1e-3):
            both = [" x ".join(f"{length:.4g}" for length in geometry.spacing[::-1]) for geometry in (other, one)]
            what = f"spacing {both[0]} and {both[1]} mm (x, y, z)"
        else:
            both = [", ".join(f"{place:.2f}" for place in geometry.affine[:3, 3]) for geometry in (other, one)]
            what = f"origin {both[0]} and {both[1]} mm, or another direction; corners are {apart:.3g} mm apart"
    raise UserError(
        f"{second} does not lie where {first} does: {what}; resample one onto the other, or correct its header"
    )


def _farthest_apart(one: VolumeGeometry, other: VolumeGeometry) -> float:
    """Millimeters along an axis of the world between the places of a corner in two arrays of one shape."""
    corners = np.array(np.meshgrid(*((0, length - 1) for length in one.shape))).reshape(3, -1).T
    return float(np.abs(one.world(corners) - other.world(corners)).max())


def remarks_on(headers: dict[str, VolumeHeader]) -> list[str]:
    """Each remark once, with the first file it concerns and the number of others."""
    files: dict[str, list[str]] = {}
    for file, header in headers.items():
        for remark in header.remarks:
            files.setdefault(remark, []).append(file)
    lines = []
    for remark, own in files.items():
        more = f" and {len(own) - 1:,} more" if len(own) > 1 else ""
        lines.append(f"note: {own[0]}{more}: {remark}")
    return lines


def list_volumes(folder: str) -> list[str]:
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
    by_name: dict[str, str] = {}
    for file in sorted(files):
        other = by_name.setdefault(case_name(file), file)
        if other != file:
            raise UserError(f"{file} and {os.path.basename(other)} have one name, and so one landmark file; rename one")
    return sorted(files)


def _has_landmarks(path: str) -> bool:
    return bool(landmark_files.find_landmark_files(os.path.dirname(path), os.path.basename(path)))


def list_parts(path: str) -> list[str]:
    """All files that hold a volume: itself, the voxels beside a detached header, or the files of a folder."""
    if os.path.isdir(path):
        return dicom.files_in(path)
    return [path, *filter(os.path.isfile, _voxels_beside(path))]


def case_name(path: str) -> str:
    """File name without folder and suffix; the whole name of a folder."""
    name = os.path.basename(path)
    return name if os.path.isdir(path) else name[: -len(_suffix(name))]


def _header(file: str, opened: _OpenedVolume, max_voxels: int) -> VolumeHeader:
    check_voxels(file, opened.shape, max_voxels)
    return VolumeHeader(
        check_geometry(opened.shape, affine_from(opened.affine, opened.convention), file),
        opened.convention,
        opened.remarks,
    )


def _open(file: str) -> _OpenedVolume:
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
        said = str(error).rpartition("ERROR: ")[2]  # SimpleITK names its own source files first
        reason = ascii(" ".join(said.split()))[1:-1][:_LONGEST_REASON]
        raise UserError(f"{file} cannot be read as a volume ({reason}); is it complete? Copy it again") from error


def _suffix(file: str) -> str:
    for suffix in _READERS:
        if file.lower().endswith(suffix):
            return suffix
    raise UserError(f"{file}: not a volume; expected one of {', '.join(_READERS)}")


def library(name: str, file: str) -> Any:
    """A library of the extra "volumes", which ``file`` needs.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{file}: this needs {name}: {_INSTALL}") from error


def _open_nifti(file: str) -> _OpenedVolume:
    nibabel = library("nibabel", file)
    image = _nifti_class(nibabel, file).from_filename(file)
    affine, remarks = image.affine, []
    if not image.header["sform_code"] and not image.header["qform_code"]:
        remarks.append(_NO_NIFTI_PLACE)
    if image.header["sform_code"] and image.header["qform_code"]:
        one, other = (VolumeGeometry(image.shape[2::-1], form) for form in (image.get_sform(), image.get_qform()))
        if _farthest_apart(one, other) > _SAME_PLACE * other.spacing.min():
            remarks.append(_TWO_NIFTI_PLACES)
    unit = int(image.header["xyzt_units"]) & 7
    if unit in _NIFTI_UNITS:
        name, factor = _NIFTI_UNITS[unit]
        affine = np.diag([factor] * 3 + [1.0]) @ affine
        remarks.append(f"lengths in the header are in {name} (xyzt_units): converted to millimeters")
    elif unit not in (0, 2):
        raise UserError(f"{file}: xyzt_units names the unknown unit of length {unit}; write 2 (mm) into the header")
    return _OpenedVolume(image.shape[::-1], affine, "ras", lambda: np.asanyarray(image.dataobj).T, tuple(remarks))


def _nifti_class(nibabel: Any, file: str) -> Any:
    """The class that reads a file, once its header announces no more than the file can hold."""
    is_gzip = file.lower().endswith(".gz")
    with gzip.open(file) if is_gzip else open(file, "rb") as content:
        beginning = content.read(540)  # the length of NIfTI-2's header, which comes first in it
    is_second = 540 in (int.from_bytes(beginning[:4], order) for order in ("little", "big"))
    kind = nibabel.Nifti2Image if is_second else nibabel.Nifti1Image
    length = kind.header_class.sizeof_hdr
    if len(beginning) < length:
        raise UserError(f"{file} cannot be read as a volume: it ends within its header; copy it again")
    header = kind.header_class(beginning[:length])
    offset = int(header.get_data_offset())
    if not 0 <= offset <= _LONGEST_EXTENSIONS:
        raise UserError(f"{file}: its header says that voxels begin at byte {offset}; write the file again")
    voxels = math.prod(map(int, header.get_data_shape())) * header.get_data_dtype().itemsize
    check_fits(file, voxels, os.path.getsize(file), PACKED if is_gzip else PLAIN)
    return kind


def _open_npy(file: str) -> _OpenedVolume:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return _OpenedVolume(array.shape, np.eye(4), "ras", lambda: array)


def _open_npz(file: str) -> _OpenedVolume:
    shape = _npz_shape(file)
    with np.load(file, allow_pickle=False) as stored:
        if "volume" not in stored:
            raise UserError(f"{file}: no array named 'volume' in it, only {', '.join(stored.files) or 'nothing'}")
        affine = np.eye(4)
        if "affine" in stored:
            affine = np.asarray(stored["affine"], dtype=np.float64)
        elif "spacing" in stored:  # (depth, height, width), as the array
            spacing = np.asarray(stored["spacing"], dtype=np.float64)
            if spacing.shape != (3,) or not (spacing > 0).all():
                raise UserError(f"{file}: spacing is {spacing.tolist()}, expected 3 lengths (depth, height, width)")
            affine = np.diag([*spacing[::-1], 1.0])
    return _OpenedVolume(shape, affine, "ras", lambda: _load_npz(file))


def _npz_shape(file: str) -> tuple[int, ...]:
    """Shape of the array "volume" from its header alone, once it is what the archive has room for; () without one."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if {"volume", "affine", "spacing"} & set(entries):  # numpy would read such a member whole, as bytes
            raise UserError(f"{file} is not as numpy.savez writes it; write it again")
        shapes = {
            name: _member_shape(file, archive, entries[f"{name}.npy"], limit)
            for name, limit in (("volume", None), ("affine", _SMALL_ARRAY), ("spacing", _SMALL_ARRAY))
            if f"{name}.npy" in entries
        }
    return shapes.get("volume", ())


def _member_shape(file: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, largest: int | None) -> tuple:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UserError(f"{file} is compressed in a way that numpy does not use; write the file again")
    if largest is not None and entry.file_size > largest:
        raise UserError(f"{file}: its {entry.filename} has {entry.file_size:,} bytes; write the file again")
    check_fits(file, entry.file_size, min(entry.compress_size, os.path.getsize(file)), PACKED)
    with archive.open(entry) as member:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        check_fits(file, math.prod(shape) * dtype.itemsize, entry.file_size - member.tell(), PLAIN)
        return shape


def _load_npz(file: str) -> np.ndarray:
    with np.load(file, allow_pickle=False) as stored:
        return stored["volume"]


def _open_itk(file: str) -> _OpenedVolume:
    itk = library("SimpleITK", file)
    for part in _voxels_beside(file):
        if not os.path.isfile(part):
            raise UserError(f"{file}: its voxels are in {part}, which is no file; copy it beside the header")
    reader = itk.ImageFileReader()
    reader.SetFileName(file)
    # Without this it would look at the content, and know only a lowercase suffix.
    reader.SetImageIO("MetaImageIO" if _suffix(file) in (".mha", ".mhd") else "NrrdImageIO")
    reader.ReadImageInformation()
    size, numbers = reader.GetSize(), reader.GetNumberOfComponents()
    shape = (*size[::-1], *([numbers] if numbers > 1 else []))
    axes = len(size)
    if axes < 3 or len(spatial(shape)) != 3:
        return _OpenedVolume(shape, np.eye(4), "lps", lambda: np.zeros(0))
    affine = np.eye(4)
    directions = np.asarray(reader.GetDirection()).reshape(axes, axes)[:3, :3]  # a column for each of x, y, z
    affine[:3, :3] = directions * np.asarray(reader.GetSpacing()[:3])
    affine[:3, 3] = reader.GetOrigin()[:3]
    says_place = _suffix(file) not in (".nrrd", ".nhdr") or reader.HasMetaDataKey("NRRD_space")
    return _OpenedVolume(
        shape,
        affine,
        "lps",
        lambda: itk.GetArrayFromImage(reader.Execute()),
        () if says_place else (_NO_NRRD_PLACE,),
    )


def _voxels_beside(header: str) -> list[str]:
    """The file that a header of MetaImage or NRRD names as that of its voxels, if it names one."""
    if not header.lower().endswith(_OF_ITK):
        return []
    with open(header, "rb") as content:
        named = _VOXEL_FILE.search(content.read(_LONGEST_HEADER))
    name = os.fsdecode(named[1].strip()) if named else ""
    alone = name and "%" not in name and name.split()[0].upper() not in ("LOCAL", "LIST")
    return [os.path.join(os.path.dirname(header), name)] if alone else []


def _open_folder(folder: str) -> _OpenedVolume:
    series = dicom.open_series(folder, library("SimpleITK", folder))
    return _OpenedVolume(series.shape, series.affine, "lps", series.load)


_READERS: dict[str, Callable[[str], _OpenedVolume]] = {
    ".nii.gz": _open_nifti,
    ".nii": _open_nifti,
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".mha": _open_itk,
    ".mhd": _open_itk,
    ".nrrd": _open_itk,
    ".nhdr": _open_itk,
}
SUFFIXES = tuple(_READERS)  # of files that are volumes


def common_spacing(headers: dict[str, VolumeHeader], wanted: Sequence[float] | None) -> np.ndarray:
    """Millimeters (depth, height, width) at which volumes are read: ``wanted``, or else the spacing that all have.

    Raises:
        UserError: theirs differ.
    """
    if wanted is not None:
        return np.array(wanted, dtype=np.float64)
    first = next(iter(headers))
    found = {file: step_lengths(turned_spacing(header.geometry)) for file, header in headers.items()}
    reference, middle = found[first], np.median(list(found.values()), axis=0)
    for file, spacing in found.items():
        if not np.allclose(spacing, reference, rtol=1e-3):
            raise UserError(
                f"{file}: the voxel spacing is {_millimeters(spacing)} but that of {os.path.basename(first)} is "
                f"{_millimeters(reference)} (depth, height, width); resample all to one, such as the median, with "
                f"VOLUMES.SPACING_MM [{','.join(f'{length:.3g}' for length in middle)}]"
            )
    return reference


def _millimeters(spacing: np.ndarray) -> str:
    return " x ".join(f"{length:.4g}" for length in spacing) + " mm"
