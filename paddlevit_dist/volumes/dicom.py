"""Reader of DICOM series: folders with one file per slice."""

import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ..core.runtime.errors import UserError
from ..core.runtime.files import is_folder, open_regular, readable
from ..core.runtime.printing import shorten
from .geometry import PACKED, check_fits

_SUFFIXES = (".dcm", ".dicom", ".ima")
_INDEX = "DICOMDIR"  # index of the files on a medium, without image data
_DERIVED = (b"RTDOSE", b"SEG")  # modalities with voxels of their own, of many frames, next to the slices they belong to
_SERIES, _DESCRIPTION = "0020|000e", "0008|103e"
_PLACE = {"0020|0032": "Image Position", "0020|0037": "Image Orientation", "0028|0030": "Pixel Spacing"}
_USED = {**_PLACE, "0028|0102": "High Bit", "0028|1053": "Rescale Slope"}  # headers that SimpleITK may replace
_ROUNDING = 5e-3  # of the largest of a tag's numbers: directions that are rounded to two digits are normalized
_SAME_PLACE_SHARE = 2e-3  # of the pixel spacing
_UNEVEN_MM, _UNEVEN_SHARE = 0.101, 0.25  # some headers round to 0.1 mm; a missing slice adds at least 1/3


class DicomSeries(NamedTuple):
    """A DICOM series whose headers are read."""

    shape: tuple[int, int, int]  # (depth, height, width)
    affine: np.ndarray  # (4, 4), from voxels x, y, z to LPS millimeters
    load: Callable[[], np.ndarray]  # reads the voxels
    remarks: tuple[str, ...] = ()  # files that are not slices, for the log


class DicomSlice(NamedTuple):
    """One file of a series, as its header describes it."""

    file: str
    series: str
    description: str
    size: tuple[int, int]  # columns, rows
    place: tuple[bool, ...]  # whether the header has each tag of _PLACE
    position: np.ndarray  # (3,), first voxel, millimeters
    steps: np.ndarray  # (3, 2), millimeters from one column and from one row to the next
    is_inverted: bool = False  # whether its lowest values are displayed in white
    has_lookup: bool = False  # whether the scale of its voxels is a table, a modality LUT


def list_regular_files(folder: str) -> list[str]:
    """List the paths of the visible regular files in a folder, sorted by name."""
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if not entry.name.startswith(".") and _is_regular(entry))


def _is_regular(entry: os.DirEntry) -> bool:
    """Return whether an entry is a file or a link, even a broken one; opening a pipe would block forever."""
    return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))


def contains_dicom(folder: str, others: Sequence[str] = ()) -> bool:
    """Return whether any file in a folder starts like a DICOM file; ``others`` are known to be of other formats."""
    return any(_has_preamble(file) for file in list_regular_files(folder) if file not in others)


def open_series(folder: str, itk: ModuleType) -> DicomSeries:
    """Sort the slices of a folder by position, with the module SimpleITK.

    UserError for no slices, a damaged slice, or several series; for slices that differ in size or direction, coincide,
    are missing, or are not evenly spaced.
    """
    slices, others = [], []
    for file in list_regular_files(folder):
        found = _read_slice(file, itk)
        if isinstance(found, DicomSlice):
            slices.append(found)
        elif found is not None:
            others.append(f"{os.path.basename(file)} ({found})")
    listed = shorten(", ".join(others), 200)
    if not slices:
        with os.scandir(folder) as entries:
            inner = sorted(entry.name for entry in entries if is_folder(entry))
        found_instead = f", only folders ({inner[0]}, ...)" if inner else ""
        found_instead += f", only {listed} (convert voxels to NIfTI)" if others else ""
        raise UserError(
            f"{folder} contains no DICOM slices{found_instead}; put the files of one series directly into the folder"
        )
    _check_one_series(folder, slices)
    check_alike(folder, slices)
    normal = np.cross(slices[0].steps[:, 0], slices[0].steps[:, 1])
    normal /= np.linalg.norm(normal)
    slices.sort(key=lambda item: float(item.position @ normal))
    affine = np.eye(4)
    affine[:3, :2] = slices[0].steps
    # Not along the normal if the gantry was tilted: each slice is then shifted slightly from the previous one.
    affine[:3, 2] = find_even_step(folder, slices, normal)
    affine[:3, 3] = slices[0].position
    columns, rows = slices[0].size
    remarks = [f"DICOM files without slices, not used: {listed}"] if others else []
    if any(item.has_lookup for item in slices):
        remarks.append("the modality LUT in the headers is not applied: voxels keep their stored values")
    return DicomSeries((len(slices), rows, columns), affine, lambda: _load(slices, itk), tuple(remarks))


