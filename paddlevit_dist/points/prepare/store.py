"""Write a store: scenes in parallel, lists and class names at the end; finished scenes survive an interruption."""

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from ...data.prepare_workers import check_stop, work
from ...runtime.errors import UserError
from ...runtime.files import atomic_file, require_regular
from ...runtime.text_files import read_json
from ..data.scene_store import (
    CLASSES_FILE,
    RECORD_FILE,
    SCENES_FOLDER,
    SUFFIX,
    VERSION,
    SceneHeader,
    list_file,
    read_header,
    scene_file,
    write_lines,
    write_scene,
)
from .coordinates import remarks_on
from .listing import RawScene, SceneReader

_DECIDING = ("version", "kind", "source")  # must match a folder's record to continue in it
_MOST_REASONS = 20  # of scenes that cannot be read


class StoreSummary(NamedTuple):
    """Contents of a store after preparation: scenes by split, points, bytes, scenes that already existed, and remarks
    on them."""

    scenes: dict[str, int]
    points: int
    num_bytes: int
    kept: int
    remarks: list[str]


def prepare_store(
    reader: SceneReader, splits: dict[str, list[RawScene]], root: str, output: Path, workers: int
) -> StoreSummary:
    """Read all sources and write them to ``output``, skipping those that already exist and were made from the same
    files.

    Args:
        reader: sent to the worker processes.
        splits: what ``reader.sources`` gave.

    Raises:
        UserError: a source is bad, no point has a class, ``output`` contains something else, or the disk is full.
    """
    record = {"version": VERSION, "kind": reader.kind, "source": root, "coordinates": reader.coordinates}
    begun, noted = time.time(), _begin(output, record)
    sources = {source.name: source for scenes in splits.values() for source in scenes}
    keys = {name: _key(reader, source) for name, source in sources.items()}
    missing = [name for name in sources if not _is_there(scene_file(output, name), keys[name])]
    jobs = [(1, (reader, sources[name], scene_file(output, name), keys[name])) for name in missing]
    if missing:  # until all are of the same files and options this is no store
        Path(output, CLASSES_FILE).unlink(missing_ok=True)
    noted = {name: noted[name] for name in sources if name in noted and name not in set(missing)}
    try:
        bad: dict[str, str] = {}
        for name, found, reason in work(_write, jobs, workers, len(jobs), "preparing", "scene"):
            noted.update({name: found} if found else {})
            bad.update({name: reason} if reason else {})
    finally:  # keep finished scenes and the remarks on them
        _write_record(output, {**record, "remarks": noted})
    _refuse(bad, len(sources))
    for abandoned in Path(output, SCENES_FOLDER).glob(f"*{SUFFIX}.*.tmp"):  # from a killed run
        with contextlib.suppress(FileNotFoundError):  # what is newer is of another run, which may rename it now
            if abandoned.stat().st_mtime < begun:
                abandoned.unlink()
    headers = [read_header(scene_file(output, name)) for name in sources]
    write_lines(output / CLASSES_FILE, _class_names(reader, headers))
    for split, scenes in splits.items():
        write_lines(Path(list_file(output, split)), [source.name for source in scenes])
    is_centered = all(header.is_centered for header in headers)
    _write_record(output, {**record, "remarks": noted, "centered": is_centered})
    remarks = [line for name in sources for line in noted.get(name, [])]
    return StoreSummary(
        {split: len(scenes) for split, scenes in splits.items()},
        sum(header.num_points for header in headers),
        sum(header.file_bytes for header in headers),
        len(sources) - len(missing),
        remarks + remarks_on(reader.kind, list(sources), headers),
    )


def _class_names(reader: SceneReader, headers: list[SceneHeader]) -> list[str]:
    if reader.class_names is not None:
        return list(reader.class_names)
    highest = max(header.highest_class for header in headers)
    if highest < 0:
        raise UserError(
            "no point of any scene has a class: choose the property that holds it with --label, or, for scenes without "
            "labels, name the classes with --classes=FILE"
        )
    return [str(number) for number in range(1 + highest)]


def _begin(output: Path, record: dict[str, Any]) -> dict[str, list[str]]:
    """Create ``output``, or check that it is from a preparation of the same data; returns the remarks on the scenes in
    it, by name."""
    try:
        Path(output, SCENES_FOLDER).mkdir(parents=True, exist_ok=True)
        others = [name for name in os.listdir(output) if name != SCENES_FOLDER]
        if RECORD_FILE in others:
            before = read_json(output / RECORD_FILE)
        elif others:
            raise UserError(f"{output} is not empty and has no {RECORD_FILE}; choose a new folder")
        else:
            before = None
    except OSError as error:
        raise UserError(f"{output} cannot be created or read: {error.strerror}; choose another folder") from error
    except ValueError as error:
        raise UserError(f"{output / RECORD_FILE} is damaged ({error}); choose a new folder") from error
    if before is None:
        _write_record(output, record)
        return {}
    before = before if isinstance(before, dict) else {}
    different = [name for name in _DECIDING if before.get(name) != record[name]]
    if different:
        sides = ", ".join(f"{name} {before.get(name, 'unknown')} there and {record[name]} here" for name in different)
        raise UserError(f"{output} was prepared from other data or by another version: {sides}; choose a new folder")
    return before.get("remarks", {})


def _write_record(output: Path, record: dict[str, Any]) -> None:
    with atomic_file(output / RECORD_FILE) as out:
        out.write((json.dumps(record, indent=1) + "\n").encode("ascii"))


def _key(reader: SceneReader, source: RawScene) -> bytes:
    """SHA-256 of what a scene depends on: the kind of data, the settings, and its files with size and mtime."""
    for file in source.files:
        try:
            require_regular(file)
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from error
    states = [os.stat(file) for file in source.files]
    files = [(file, state.st_size, state.st_mtime_ns) for file, state in zip(source.files, states)]
    return hashlib.sha256(repr((VERSION, reader.kind, reader.settings, files, source.labeled)).encode()).digest()


def _is_there(path: str, key: bytes) -> bool:
    if not os.path.exists(path):
        return False
    try:
        return read_header(path).key == key
    except UserError:  # cut off, damaged or of another version: rebuilt
        return False


def _write(reader: SceneReader, source: RawScene, path: str, key: bytes) -> tuple[str, list[str], str]:
    """Prepare a scene; returns its name, the remarks on it, and why it cannot be read, if so."""
    check_stop()
    before = len(reader.remarks)
    try:
        scene = reader.read(source)
    except UserError as error:
        return source.name, [], str(error)
    write_scene(Path(path), scene, source.labeled, key)
    return source.name, list(reader.remarks[before:]), ""


def _refuse(bad: dict[str, str], total: int) -> None:
    """All scenes that cannot be read in one error, so that they can be mended at once."""
    reasons = [bad[name] for name in sorted(bad)]
    if len(reasons) == 1:
        raise UserError(reasons[0])
    if reasons:
        more = f"; and {len(reasons) - _MOST_REASONS:,} more" if len(reasons) > _MOST_REASONS else ""
        shown = "; ".join(reasons[:_MOST_REASONS])
        raise UserError(f"{len(reasons):,} of {total:,} scenes cannot be prepared, the others are: {shown}{more}")
