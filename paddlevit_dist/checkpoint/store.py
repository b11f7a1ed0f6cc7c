"""Checkpoints of a run: a directory each, complete or absent.

``checkpoints/epoch_0004/``, or ``checkpoints/update_00000123/`` in the middle of an epoch, holds ``model.pdparams``
(readable by plain ``paddle.load``), ``model_ema.pdparams`` if the run averages weights, ``optimizer.npz``,
``state.json``, ``about.yaml`` (what the weights are of and which input they expect) and ``manifest.json`` with the size
and SHA-256 of each. ``evaluation.json`` comes later, when its evaluation is done.
``checkpoints/last`` and ``checkpoints/best`` are symbolic links that are switched when everything else is on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import paddle
import yaml

from ..errors import UserError
from ..files import atomic_file
from .weights import AVERAGED, checkpoint_in

MODEL, OPTIMIZER, STATE, MANIFEST = "model.pdparams", "optimizer.npz", "state.json", "manifest.json"
ABOUT, EVALUATION = "about.yaml", "evaluation.json"
_NAME = re.compile(r"(epoch|update)_(\d+)")


class RunState(NamedTuple):
    """All that is needed, besides the configuration, to continue exactly where a run stopped.

    Attributes:
        position: epochs that are done, samples consumed of the one after them, updates since the start.
        optimizer: accumulators by structured name.
        extra: everything else, plain JSON values (scaler, best metric, whether an evaluation is due, versions).
    """

    position: Dict[str, int]
    optimizer: Dict[str, np.ndarray]
    extra: Dict[str, Any]


class Damaged(Exception):
    """A checkpoint is incomplete or has changed on disk."""


def epoch_name(epoch: int) -> str:
    return f"epoch_{epoch:04d}"


def update_name(update: int) -> str:
    return f"update_{update:08d}"


def save(
    folder: Path,
    name: str,
    model: paddle.nn.Layer,
    state: RunState,
    averaged: Optional[Dict[str, paddle.Tensor]] = None,
    about: Optional[Dict[str, Any]] = None,
) -> Path:
    """Write the checkpoint ``name`` into ``folder`` and return its directory. Main process only.

    ``averaged`` are the averaged weights by the model's names, if there are any; ``about`` is plain values for YAML.

    Everything is written under a temporary name, flushed to disk and then renamed: a crash leaves the directory
    either complete or absent.

    Raises:
        UserError: the disk refuses, for example because it is full; earlier checkpoints stay as they were.
    """
    final = folder / name
    temporary = folder / f".{final.name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(".*"):  # of a run that was killed while saving
            _remove(leftover)
        temporary.mkdir()
        paddle.save(model.state_dict(), str(temporary / MODEL))
        if averaged is not None:
            paddle.save(averaged, str(temporary / AVERAGED))
        np.savez(temporary / OPTIMIZER, **state.optimizer)
        if about is not None:
            (temporary / ABOUT).write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
        content = {"position": state.position, "extra": state.extra}
        (temporary / STATE).write_text(json.dumps(content, indent=1), encoding="utf-8")
        files = {path.name: _fingerprint(path) for path in sorted(temporary.iterdir())}
        (temporary / MANIFEST).write_text(json.dumps({"format": 1, "files": files}, indent=1), encoding="utf-8")
        for path in temporary.iterdir():
            _flush(path)
        _flush(temporary)
        if final.exists():
            _remove(final)
        os.replace(temporary, final)
        _flush(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = error.strerror or error
        raise UserError(f"cannot write the checkpoint {final}: {reason}; free space, then -resume=auto") from error
    return final


def link(folder: Path, name: str, target: Path) -> None:
    """Point the link ``folder/name`` at the checkpoint ``target``, atomically."""
    temporary = folder / f".{name}.{os.getpid()}"
    if temporary.is_symlink():
        temporary.unlink()
    temporary.symlink_to(target.name)
    os.replace(temporary, folder / name)


def prune(folder: Path, keep: Callable[[int], bool], update: int, keep_updates: int) -> None:
    """Remove checkpoints that are neither linked nor to be kept.

    Kept are those of epochs for which ``keep(epoch)`` is true, and the newest ``keep_updates`` of updates up to the
    present ``update``: later ones were left by a run that this one has restarted.
    """
    linked = {(folder / name).resolve().name for name in ("last", "best") if (folder / name).is_symlink()}
    numbers = sorted(number for kind, number, _ in _numbered(folder) if kind == "update" and number <= update)
    kept = numbers[-keep_updates:]
    for kind, number, path in _numbered(folder):
        if path.name not in linked and not (keep(number) if kind == "epoch" else number in kept):
            _remove(path)


def write_evaluation(directory: Path, best: Dict[str, Any]) -> None:
    """Note in a checkpoint that its evaluation is done, and the best one so far. Main process only.

    Raises:
        UserError: the disk refuses.
    """
    with atomic_file(directory / EVALUATION) as file:
        file.write(json.dumps({"best": best}).encode())


def discard(directory: Path) -> None:
    """Remove a checkpoint; ``last`` then links to the newest that is left. Main process only."""
    folder, last = directory.parent, directory.parent / "last"
    left = [path for path in _newest_first(folder) if path != directory]
    if last.resolve() == directory.resolve():
        if left:
            link(folder, "last", left[0])
        else:
            last.unlink()
    _remove(directory)


def verify(directory: Path) -> None:
    """Compare every file with the manifest.

    Raises:
        Damaged: something is missing or differs.
    """
    try:
        files = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{directory / MANIFEST} cannot be read ({error})") from error
    for name in sorted({MODEL, OPTIMIZER, STATE, *files}):
        path, expected = directory / name, files.get(name)
        if not path.is_file():
            raise Damaged(f"{path} is missing")
        if expected is None or path.stat().st_size != expected["bytes"]:
            raise Damaged(f"{path} has {path.stat().st_size} bytes, {expected and expected['bytes']} were written")
        if _fingerprint(path) != expected:
            raise Damaged(f"{path} has changed since it was written (SHA-256 differs)")


def read(directory: Path) -> RunState:
    """The run state in a verified checkpoint directory."""
    content = json.loads((directory / STATE).read_text(encoding="utf-8"))
    with np.load(directory / OPTIMIZER, allow_pickle=False) as arrays:
        optimizer = {name: arrays[name] for name in arrays.files}
    extra = content["extra"]
    with contextlib.suppress(FileNotFoundError, ValueError):
        evaluation = json.loads((directory / EVALUATION).read_text(encoding="utf-8"))
        extra = {**extra, "best": evaluation["best"], "evaluation_due": False}
    return RunState(content["position"], optimizer, extra)


def averaged_weights(directory: Path) -> Optional[Path]:
    """The file of averaged weights in a checkpoint, if it has one."""
    path = directory / AVERAGED
    return path if path.is_file() else None


def read_about(source: str) -> Optional[Dict[str, Any]]:
    """What the checkpoint at ``source``, its directory or a file in it, says about its weights.

    Returns:
        An empty dictionary for a checkpoint from before they said anything, None if ``source`` is not a
        checkpoint of a run.
    Raises:
        UserError: its ``about.yaml`` cannot be read.
    """
    path = checkpoint_in(source)
    directory = path if path.is_dir() else path.parent
    if not (directory / STATE).is_file():
        return None
    file = directory / ABOUT
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserError(
            f"{file} cannot be read ({str(error).splitlines()[0]}); remove it to continue without it"
        ) from error
    if not isinstance(content, dict):
        raise UserError(f"{file}: expected a mapping of names to values; remove the file to continue without it")
    return content


def newest_good(folder: Path, say: Callable[[str], None]) -> Optional[Path]:
    """The undamaged checkpoint that a run in ``folder`` should continue from, or None.

    The one that ``last`` points at comes first: a run that was resumed from an earlier epoch may have left later ones
    from before. ``say`` gets a line about each damaged one.
    """
    last = (folder / "last").resolve().name
    for path in sorted(_newest_first(folder), key=lambda path: path.name != last):
        try:
            verify(path)
        except Damaged as error:
            say(f"damaged checkpoint skipped: {error}")
            continue
        return path
    return None


def resolve(source: str, own_folder: Path, say: Callable[[str], None]) -> Optional[Path]:
    """What ``-resume=source`` means: a checkpoint directory, or a file of weights alone, or None to start from scratch.

    Args:
        source: "auto" (newest good checkpoint in ``own_folder``, else None), a checkpoint directory, a file in one, a
            run's output folder, or a ``.pdparams`` file (with or without extension) outside any checkpoint.
        own_folder: this run's ``checkpoints`` folder.
        say: called about damaged checkpoints that are skipped for the newest good one beside them.
    Raises:
        UserError: nothing usable is there.
    """
    if source == "auto":
        good = newest_good(own_folder, say)
        if good is None and _numbered(own_folder):
            raise UserError(
                f"-resume=auto: all checkpoints in {own_folder} are damaged; restore one, or choose another -output to "
                "start again"
            )
        return good
    path = Path(source).expanduser()
    if not path.exists():
        path = path.with_name(path.name + Path(MODEL).suffix)
    if not path.exists():
        raise UserError(f"-resume={source}: nothing there; give a checkpoint directory, an output folder or 'auto'")
    if path.is_file():
        if not (path.parent / STATE).exists():
            return path
        path = path.parent
    for folder in (path / "checkpoints", path):
        if _numbered(folder):
            good = newest_good(folder, say)
            if good is None:
                raise UserError(
                    f"-resume={source}: all checkpoints in {folder} are damaged; restore one or start again"
                )
            return good
    path = path.resolve()
    try:
        verify(path)
        return path
    except Damaged as error:
        good = newest_good(path.parent, say)
        if good is None:
            raise UserError(f"-resume={source}: {error}, and there is no good checkpoint beside it") from error
        say(f"continuing from {good} instead")
        return good


def is_newest(directory: Path) -> bool:
    """Whether there is no later checkpoint beside this one."""
    return _newest_first(directory.resolve().parent)[0] == directory.resolve()


def _numbered(folder: Path) -> List[Tuple[str, int, Path]]:
    """Kind, number and path of each checkpoint in a folder."""
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return [(match[1], int(match[2]), path) for match, path in matches if match]


def _newest_first(folder: Path) -> List[Path]:
    """The checkpoints in a folder by their place in the training; one of an update that does not record it comes first,
    to be found damaged."""

    def place(entry: Tuple[str, int, Path]) -> Tuple[float, int, int]:
        kind, number, path = entry
        if kind == "epoch":
            return number, 0, 1
        try:
            position = json.loads((path / STATE).read_text(encoding="utf-8"))["position"]
            return position["epoch"], position["consumed"], 0
        except (OSError, ValueError, KeyError, TypeError):
            return math.inf, number, 0

    return [path for _, _, path in sorted(_numbered(folder), key=place, reverse=True)]


def _fingerprint(path: Path) -> Dict[str, Any]:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Rename a directory out of sight first, so that a crash leaves nothing that looks complete."""
    if path.is_symlink() or path.is_file():
        path.unlink()
        return
    doomed = path if path.name.startswith(".") else path.with_name(f".{path.name}.old")
    if doomed != path:
        os.replace(path, doomed)
    shutil.rmtree(doomed)
