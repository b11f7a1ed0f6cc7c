"""Writing of a store: scenes in parallel, lists and class names at the end; an interrupted preparation can continue."""

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from ...core.data.prepare_workers import check_stop, work
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, readable, require_regular
from ...core.runtime.json_format import format_json
from ...core.runtime.outages import read_through_outages
from ...core.runtime.printing import describe_value
from ...core.runtime.text_files import read_json
from ..data.scene import Scene
from ..data.scene_store import (
    CLASSES_FILE,
    RECORD_FILE,
    SCENES_FOLDER,
    SUFFIX,
    VERSION,
    SceneHeader,
    is_hidden,
    list_file,
    read_header,
    scene_file,
    write_lines,
    write_scene,
)
from .coordinates import find_remarks
from .listing import RawScene, SceneReader

_IDENTIFYING_FIELDS = ("version", "kind", "source")  # must match a folder's record to continue in it
_MAX_REASONS = 20  # of scenes that cannot be read
_READING = 2  # version of what is read from the same files, such as the range of colors


class StoreSummary(NamedTuple):
    """Contents of a store after preparation."""

    scenes: dict[str, int]  # number of scenes by split
    points: int  # points of all scenes
    num_bytes: int  # bytes of all scenes
    kept: int  # number of scenes that already existed
    remarks: list[str]


def prepare_store(
    reader: SceneReader, splits: dict[str, list[RawScene]], root: str, output: Path, workers: int
) -> StoreSummary:
    """Read all sources, ``splits``, and write them to ``output``, skipping existing scenes made from the same files.

    ``root`` is the folder of the sources, for the record. UserError if a source is invalid, no point has a class,
    ``output`` contains other files, or the disk is full.
    """
    record = {"version": VERSION, "kind": reader.kind, "source": root, "coordinates": reader.coordinates}
    start_time, remarks_by_scene = time.time(), _open_output(output, record)
    sources = {source.name: source for members in splits.values() for source in members}
    keys = {scene: _key(reader, source) for scene, source in sources.items()}
    missing = [scene for scene in sources if not _is_up_to_date(scene_file(output, scene), keys[scene])]
    jobs = [(1, (reader, sources[scene], scene_file(output, scene), keys[scene])) for scene in missing]
    if missing:  # the store is incomplete until all scenes are of the same files and options
        Path(output, CLASSES_FILE).unlink(missing_ok=True)
    remarks_by_scene = {
        scene: remarks_by_scene[scene] for scene in sources if scene in remarks_by_scene and scene not in set(missing)
    }
    try:
        failures: dict[str, str] = {}
        for name, scene_remarks, reason in work(_write, jobs, workers, len(jobs), "preparing", "scene"):
            remarks_by_scene.update({name: scene_remarks} if scene_remarks else {})
            failures.update({name: reason} if reason else {})
    finally:  # keep finished scenes and the remarks on them
        _write_record(output, {**record, "remarks": remarks_by_scene})
    _raise_failures(failures, len(sources))
    _remove_abandoned(output, start_time)
    headers = [read_header(scene_file(output, scene)) for scene in sources]
    write_lines(output / CLASSES_FILE, _class_names(reader, headers))
    for split, members in splits.items():
        write_lines(Path(list_file(output, split)), [source.name for source in members])
    is_centered = all(header.is_centered for header in headers)
    _write_record(output, {**record, "remarks": remarks_by_scene, "centered": is_centered})
    remarks = [line for scene in sources for line in remarks_by_scene.get(scene, [])]
    return StoreSummary(
        {subset: len(members) for subset, members in splits.items()},
        sum(header.num_points for header in headers),
        sum(header.file_bytes for header in headers),
        len(sources) - len(missing),
        remarks + find_remarks(reader.kind, list(sources), headers),
    )