def _read_slice(file: str, itk: ModuleType) -> DicomSlice | str | None:
    """Read the header of a slice.

    Return None if the file is not a DICOM file, such as a text note, and the modality of one that is not a slice, such
    as a set of contours, a plan or a report.
    """
    is_dicom = _has_preamble(file) or file.lower().endswith(_SUFFIXES)
    if os.path.basename(file).upper() == _INDEX:
        return None
    damage, elements = scan_elements(file)
    has_slice = (_PIXELS in elements or _ROWS in elements) and elements.get(_MODALITY) not in _DERIVED
    if is_dicom and damage is None and elements and not has_slice:
        return elements.get(_MODALITY, b"").decode("ascii", "replace") or "no modality"
    reader = itk.ImageFileReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileName(file)
    try:
        if damage is not None:
            raise RuntimeError(damage)
        reader.ReadImageInformation()
    except RuntimeError as error:
        if not is_dicom:
            return None
        raise UserError(
            f"{file} cannot be read as a DICOM slice{f' ({damage})' if damage else ''}; is it complete? Copy it again, "
            "or remove it from the folder if it is not an image"
        ) from error
    size, components = reader.GetSize(), reader.GetNumberOfComponents()
    check_fits(file, size[0] * size[1], os.path.getsize(file), PACKED)
    if len(size) > 2 and size[2] != 1:
        raise UserError(f"{file} contains {size[2]} frames, expected one slice; convert it to NIfTI or MetaImage")
    if components != 1:
        raise UserError(
            f"{file}: each voxel has {components} color components, expected one value; convert colors to intensities"
        )
    directions = np.asarray(reader.GetDirection()).reshape(3, 3)  # a column for each of x, y, z
    places = (reader.GetOrigin(), directions[:, :2].T.ravel(), reader.GetSpacing()[1::-1])
    slope = [] if _tag(reader, "0028|1053").strip("+-0.") else [[1.0]]
    _check_used(file, reader, dict(zip(_USED, (*places, [float(_tag(reader, "0028|0101") or 1) - 1], *slope))))
    return DicomSlice(
        file,
        _tag(reader, _SERIES),
        _tag(reader, _DESCRIPTION),
        (size[0], size[1]),
        tuple(reader.HasMetaDataKey(tag) for tag in _PLACE),
        np.asarray(reader.GetOrigin()),
        directions[:, :2] * np.asarray(reader.GetSpacing())[:2],
        _tag(reader, "0028|0004") == "MONOCHROME1",
        _LOOKUP in elements,
    )


def _check_used(file: str, reader: Any, used: dict[str, Sequence[float]]) -> None:
    """Raise UserError if SimpleITK replaces values of the header that it cannot use, as it does without a word."""
    for tag, values in used.items():
        text = _tag(reader, tag)
        try:
            given = np.array(text.split("\\"), float).reshape(np.shape(values))
            is_used = np.allclose(given, values, rtol=0, atol=_ROUNDING * np.abs(given).max())
        except ValueError:
            is_used = False
        if text and not is_used:
            raise UserError(f"{file}: {_USED[tag]} ({text}) cannot be used: export the series again")


def _tag(reader: Any, tag: str) -> str:
    return reader.GetMetaData(tag).strip(" \0") if reader.HasMetaDataKey(tag) else ""


def _has_preamble(file: str) -> bool:
    with readable(file, "; repair or remove it"), open_regular(file, "rb") as content:
        return content.read(132)[128:] == b"DICM"


def _check_one_series(folder: str, slices: list[DicomSlice]) -> None:
    series: dict[str, list[DicomSlice]] = {}
    for item in slices:
        series.setdefault(item.series, []).append(item)
    if len(series) > 1:
        listed = "; ".join(
            f"{uid or 'no UID'} {group[0].description!r}, {len(group)} files from {os.path.basename(group[0].file)}"
            for uid, group in series.items()
        )
        raise UserError(
            f"{folder} contains {len(series)} DICOM series ({listed}); move each series to a separate folder"
        )


