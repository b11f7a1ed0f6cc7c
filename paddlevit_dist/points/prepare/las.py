"""LAS and LAZ files of laser scans: reading points through laspy, and writing copies with predicted classes."""

import copy
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, require_regular
from .coordinate_systems import parse_geo_keys, parse_wkt
from .units import DeclaredUnit

_CHUNK_POINTS = 1_000_000
_MIN_HEADER_BYTES = 227
_COORDINATES = ("X", "Y", "Z")
_PROJECTION, _WKT, _GEO_KEYS, _GEO_DOUBLES = "LASF_Projection", 2112, 34735, 34736  # records of the coordinate system
_INSTALL = "pip install 'laspy[lazrs]'"
PREDICTED = "prediction"  # extra field for classes that the format's own field cannot hold
PREDICTED_INSTANCE = "predicted_instance"


def read_las(path: str) -> dict[str, np.ndarray]:
    """Read the fields of all points, (points,) each: x, y and z float64, others unchanged.

    UserError if laspy is not installed, or the file cannot be read.
    """
    with _open(path) as reader:
        names = [dimension for dimension in reader.header.point_format.dimension_names if dimension not in _COORDINATES]
        columns: dict[str, np.ndarray] = {}
        start, number = 0, reader.header.point_count
        if not number:
            raise UserError(f"{path} has no points; remove it")
        for points in reader.chunk_iterator(_CHUNK_POINTS):
            end = start + len(points)
            for name in ("x", "y", "z", *names):
                values = np.asarray(points[name])
                if values.ndim == 1:  # extra fields may have several values per point
                    columns.setdefault(name, np.zeros(number, values.dtype))[start:end] = values
            start = end
        if start < number:
            raise UserError(f"{path} ends after {start:,} of {number:,} points; copy or export it again")
    return columns


def find_las_unit(path: str, remarks: list[str]) -> DeclaredUnit | None:
    """Return the unit in the coordinate system that the header declares; None: it declares none.

    A line is appended to ``remarks`` if the unit is not understood. UserError if z does not point up from the ground, x
    and y are not lengths, or the file cannot be read.
    """
    with _open(path) as reader:
        header = reader.header
        stored = [*header.vlrs, *(reader.evlrs or [])]
        records = {each.record_id: each.record_data_bytes() for each in stored if each.user_id == _PROJECTION}
        text = records.get(_WKT, b"").split(b"\0")[0].decode("utf-8", "replace").strip()
        found = {
            _WKT: parse_wkt(path, text) if text else None,
            _GEO_KEYS: parse_geo_keys(path, records.get(_GEO_KEYS, b""), records.get(_GEO_DOUBLES, b"")),
        }
    if not text and _GEO_KEYS not in records:
        return None
    preferred = (_WKT, _GEO_KEYS) if header.global_encoding.wkt else (_GEO_KEYS, _WKT)
    unit = next((found[each] for each in preferred if found[each] is not None), None)
    if unit is None:
        remarks.append(f"{path}: its coordinate system names no unit that is understood: read as meters")
    return unit