def _remove_abandoned(output: Path, start_time: float) -> None:
    """Remove the unfinished files of killed runs."""
    for abandoned in Path(output, SCENES_FOLDER).glob(f"*{SUFFIX}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):  # newer files belong to another run, which may rename them now
            if abandoned.stat().st_mtime < start_time:
                abandoned.unlink()


def _class_names(reader: SceneReader, headers: list[SceneHeader]) -> list[str]:
    if reader.class_names is not None:
        return list(reader.class_names)
    highest = max(header.highest_class for header in headers)
    if highest < 0:
        raise UserError(
            "no point of any scene has a class: choose the property that contains it with --label, or, for scenes "
            "without labels, name the classes with --classes=FILE"
        )
    return [str(number) for number in range(1 + highest)]


def _open_output(output: Path, record: dict[str, Any]) -> dict[str, list[str]]:
    """Create ``output``, or check that it was prepared from the same data; return its remarks by scene."""
    try:
        Path(output, SCENES_FOLDER).mkdir(parents=True, exist_ok=True)
        others = [name for name in os.listdir(output) if name != SCENES_FOLDER and not is_hidden(name)]
        if RECORD_FILE in others:
            previous = read_json(output / RECORD_FILE)
        elif others:
            raise UserError(f"{output} is not empty and has no {RECORD_FILE}; choose a new folder")
        else:
            previous = None
    except OSError as error:
        raise UserError(f"{output} cannot be created or read: {error.strerror}; choose another folder") from error
    except ValueError as error:
        raise UserError(f"{output / RECORD_FILE} is damaged ({error}); choose a new folder") from error
    if previous is None:
        _write_record(output, record)
        return {}
    previous = previous if isinstance(previous, dict) else {}
    different = [name for name in _IDENTIFYING_FIELDS if previous.get(name) != record[name]]
    if different:
        sides = ", ".join(f"{name} {previous.get(name, 'unknown')} there and {record[name]} here" for name in different)
        raise UserError(f"{output} was prepared from other data or by another version: {sides}; choose a new folder")
    return previous.get("remarks", {})


def _write_record(output: Path, record: dict[str, Any]) -> None:
    with atomic_file(output / RECORD_FILE) as out:
        out.write((format_json(record, indent=1) + "\n").encode("ascii"))


def _key(reader: SceneReader, source: RawScene) -> bytes:
    """Return the SHA-256 of what a scene depends on: the kind of data, settings, and its files with size and mtime."""
    for file in source.files:
        with readable(file):
            require_regular(file)
    states = [os.stat(path) for path in source.files]
    files = [(path, state.st_size, state.st_mtime_ns) for path, state in zip(source.files, states)]
    return hashlib.sha256(
        repr((VERSION, _READING, reader.kind, reader.settings, files, source.labeled)).encode()
    ).digest()


def _is_up_to_date(path: str, key: bytes) -> bool:
    try:
        return read_header(path).key == key
    except UserError:  # missing, truncated, damaged or of another version: it is written again
        return False


def _write(reader: SceneReader, source: RawScene, path: str, key: bytes) -> tuple[str, list[str], str]:
    """Prepare a scene; return its name, the remarks on it, and the reason if it cannot be read."""
    check_stop()
    num_before = len(reader.remarks)
    try:
        scene = read_through_outages(lambda: reader.read(source), was_there=True)
        if not isinstance(scene, Scene):
            raise UserError(f"{source.files[0]}: read returns {describe_value(scene)}, expected a Scene")
    except UserError as error:
        return source.name, [], str(error)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a user's reader may raise anything
        raise RuntimeError(f"{source.files[0]} cannot be read: {type(error).__name__}: {error}") from error
    has_labels = bool((scene.semantic >= 0).any()) if source.labeled is None else source.labeled
    write_scene(Path(path), scene, has_labels, key)
    return source.name, list(reader.remarks[num_before:]), ""


def _raise_failures(failures: dict[str, str], total: int) -> None:
    """Report all scenes that cannot be read in one error, so that they can be fixed together."""
    reasons = [failures[name] for name in sorted(failures)]
    if len(reasons) == 1:
        raise UserError(reasons[0])
    if reasons:
        num_more = f"; and {len(reasons) - _MAX_REASONS:,} more" if len(reasons) > _MAX_REASONS else ""
        listed = "; ".join(reasons[:_MAX_REASONS])
        raise UserError(f"{len(reasons):,} of {total:,} scenes cannot be prepared: {listed}{num_more}")
