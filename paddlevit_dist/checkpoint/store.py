"""Checkpoints of a run: a directory each, complete or absent.

``checkpoints/epoch_0004/``, or ``checkpoints/update_00000123/`` in the middle of an epoch, holds ``model.pdparams``
(readable by plain ``paddle.load``), ``model_ema.pdparams`` if the run averages weights, ``optimizer.npz``,
``state.json``, ``about.yaml`` (what the weights are of and which input they expect), ``samples.npz`` if the run has
divided one dataset (digests of the samples trained on and held out) and ``manifest.json`` with the size and SHA-256 of
each. ``evaluation.json`` comes later, when its evaluation is done.
``checkpoints/last`` and ``checkpoints/best`` are symbolic links that are switched when everything else is on disk.

What is not complete yet, or about to be removed, has a hidden name that no other process uses; what a killed process
has left of them is removed by ``remove_leftovers``, which only the owner of the output folder may call.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional

import numpy as np
import yaml

from ..errors import UserError
from ..files import atomic_file, exchange, is_temporary, temporary_name, why_not_written
from .content import (
    ABOUT,
    EVALUATION,
    MANIFEST,
    OPTIMIZER,
    SAMPLES,
    STATE,
    Damaged,
    fingerprint,
    has_all_files,
    intact,
    read_about_file,
    read_best,
    read_state,
    verify,
)
from .finding import holds_any, is_newest, newest_first, newest_good, resolve
from .host_copy import Tensors, write_tensors
from .names import AVERAGED, MODEL, REPLACED, epoch_name, linked_name, numbered, parse_name, update_name
from .weights import checkpoint_in, read_npz

__all__ = [  # for those who read checkpoints, also what other modules of this room define
    "Damaged",
    "RunState",
    "averaged_weights",
    "discard",
    "epoch_name",
    "holds_any",
    "is_newest",
    "link",
    "newest_good",
    "prune",
    "read",
    "read_about",
    "read_samples",
    "remove_leftovers",
    "resolve",
    "save",
    "update_name",
    "verify",
    "write_evaluation",
]

_EARLIER_LEFTOVER = re.compile(r"\.((epoch|update)_\d+|last|best)\.(\d+|old)")  # as earlier versions named them


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


# ---- writing -----------------------------------------------------------------------------------------------------


def save(
    folder: Path,
    name: str,
    weights: Tensors,
    state: RunState,
    averaged: Optional[Tensors] = None,
    about: Optional[Dict[str, Any]] = None,
    samples: Optional[Dict[str, np.ndarray]] = None,
) -> Path:
    """Write the checkpoint ``name`` into ``folder`` and return its directory. Main process only, in any thread.

    ``averaged`` are the averaged weights by the model's names, if there are any; ``about`` is plain values for YAML;
    ``samples`` are what ``read_samples`` returns.

    Everything is written under a temporary name, flushed to disk and then renamed: a crash leaves the directory
    either complete or absent. One of the same name stays until then.

    Raises:
        UserError: the file system refuses, for example because it is full; earlier checkpoints stay as they were.
    """
    final = folder / name
    temporary = folder / _hidden(name)
    try:
        with _told(f"the checkpoint {final}"):
            folder.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            _write_files(temporary, weights, state, averaged, about, samples)
            for path in temporary.iterdir():
                _flush(path)
            _flush(temporary)
            _put(temporary, final)
            _flush(folder)
    finally:
        with contextlib.suppress(OSError):
            _remove(temporary)  # incomplete, or the one that was replaced; usually it has its new name
    return final


def _write_files(
    directory: Path,
    weights: Tensors,
    state: RunState,
    averaged: Optional[Tensors],
    about: Optional[Dict[str, Any]],
    samples: Optional[Dict[str, np.ndarray]],
) -> None:
    for name, tensors in ((MODEL, weights), (AVERAGED, averaged)):
        if tensors is not None:
            with open(directory / name, "xb") as file:
                write_tensors(file, tensors)
    np.savez(directory / OPTIMIZER, **state.optimizer)
    if samples:
        np.savez(directory / SAMPLES, **samples)
    if about is not None:
        (directory / ABOUT).write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    content = {"position": state.position, "extra": state.extra}
    (directory / STATE).write_text(json.dumps(content, indent=1), encoding="utf-8")
    files = {path.name: fingerprint(path) for path in sorted(directory.iterdir())}
    (directory / MANIFEST).write_text(json.dumps({"format": 1, "files": files}, indent=1), encoding="utf-8")


def _put(temporary: Path, final: Path) -> None:
    """Give a complete checkpoint its name; what had the name before then has the temporary one, or is gone."""
    if not os.path.lexists(final):
        os.replace(temporary, final)
    elif not exchange(temporary, final):
        # Between these two steps the earlier one is still found, and verified, under its other name.
        aside = final.with_name(final.name + REPLACED)
        if os.path.lexists(aside):
            _remove(aside)
        os.replace(final, aside)
        os.replace(temporary, final)
        _remove(aside)


def link(folder: Path, name: str, target: Path) -> None:
    """Point the link ``folder/name`` at the checkpoint ``target``, atomically. A folder of that name, which copies
    without links have, is kept as ``name.folder``.

    Raises:
        UserError: the file system refuses.
    """
    path, temporary = folder / name, folder / _hidden(name)
    with _told(f"the link {path}"):
        try:
            temporary.symlink_to(target.name)
            if path.is_dir() and not path.is_symlink():
                os.replace(path, _free_name(folder / f"{name}.folder"))
            os.replace(temporary, path)
            _flush(folder)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _free_name(path: Path) -> Path:
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}{number}")
    return free


def prune(
    folder: Path,
    keep: Callable[[int], bool],
    update: int,
    keep_updates: int,
    *,
    epoch: Optional[int] = None,
    keep_epochs: int = 1,
    good: Optional[Path] = None,
) -> None:
    """Remove checkpoints that are neither linked nor to be kept; none where no good one would be left.

    Kept are those of epochs for which ``keep(epoch)`` is true, the newest ``keep_epochs`` of epochs up to the present
    ``epoch``, and the newest ``keep_updates`` of updates up to the present ``update``: later ones were left by a run
    that this one has restarted. ``good`` is a checkpoint that this process has verified or written and read back; the
    others are verified.

    Raises:
        UserError: the file system refuses.
    """
    with _told(f"in {folder}"):
        all_of_them = numbered(folder)
        linked = {linked_name(folder, name) for name in ("last", "best")}
        updates = sorted(n for kind, n, _ in all_of_them if kind == "update" and n <= update)[-keep_updates:]
        present = math.inf if epoch is None else epoch
        epochs = sorted(n for kind, n, _ in all_of_them if kind == "epoch" and n <= present)[-keep_epochs:]
        kept: List[Path] = []
        unwanted: List[Path] = []
        for kind, number, path in all_of_them:
            is_wanted = (keep(number) or number in epochs) if kind == "epoch" else number in updates
            (kept if path.name in linked or is_wanted else unwanted).append(path)
        kept.sort(key=lambda path: path != good)
        if unwanted and any(has_all_files(path) if path == good else _is_good(path) for path in kept):
            for path in unwanted:
                _remove(path)


def _is_good(directory: Path) -> bool:
    try:
        verify(directory)
    except Damaged:
        return False
    return True


def write_evaluation(directory: Path, best: Dict[str, Any]) -> None:
    """Note in a checkpoint that its evaluation is done, and the best one so far. Main process only.

    Raises:
        UserError: the file system refuses.
    """
    with atomic_file(directory / EVALUATION) as file:
        file.write(json.dumps({"best": best}).encode())


def discard(directory: Path) -> None:
    """Remove a checkpoint; ``last`` then links to the newest that is left. Main process only.

    Raises:
        UserError: the file system refuses.
    """
    folder = directory.parent
    left = [path for path in newest_first(folder) if path != directory]
    with _told(f"in {folder}"):
        for name, other in (("last", left[:1]), ("best", [])):
            if linked_name(folder, name) == directory.name:
                if other:
                    link(folder, name, other[0])
                else:
                    (folder / name).unlink()
        _remove(directory)


def remove_leftovers(folder: Path) -> List[str]:
    """Remove what killed processes have left half written or half removed in a ``checkpoints`` folder.

    Only for the owner of the output folder: it would also remove what a living process is writing there.

    Returns:
        What was removed, relative to ``folder``.
    Raises:
        UserError: the file system refuses.
    """
    removed = []
    with _told(f"in {folder}"):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = parse_name(path.name)
            if name and name.is_replaced:
                original = path.with_name(path.name[: -len(REPLACED)])
                if not os.path.lexists(original):  # killed in the middle of replacing it
                    os.replace(path, original)
                    continue
            elif name and path.is_dir():
                half = [file for file in sorted(path.iterdir()) if is_temporary(file.name)]
                for file in half:
                    file.unlink()
                removed += [f"{path.name}/{file.name}" for file in half]
                continue
            elif not (is_temporary(path.name) or _EARLIER_LEFTOVER.fullmatch(path.name)):
                continue
            _remove(path)
            removed.append(path.name)
    return removed


# ---- reading -----------------------------------------------------------------------------------------------------


def read(directory: Path) -> RunState:
    """The run state in a verified checkpoint directory.

    Raises:
        UserError: it cannot be read.
    """
    try:
        position, extra = read_state(directory)
    except Damaged as error:
        raise UserError(f"{error}; continue from another checkpoint") from error
    optimizer = read_npz(directory / OPTIMIZER)
    best = read_best(directory)
    if best is not None:
        extra = {**extra, "best": best, "evaluation_due": False}
    return RunState(position, optimizer, extra)


def averaged_weights(directory: Path) -> Optional[Path]:
    """The file of averaged weights in a checkpoint, if it has one."""
    path = directory / AVERAGED
    return path if path.is_file() else None


def is_of_a_run(source: str) -> bool:
    """Whether ``source`` is a checkpoint that a run of this package wrote, its directory or a file in it."""
    return (_directory(source) / STATE).is_file()


def read_about(source: str) -> Optional[Dict[str, Any]]:
    """What the checkpoint at ``source``, its directory or a file in it, says about its weights.

    Returns:
        An empty dictionary for a checkpoint from before they said anything, None if ``source`` is not a
        checkpoint of a run.
    Raises:
        UserError: its ``about.yaml`` is damaged.
    """
    directory = _directory(source)
    if not is_of_a_run(source):
        return None
    if not (directory / ABOUT).exists():
        return {}
    with intact(directory / ABOUT):
        return read_about_file(directory / ABOUT)


def about_of(file: Path) -> Dict[str, Any]:
    """What is said of the weights in ``file``: by their checkpoint, else by an ``about.yaml`` or ``NAME.about.yaml``
    beside them; empty if nothing is.

    Raises:
        UserError: it cannot be read.
    """
    about = read_about(str(file))
    if about is not None:
        return about
    for name in (f"{file.stem}.{ABOUT}", f"{file.name}.{ABOUT}", ABOUT):
        beside = file.with_name(name)
        if beside.is_file():
            return read_about_file(beside)
    return {}


def settings_beside(about: Dict[str, Any], file: Path) -> Optional[Dict[str, Any]]:
    """The settings of the run that trained the weights in ``file``: what ``about`` says, else the ``config.yaml`` of
    the run's folder that they are in; None if there is neither."""
    if isinstance(about.get("settings"), dict):
        return dict(about["settings"])
    nearest = list(file.absolute().parents)[:3]  # run / checkpoints / epoch_0004 / model.pdparams
    for folder in nearest:
        if (folder / "config.yaml").is_file():
            return read_about_file(folder / "config.yaml")  # plain values as well
    return None


def read_samples(source: str) -> Optional[Dict[str, np.ndarray]]:
    """The samples that the training of the checkpoint at ``source`` had in each split, as ``Samples.identities`` has
    them: uint64 (samples,) by split, and of what only earlier sessions were trained on.

    Returns:
        None if ``source`` is not a checkpoint of a run, or lists none.
    Raises:
        UserError: the list is damaged.
    """
    file = _directory(source) / SAMPLES
    if not file.is_file():
        return None
    with intact(file):
        return read_npz(file)


def _directory(source: str) -> Path:
    path = checkpoint_in(source)
    return path if path.is_dir() else path.parent


def _hidden(name: str) -> str:
    return temporary_name(f".{name}")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Rename a directory out of sight first, so that a crash leaves nothing that looks complete."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    doomed = path
    if not path.name.startswith("."):
        doomed = path.with_name(_hidden(path.name))
        os.replace(path, doomed)
    shutil.rmtree(doomed)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn an error of the file system into one line: what could not be written, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {what}: {why_not_written(error)}, then -resume=auto") from error
