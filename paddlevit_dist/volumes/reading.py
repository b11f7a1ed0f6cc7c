"""Readers of volumes: NIfTI, NumPy's .npy and .npz, MetaImage, NRRD, and folders of DICOM slices."""

import gzip
import importlib
import math
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..core.runtime.errors import UserError
from ..core.runtime.files import readable, require_regular
from . import dicom, header_remarks, landmark_files, length_units
from .geometry import (
    PACKED,
    PLAIN,
    VolumeGeometry,
    affine_to_world,
    check_fits,
    check_geometry,
    check_voxels,
    describe_difference,
    drop_leading_axes,
    is_same_place,
    step_lengths,
    turned_spacing,
)
from .settings import MAX_VOXELS

_INSTALL = "pip install '.[volumes]' in the folder of paddlevit_dist's setup.py"
_ITK_SUFFIXES = (".mha", ".mhd", ".nrrd", ".nhdr")
_VOXEL_FILE = re.compile(rb"^(?:ElementDataFile[ \t]*=|data ?file[ \t]*:)([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_LONGEST_HEADER = 1 << 16  # bytes searched for _VOXEL_FILE
_LONGEST_REASON = 200  # characters of a library's error message
_SMALL_ARRAY = 4096  # bytes of an affine or a spacing in an .npz, including its header
_LONGEST_EXTENSIONS = 1 << 26  # bytes between the header and the voxels of a NIfTI file


class FileChannel(str):
    """The path of a file whose fourth axis is channels; ``channel`` is the one that is read."""

    channel: int

    def __new__(cls, path: str, channel: int) -> "FileChannel":
        """Return the path with the number of a channel, from 0."""
        self = super().__new__(cls, path)
        self.channel = channel
        return self

    def __reduce__(self) -> Any:
        return FileChannel, (str(self), self.channel)


class VolumeHeader(NamedTuple):
    """Header of a volume, read before the voxels."""

    # shape (depth, height, width) and affine to the world; axes as in the file, in the order z, y, x
    geometry: VolumeGeometry
    convention: str  # "ras" or "lps", the convention of the format, also for a CSV or JSON file next to it
    remarks: tuple[str, ...] = ()  # assumptions about the file or changes to it, for the log


class _OpenedVolume(NamedTuple):
    shape: tuple[int, ...]  # in the order z, y, x; more than three axes for a series
    affine: np.ndarray  # to millimeters in the convention
    convention: str
    load: Callable[[], np.ndarray]
    remarks: tuple[str, ...] = ()
    has_time: bool = False  # whether the header says that a fourth axis is time


def read_header(path: str, max_voxels: int = MAX_VOXELS) -> VolumeHeader:
    """Read the shape and position of a volume: a file or a folder of DICOM slices.

    UserError if the file does not exist, is damaged, has an unknown format, is not three-dimensional or too large, or
    has a singular affine.
    """
    file = os.fspath(path)
    return _header(file, _open(file), max_voxels)


def read_volume(path: str, max_voxels: int = MAX_VOXELS, are_labels: bool = False) -> tuple[np.ndarray, VolumeHeader]:
    """Read the voxels (depth, height, width), in the file's dtype, and the header.

    UserError is as from ``read_header``, or if voxels are not real, finite numbers.
    """
    file = os.fspath(path)
    opened = _open(file)
    header = _header(file, opened, max_voxels)
    array = _read_or_raise(file, opened.load).reshape(header.geometry.shape)
    if array.dtype.kind not in "uifb":
        raise UserError(f"{file}: voxels are {array.dtype}, expected real numbers; convert colors to intensities")
    if array.dtype.kind == "f":
        bad = int(array.size - np.isfinite(array).sum())
        if bad:
            advice = "replace them, e.g. by the intensity of air (numpy.nan_to_num)"
            if are_labels:
                advice = "NaN is not a label: give them one, e.g. 0 for the background (numpy.nan_to_num)"
            raise UserError(f"{file}: {bad:,} of {array.size:,} voxels are not finite; {advice}")
    return array, header


def read_aligned_headers(files: Sequence[str], max_voxels: int = MAX_VOXELS) -> dict[str, VolumeHeader]:
    """Read the headers of files, such as an image and its labels; UserError also if their geometries differ."""
    headers = {path: read_header(path, max_voxels) for path in files}
    for file in files[1:]:
        _require_same_place(files[0], headers[files[0]].geometry, file, headers[file].geometry)
    return headers


def _require_same_place(
    first: str, first_geometry: VolumeGeometry, second: str, second_geometry: VolumeGeometry
) -> None:
    what = describe_difference(first_geometry, second_geometry)
    if what:
        raise UserError(
            f"{second} and {first} have different geometries: {what}; resample one to the other, or correct its header"
        )


def format_remarks(headers: dict[str, VolumeHeader]) -> list[str]:
    """Format each remark once, with the first file that it concerns and the number of others."""
    files: dict[str, list[str]] = {}
    for file, header in headers.items():
        for remark in header.remarks:
            files.setdefault(remark, []).append(file)
    lines = []
    for remark, concerned in files.items():
        more = f" and {len(concerned) - 1:,} more" if len(concerned) > 1 else ""
        lines.append(f"note: {concerned[0]}{more}: {remark}")
    return lines


def list_volumes(folder: str) -> list[str]:
    """List the paths of the volumes in a folder, sorted by name; hidden files are ignored.

    A subfolder is a volume if it contains DICOM files, or if a landmark file has its name. UserError if two volumes
    have the same name apart from the format.
    """
    visible = [place for place in Path(folder).iterdir() if not place.name.startswith(".")]
    files = [str(place) for place in visible if not place.is_dir() and place.name.lower().endswith(tuple(_READERS))]
    names = {case_name(source) for source in files}
    for path in filter(Path.is_dir, visible):
        has_landmarks = path.name not in names and landmark_files.find_landmark_files(folder, path.name)
        if has_landmarks or dicom.contains_dicom(str(path)):
            files.append(str(path))
    by_name: dict[str, str] = {}
    for file in sorted(files):
        other = by_name.setdefault(case_name(file), file)
        if other != file:
            raise UserError(
                f"{file} and {os.path.basename(other)} have the same name, so the same landmark file; rename one"
            )
    return sorted(files)


def find_conventions(folder: str) -> dict[str, str]:
    """Find the conventions of the volumes in a folder by name, "ras" or "lps", from their formats alone.

    Names of volumes in formats of both conventions are omitted, and folders without a landmark file.
    """
    found: dict[str, set[str]] = {}
    for path in map(str, Path(folder).iterdir()):
        if os.path.basename(path).startswith("."):
            continue
        if os.path.isdir(path):
            name = case_name(path)
            if landmark_files.find_landmark_files(folder, name) and dicom.contains_dicom(path):
                found.setdefault(name, set()).add("lps")
        elif path.lower().endswith(tuple(_READERS)):
            found.setdefault(case_name(path), set()).add("lps" if path.lower().endswith(_ITK_SUFFIXES) else "ras")
    return {name: conventions.pop() for name, conventions in found.items() if len(conventions) == 1}


def list_parts(path: str) -> list[str]:
    """List all files of a volume: the file, the voxel file of a detached header, or the files of a folder."""
    if os.path.isdir(path):
        return dicom.list_regular_files(path)
    return [path, *filter(os.path.isfile, detached_voxel_files(path))]


def case_name(path: str) -> str:
    """Return the file name without folder and suffix; for a folder, the whole name."""
    name = os.path.basename(path)
    return name if os.path.isdir(path) else name[: -len(_suffix(name))]


def _header(file: str, opened: _OpenedVolume, max_voxels: int) -> VolumeHeader:
    check_voxels(file, opened.shape, max_voxels)
    return VolumeHeader(
        check_geometry(opened.shape, affine_to_world(opened.affine, opened.convention), file),
        opened.convention,
        opened.remarks,
    )


def _open(file: str) -> _OpenedVolume:
    if os.path.isdir(file):
        return _read_or_raise(file, lambda: _open_folder(file))
    reader = _READERS[_suffix(file)]
    with readable(file):
        require_regular(file)
    opened = _read_or_raise(file, lambda: reader(file))
    if isinstance(file, FileChannel):
        channel, load = file.channel, opened.load
        opened = opened._replace(shape=opened.shape[1:], load=lambda: load()[channel])
    return opened


def list_channels(file: str, number: int) -> tuple[str, ...]:
    """Return the channels of a file: itself, or ``number`` parts if it has this number of them along its fourth axis.

    Raises:
        UserError: its header says that the fourth axis is time.
    """
    opened = _open(file) if number > 1 and file.lower().endswith((".nii", ".nii.gz")) else None
    if opened is None or len(opened.shape) != 4 or opened.shape[0] != number:
        return (file,)
    if opened.has_time:
        raise UserError(
            f"{file}: its fourth axis is time, as its header says (xyzt_units): if it is the {number} channels, write "
            "mm alone to the header (nibabel: image.header.set_xyzt_units('mm')), or one file for each channel"
        )
    return tuple(FileChannel(file, channel) for channel in range(number))


def _read_or_raise(file: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (UserError, MemoryError):
        raise
    except Exception as error:  # each library has its own errors for unreadable files
        message = str(error).rpartition("ERROR: ")[2]  # SimpleITK names its own source files first
        reason = ascii(" ".join(message.split()))[1:-1][:_LONGEST_REASON]
        raise UserError(f"{file} cannot be read as a volume ({reason}); is it complete? Copy it again") from error


def _suffix(file: str) -> str:
    for suffix in _READERS:
        if file.lower().endswith(suffix):
            return suffix
    raise UserError(f"{file}: unknown volume format; expected one of {', '.join(_READERS)}")


def import_extra(name: str, file: str) -> Any:
    """Import a library of the extra "volumes" that ``file`` needs; UserError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{file}: requires {name}; install it with {_INSTALL}") from error


def _open_nifti(file: str) -> _OpenedVolume:
    nibabel = import_extra("nibabel", file)
    kind, beginning = _nifti_class(nibabel, file)
    image = kind.from_filename(file)
    affine, remarks = image.affine, header_remarks.of_nifti(image.header, beginning)
    if image.header["sform_code"] and image.header["qform_code"]:
        sform, qform = (VolumeGeometry(image.shape[2::-1], form) for form in (image.get_sform(), image.get_qform()))
        if not is_same_place(qform, sform):
            remarks.append(header_remarks.TWO_NIFTI_PLACES)
    units = int(image.header["xyzt_units"])
    affine, notes = length_units.convert_nifti(file, affine, units)
    shape, has_time = image.shape[::-1], units & 0x38 in (8, 16, 24)  # seconds, milliseconds, microseconds
    return _OpenedVolume(shape, affine, "ras", lambda: np.asanyarray(image.dataobj).T, (*remarks, *notes), has_time)


def _nifti_class(nibabel: ModuleType, file: str) -> tuple[Any, bytes]:
    """Return the NIfTI class and the header after checking that it does not announce more than the file contains."""
    is_gzip = file.lower().endswith(".gz")
    with gzip.open(file) if is_gzip else open(file, "rb") as content:
        beginning = content.read(540)  # length of a NIfTI-2 header, which is its first field
    is_second = 540 in (int.from_bytes(beginning[:4], "little"), int.from_bytes(beginning[:4], "big"))
    kind = nibabel.Nifti2Image if is_second else nibabel.Nifti1Image
    length = kind.header_class.sizeof_hdr
    if len(beginning) < length:
        raise UserError(f"{file} cannot be read as a volume: it ends within its header; copy it again")
    header = kind.header_class(beginning[:length], check=False)
    offset = int(header.get_data_offset())
    if not 0 <= offset <= _LONGEST_EXTENSIONS:
        raise UserError(f"{file}: voxels begin at byte {offset} according to its header; write the file again")
    voxels = math.prod(map(int, header.get_data_shape())) * header.get_data_dtype().itemsize
    check_fits(file, voxels, os.path.getsize(file), PACKED if is_gzip else PLAIN)
    return kind, beginning[:length]


def _open_npy(file: str) -> _OpenedVolume:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    return _OpenedVolume(array.shape, np.eye(4), "ras", lambda: array)


def _open_npz(file: str) -> _OpenedVolume:
    shape = _npz_shape(file)
    with np.load(file, allow_pickle=False) as stored:
        if "volume" not in stored:
            raise UserError(
                f"{file}: no array named 'volume', only {', '.join(stored.files) or 'nothing'}; name the array 'volume'"
            )
        affine = np.eye(4)
        if "affine" in stored:
            affine = np.asarray(stored["affine"], dtype=np.float64)
        elif "spacing" in stored:  # (depth, height, width), like the array
            spacing = np.asarray(stored["spacing"], dtype=np.float64)
            if spacing.shape != (3,) or not (spacing > 0).all():
                raise UserError(f"{file}: spacing is {spacing.tolist()}, expected 3 lengths (depth, height, width)")
            affine = np.diag([*spacing[::-1], 1.0])
    return _OpenedVolume(shape, affine, "ras", lambda: _load_npz(file))


def _npz_shape(file: str) -> tuple[int, ...]:
    """Read the shape of the array "volume" from its header, after checking the archive's sizes; () without one."""
    with zipfile.ZipFile(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        if {"volume", "affine", "spacing"} & set(entries):  # numpy would read such a member as bytes
            raise UserError(f"{file} was not written by numpy.savez; write it again with numpy.savez")
        shapes = {
            name: _member_shape(file, archive, entries[f"{name}.npy"], limit)
            for name, limit in (("volume", None), ("affine", _SMALL_ARRAY), ("spacing", _SMALL_ARRAY))
            if f"{name}.npy" in entries
        }
    return shapes.get("volume", ())


def _member_shape(file: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, largest: int | None) -> tuple:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UserError(f"{file} has a compression that numpy does not use; write it again with numpy.savez_compressed")
    if largest is not None and entry.file_size > largest:
        raise UserError(
            f"{file}: {entry.filename} has {entry.file_size:,} bytes, which is too large; write the file again"
        )
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
    itk = import_extra("SimpleITK", file)
    for part in detached_voxel_files(file):
        if not os.path.isfile(part):
            raise UserError(
                f"{file}: the header names the voxel file {part}, which does not exist; copy it next to the header"
            )
    reader = itk.ImageFileReader()
    reader.SetFileName(file)
    # Detection by content would accept only lowercase suffixes.
    reader.SetImageIO("MetaImageIO" if _suffix(file) in (".mha", ".mhd") else "NrrdImageIO")
    reader.ReadImageInformation()
    shape, components = reader.GetSize()[::-1], reader.GetNumberOfComponents()
    if components > 1:
        raise UserError(
            f"{file}: each voxel has {components} components, expected one intensity; convert colors to intensities, "
            "or store each channel in a separate file"
        )
    axes = len(shape)
    if len(drop_leading_axes(shape)) != 3:
        return _OpenedVolume(shape, np.eye(4), "lps", lambda: np.zeros(0))
    affine = np.eye(4)
    directions = np.asarray(reader.GetDirection()).reshape(axes, axes)[:3, :3]  # a column for each of x, y, z
    affine[:3, :3] = directions * np.asarray(reader.GetSpacing()[:3])
    affine[:3, 3] = reader.GetOrigin()[:3]
    header = _read_itk_header(file)
    affine, remarks = length_units.convert_itk(file, affine, header)
    remarks += header_remarks.of_itk(_suffix(file) in (".nrrd", ".nhdr"), header, affine)
    return _OpenedVolume(shape, affine, "lps", lambda: itk.GetArrayFromImage(reader.Execute()), tuple(remarks))


def _read_itk_header(file: str) -> bytes:
    """Return the lines of a MetaImage or NRRD header."""
    with open(file, "rb") as content:
        return re.split(rb"\r?\n\r?\n|ElementDataFile", content.read(_LONGEST_HEADER))[0]


def detached_voxel_files(header: str) -> list[str]:
    """Return the file that a MetaImage or NRRD header names for its voxels, as a list of at most one path."""
    if not header.lower().endswith(_ITK_SUFFIXES):
        return []
    with open(header, "rb") as content:
        match = _VOXEL_FILE.search(content.read(_LONGEST_HEADER))
    name = os.fsdecode(match[1].strip()) if match else ""
    is_single_file = name and "%" not in name and name.split()[0].upper() not in ("LOCAL", "LIST")
    return [os.path.join(os.path.dirname(header), name)] if is_single_file else []


def _open_folder(folder: str) -> _OpenedVolume:
    series = dicom.open_series(folder, import_extra("SimpleITK", folder))
    return _OpenedVolume(series.shape, series.affine, "lps", series.load, series.remarks)


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
SUFFIXES = tuple(_READERS)  # of volume files


def common_spacing(headers: dict[str, VolumeHeader], target: Sequence[float] | None) -> np.ndarray:
    """Return the spacing, mm (depth, height, width), of all volumes: ``target`` or the common one, or UserError."""
    if target is not None:
        return np.array(target, dtype=np.float64)
    first = next(iter(headers))
    spacings = {path: step_lengths(turned_spacing(header.geometry)) for path, header in headers.items()}
    reference, middle = spacings[first], np.median(list(spacings.values()), axis=0)
    for file, spacing in spacings.items():
        if not np.allclose(spacing, reference, rtol=1e-3):
            raise UserError(
                f"{file}: the voxel spacing is {_millimeters(spacing)}, but {os.path.basename(first)} has "
                f"{_millimeters(reference)} (depth, height, width); resample all to the same, such as the median: add "
                f"VOLUMES.SPACING_MM [{','.join(f'{length:.3g}' for length in middle)}]"
            )
    return reference


def _millimeters(spacing: np.ndarray) -> str:
    return " x ".join(f"{length:.4g}" for length in spacing) + " mm"