def write_classified(source: str, target: Path, classes: np.ndarray, instances: np.ndarray | None = None) -> None:
    """Write a copy of a LAS or LAZ file with the classes of its points, integers from 0.

    They are written to ``classification`` if the file's format can hold them (numbers to 31 before LAS 1.4's formats,
    to 255 in those), else to an extra field ``prediction``. Instances, -1 for none, are written to
    ``predicted_instance``. ``target`` appears when it is complete, compressed if its name ends in .laz. UserError if
    the file already has one of the extra fields, with a type that cannot hold the values.
    """
    laspy = _import_laspy(source)
    with _open(source) as reader:
        header = copy.deepcopy(reader.header)
        fits = int(classes.max()) <= (255 if header.point_format.id >= 6 else 31)
        fields = {"classification" if fits else PREDICTED: classes.astype(np.uint16)}
        if instances is not None:
            fields[PREDICTED_INSTANCE] = np.maximum(instances, -1).astype(np.int32)
        for name, values in fields.items():
            if name not in header.point_format.dimension_names:
                header.add_extra_dim(laspy.ExtraBytesParams(name, values.dtype))
            dtype = header.point_format.dimension_by_name(name).dtype  # None: a bit field
            if dtype is not None and (values.astype(dtype.base) != values).any():
                raise UserError(f"{source} has a field {name} of {dtype}, but predictions reach to {values.max()}")
        with (
            atomic_file(target) as out,
            laspy.open(out, "w", header=header, do_compress=target.suffix.lower() == ".laz", closefd=False) as writer,
        ):
            start = 0
            for points in reader.chunk_iterator(_CHUNK_POINTS):
                record = laspy.ScaleAwarePointRecord.zeros(len(points), header=header)
                record.copy_fields_from(points)
                for name, values in fields.items():
                    record[name] = values[start : start + len(points)]
                start += len(points)
                writer.write_points(record)
            if reader.evlrs:
                writer.write_evlrs(reader.evlrs)


@contextmanager
def _open(path: str) -> Iterator[Any]:
    laspy = _import_laspy(path)
    try:
        require_regular(path)
        _check_header(path)
        # One thread: the parallel decompressor allocates all points that a damaged header may announce.
        backends = [backend for backend in (laspy.LazBackend.Lazrs, laspy.LazBackend.Laszip) if backend.is_available()]
        with laspy.open(path, laz_backend=backends) as reader:
            scales = reader.header.scales
            if not ((scales > 0) & np.isfinite(scales)).all():
                raise UserError(
                    f"{path} has scales {scales.tolist()} for x, y and z, expected positive numbers; fix its header"
                )
            yield reader
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except BaseException as error:  # laspy raises many types of exceptions, and its Rust decompressor panics
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = " ".join(str(error).split())
        if "No LazBackend" in reason:
            raise UserError(f"{path} is compressed, which needs lazrs: {_INSTALL}") from error
        raise UserError(f"{path} is not a complete LAS file: {reason}; copy or export it again") from error


def _check_header(path: str) -> None:
    """Check that a file is large enough for the records and chunks that its header announces.

    For missing records, laspy would read for hours, and the decompressor of compressed files ends the process if the
    table of chunks does not fit into memory. The position of that table is stored at the beginning of the points, or at
    the end of the file. UserError if the file is too small, struct.error if it is truncated.
    """
    with open(path, "rb") as stream:
        header, size = stream.read(247), os.fstat(stream.fileno()).st_size
        if len(header) < _MIN_HEADER_BYTES:
            raise UserError(f"{path} is not a complete LAS file: it ends within its header; copy or export it again")
        records = struct.unpack_from("<I", header, 100)[0]  # plus the extended ones, since LAS 1.4
        records += struct.unpack_from("<I", header, 243)[0] if header[25] >= 4 else 0
        if records > size:
            raise UserError(f"{path} is not a complete LAS file: {records:,} records; copy or export it again")
        if not struct.unpack_from("<B", header, 104)[0] & 0x80:  # not compressed
            return
        stream.seek(struct.unpack_from("<I", header, 96)[0])
        (place,) = struct.unpack("<q", stream.read(8))
        if place == -1:
            stream.seek(-8, os.SEEK_END)
            (place,) = struct.unpack("<q", stream.read(8))
        stream.seek(max(place, 0))
        (chunks,) = struct.unpack_from("<I", stream.read(8), 4)
    if chunks > size:
        raise UserError(f"{path} is not a complete LAS file: a table of {chunks:,} chunks; copy or export it again")


def _import_laspy(path: str) -> Any:
    try:
        import laspy
    except ImportError as error:
        raise UserError(f"{path} needs laspy to be read: {_INSTALL} ({error})") from error
    return laspy