def check_alike(folder: str, slices: list[DicomSlice]) -> None:
    """Raise UserError unless all slices have a place, and the series, size and voxels of the first."""
    first = slices[0]
    for item in slices:
        absent = [name for has, name in zip(item.place, _PLACE.values()) if not has]
        if absent:
            raise UserError(
                f"{item.file} has no position of its slice (missing: {', '.join(absent)}); export the series again, or "
                "remove the file from the folder"
            )
        pair = f"{folder}: {os.path.basename(first.file)} and {os.path.basename(item.file)}"
        if item.size != first.size:
            sizes = " and ".join(" x ".join(map(str, side.size)) for side in (first, item))
            raise UserError(
                f"{pair} have {sizes} voxels; slices of a series must have the same size: remove the others"
            )
        if not np.allclose(item.steps, first.steps, rtol=0, atol=1e-3 * np.abs(first.steps).max()):
            raise UserError(
                f"{pair} differ in direction or pixel spacing; slices of a series must be parallel: remove the "
                "others, such as a localizer"
            )


def find_even_step(folder: str, slices: list[DicomSlice], normal: np.ndarray) -> np.ndarray:
    """Return the millimeters (3,) from each slice to the next; raise UserError if gaps differ."""
    if len(slices) == 1:
        raise UserError(f"{folder} contains only one DICOM slice; expected the files of a whole series")
    positions = np.stack([item.position for item in slices])
    gaps = np.diff(positions @ normal)
    names = [os.path.basename(item.file) for item in slices]
    nearest = int(gaps.argmin())
    if gaps[nearest] < _SAME_PLACE_SHARE * np.linalg.norm(slices[0].steps[:, 0]):
        raise UserError(
            f"{folder}: {names[nearest]} and {names[nearest + 1]} have the same position; several time points, echoes "
            "or copies of a series cannot be one volume: keep only one"
        )
    step = (positions[-1] - positions[0]) / (len(slices) - 1)
    expected = positions[0] + np.arange(len(slices))[:, None] * step
    allowed = min(_UNEVEN_MM, _UNEVEN_SHARE * np.linalg.norm(step))
    if np.linalg.norm(positions - expected, axis=1).max() > allowed:
        usual = float(np.median(gaps))
        worst = int(np.abs(gaps - usual).argmax())
        raise UserError(
            f"{folder}: slices are not evenly spaced: {gaps[worst]:.4g} mm from {names[worst]} to {names[worst + 1]}, "
            f"usually {usual:.4g} mm; is one missing? Export the series again, or resample it to another file format"
        )
    return step


def _load(slices: list[DicomSlice], itk: ModuleType) -> np.ndarray:
    """Read the voxels (depth, height, width); each file is read separately, with its own slope and intercept."""
    arrays = []
    for item in slices:
        try:
            array = itk.GetArrayFromImage(_read_as_stored(item, itk))
        except RuntimeError as error:
            raise UserError(f"{item.file} cannot be read as a DICOM slice; is it complete? Copy it again") from error
        arrays.append(array.reshape(array.shape[-2:]))
    voxels = np.stack(arrays)
    # Slope and intercept produce wide integers, but almost all scans fit into two bytes.
    limits = np.iinfo(np.int16)
    fits = voxels.dtype.kind in "iu" and limits.min <= voxels.min() and voxels.max() <= limits.max
    return voxels.astype(np.int16) if fits else voxels


def _read_as_stored(item: DicomSlice, itk: ModuleType) -> Any:
    """Read an image of stored values x slope + intercept: ITK inverts MONOCHROME1, which is displayed in reverse."""
    if not item.is_inverted:
        return itk.ReadImage(item.file, imageIO="GDCMImageIO")
    content, shown = Path(item.file).read_bytes(), b"MONOCHROME1"
    if shown not in content:
        raise UserError(f"{item.file}: intensities are inverted (MONOCHROME1) in a deflated file: convert the series")
    with tempfile.NamedTemporaryFile(suffix=_SUFFIXES[0]) as copy:
        copy.write(content.replace(shown, b"MONOCHROME2"))
        copy.flush()
        return itk.ReadImage(copy.name, imageIO="GDCMImageIO")


_LONG = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())  # four length bytes after two unused bytes
_SHORT = frozenset(b"AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split())
_IMPLICIT, _DEFLATED, _BIG_ENDIAN = b"1.2.840.10008.1.2", b"1.2.840.10008.1.2.1.99", b"1.2.840.10008.1.2.2"
_SYNTAX, _MODALITY, _PIXELS = (0x0002, 0x0010), (0x0008, 0x0060), (0x7FE0, 0x0010)
_ROWS = (0x0028, 0x0010)  # of an image, even if its voxels are missing
_LOOKUP = (0x0028, 0x3000)  # modality LUT, instead of slope and intercept
_KEPT = (_SYNTAX, _MODALITY, _ROWS, _LOOKUP, _PIXELS)
_ITEMS = 0xFFFE  # group of items and of the end marks of items and sequences
_UNKNOWN = 0xFFFFFFFF  # length that is defined by an end mark
_LARGEST_INFLATED = 1 << 28  # bytes

_Content = bytes | mmap.mmap


def find_wrong_length(file: str) -> str | None:
    """Describe the first element whose length cannot be right, else None; OSError if the file cannot be read."""
    return scan_elements(file)[0]


def scan_elements(file: str) -> tuple[str | None, dict[tuple[int, int], bytes]]:
    """Return what ``find_wrong_length`` does, and elements of ``_KEPT``, nested ones too, up to a wrong length.

    Voxels are b"". OSError if the file cannot be read.
    """
    found: dict[tuple[int, int], bytes] = {}
    with open(file, "rb") as stream:
        try:
            content: _Content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # empty
            return "it is empty", found
    start = 132 if content[128:132] == b"DICM" else 0
    try:
        position = _walk(content, start, "<", True, found, only_group=0x0002) if start else 0
        syntax = found.get(_SYNTAX, b"")
        if syntax == _DEFLATED:
            inflated = zlib.decompressobj(-zlib.MAX_WBITS)
            content, position = inflated.decompress(content[position:], _LARGEST_INFLATED), 0
            if inflated.unconsumed_tail:
                return f"it inflates to more than {_LARGEST_INFLATED:,} bytes", found
        is_explicit = content[position + 4 : position + 6] in _LONG | _SHORT
        _walk(content, position, ">" if syntax == _BIG_ENDIAN else "<", is_explicit and syntax != _IMPLICIT, found)
    except (ValueError, zlib.error) as error:
        return str(error), found
    return None, found


def _walk(
    content: _Content,
    position: int,
    order: str,
    is_explicit: bool,
    found: dict[tuple[int, int], bytes],
    only_group: int | None = None,
) -> int:
    """Return the end of all elements, nested too, or of ``only_group``; add elements of ``_KEPT`` to ``found``."""
    end, in_fragments = len(content), False
    while position + 8 <= end:
        group, element = struct.unpack_from(order + "HH", content, position)
        if only_group is not None and group != only_group:
            break
        start, length, kind = _header(content, position, order, is_explicit and group != _ITEMS)
        holds_elements = kind == b"SQ" or length == _UNKNOWN or (group == _ITEMS and not in_fragments)
        if (group, element) == _PIXELS:
            in_fragments = length == _UNKNOWN
        elif group == _ITEMS and element == 0xE0DD:
            in_fragments = False
        if length != _UNKNOWN and start + length > end:
            raise ValueError(
                f"element ({group:04x},{element:04x}) announces {length:,} bytes, only {max(end - start, 0):,} remain"
            )
        if (group, element) in _KEPT:
            is_value = (group, element) not in (_LOOKUP, _PIXELS)
            found.setdefault((group, element), content[start : start + length].strip(b"\0 ") if is_value else b"")
        position = start if holds_elements else start + length
    return position


def _header(content: _Content, position: int, order: str, is_explicit: bool) -> tuple[int, int, bytes]:
    """Parse an element's header: return the start and length of its content, and its type, b"" if implicit."""
    if not is_explicit:
        return position + 8, struct.unpack_from(order + "I", content, position + 4)[0], b""
    kind = content[position + 4 : position + 6]
    if kind in _SHORT:
        return position + 8, struct.unpack_from(order + "H", content, position + 6)[0], kind
    if kind not in _LONG:
        raise ValueError(f"the element at byte {position:,} has the unknown type {ascii(kind)[1:]}")
    if position + 12 > len(content):
        raise ValueError("it ends within an element")
    return position + 12, struct.unpack_from(order + "I", content, position + 8)[0], kind
