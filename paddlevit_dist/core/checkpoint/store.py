"""Checkpoints of a run: one directory each, complete or absent.

``checkpoints/epoch_0004/``, or ``checkpoints/update_00000123/`` within an epoch, contains:

- ``model.pdparams``, readable by plain ``paddle.load``, and ``model_ema.pdparams`` if the run averages weights
- ``optimizer.npz`` and ``state.json``, and ``task.npz`` if the task has state
- ``about.yaml``: task, data, preprocessing and settings of the weights
- ``samples.npz``, if known: digests of training and held-out samples, and names of the latter
- ``manifest.json``: size and SHA-256 of each file
- ``evaluation.json``, once the evaluation is done

``checkpoints/last`` and ``checkpoints/best`` are symbolic links that are switched once everything else is on disk.

Incomplete directories, and those being removed, have hidden names that no other process uses. ``remove_leftovers``
deletes what a killed process has left of them; only the owner of the output folder may call it.
"""

import contextlib
import functools
import math
import os
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import paddle
import yaml

from ..runtime import paddle_versions
from ..runtime.files import atomic_file, is_temporary, os_errors_as_user_errors, temporary_name
from ..runtime.json_format import format_json
from ..runtime.outages import read_through_outages
from .about_schema import ABOUT
from .directory_names import (
    AVERAGED,
    EVALUATION,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    OWN,
    REPLACED,
    SAMPLES,
    STATE,
    epoch_name,
    linked_name,
    list_checkpoints,
    parse_name,
    update_name,
)
from .finding import holds_any, is_newest, newest_first, newest_good, resolve
from .integrity import DamagedCheckpointError, fingerprint
from .records import RunState, read, read_about, read_samples, verify

__all__ = [  # for code that saves and resumes runs
    "DamagedCheckpointError", "HostCopies", "HostTensor", "RunState", "Tensors", "discard", "epoch_name", "holds_any",
    "host_values", "is_newest", "link", "link_best", "newest_good", "prune", "read", "read_about", "read_samples",
    "remove_leftovers", "resolve", "save", "update_name", "verify", "write_evaluation", "write_tensors",
]  # fmt: skip

_NAME_TABLE = "StructuredToParameterName@@"  # Paddle's key of the table of automatic names
_PROTOCOL = 4  # pickle protocol, Paddle's default
_user_errors = functools.partial(os_errors_as_user_errors, hint=", then -resume=auto")


class HostTensor(NamedTuple):
    """A tensor's values on the host, and the automatic name that Paddle has given it."""

    array: np.ndarray
    name: str


Tensors = Mapping[str, paddle.Tensor | HostTensor]


class HostCopies:
    """Copies tensors to the host, in the memory of the previous copies: new memory takes much longer than copying."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def copy(self, part: str, tensors: Mapping[str, paddle.Tensor]) -> dict[str, HostTensor]:
        """Copy tensors by name; the next call with the same ``part`` overwrites them. Parts keep equal names apart."""
        return {name: HostTensor(self._copy(f"{part}/{name}", tensor), tensor.name) for name, tensor in tensors.items()}

    def _copy(self, key: str, tensor: paddle.Tensor) -> np.ndarray:
        values = paddle_versions.values_in_place(tensor)
        if values is None:
            return tensor.numpy()
        copy = self._arrays.get(key)
        if copy is None or copy.shape != values.shape or copy.dtype != values.dtype:
            copy = self._arrays[key] = np.empty(values.shape, values.dtype)
        np.copyto(copy, values)
        return copy


def host_values(tensors: Mapping[str, paddle.Tensor]) -> dict[str, np.ndarray]:
    """Return the values of tensors, to be read before the tensors change: without a copy if they are in host memory."""
    in_place = {name: paddle_versions.values_in_place(tensor) for name, tensor in tensors.items()}
    return {name: tensors[name].numpy() if values is None else values for name, values in in_place.items()}


def write_tensors(file: BinaryIO, tensors: Tensors) -> None:
    """Write a model's state in the format of ``paddle.save``."""
    content: dict[str, Any] = {}
    names = {}
    for key, tensor in tensors.items():
        content[key] = tensor.array if isinstance(tensor, HostTensor) else tensor.numpy()
        names[key] = tensor.name
    content[_NAME_TABLE] = names
    pickle.dump(content, file, protocol=_PROTOCOL)


def save(
    folder: Path,
    name: str,
    weights: Tensors,
    state: RunState,
    averaged: Tensors | None = None,
    about: dict[str, Any] | None = None,
    samples: dict[str, np.ndarray] | None = None,
    before: Callable[[], None] | None = None,
) -> Path:
    """Write the checkpoint ``name`` into ``folder`` and return its directory. Main process only, in any thread.

    All files are written under a temporary name, flushed to disk and then renamed: a crash leaves the directory either
    complete or absent. An existing one of the same name remains until then. Raises UserError if a file cannot be
    written, for example because the disk is full; earlier checkpoints are unchanged.

    Args:
        name: name of the checkpoint, see ``epoch_name`` and ``update_name``.
        state: position, optimizer and other state.
        averaged: averaged weights by the model's names; None: there are none.
        samples: sample lists, see ``read_samples``; None or empty: there are none.
        before: called once all files are written, before the checkpoint gets its name.
    """
    final = folder / name
    temporary = folder / _hidden(name)
    try:
        with _user_errors(f"the checkpoint {final}"):
            folder.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            _write_files(temporary, weights, state, averaged, about, samples)
            for path in temporary.iterdir():
                _flush(path)
            _flush(temporary)
            if before is not None:
                before()
            _put(temporary, final)
            _flush(folder)
    finally:
        with contextlib.suppress(OSError):
            _remove(temporary)  # only if incomplete: a complete one is renamed by now
    return final


def _write_files(
    directory: Path,
    weights: Tensors,
    state: RunState,
    averaged: Tensors | None,
    about: dict[str, Any] | None,
    samples: dict[str, np.ndarray] | None,
) -> None:
    for name, tensors in ((MODEL, weights), (AVERAGED, averaged)):
        if tensors is not None:
            with open(directory / name, "xb") as file:
                write_tensors(file, tensors)
    np.savez(directory / OPTIMIZER, **state.optimizer)
    if state.own:
        np.savez(directory / OWN, **state.own)
    if samples:
        np.savez(directory / SAMPLES, **samples)
    if about is not None:
        (directory / ABOUT).write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    content = {"position": state.position, "extra": state.extra}
    (directory / STATE).write_text(format_json(content, indent=1), encoding="utf-8")
    files = {path.name: fingerprint(path) for path in sorted(directory.iterdir())}
    (directory / MANIFEST).write_text(format_json({"format": 1, "files": files}, indent=1), encoding="utf-8")


def _put(temporary: Path, final: Path) -> None:
    """Rename a complete checkpoint; an existing one of this name can be found under another name until then."""
    aside = final.with_name(final.name + REPLACED)
    if os.path.lexists(aside):
        _remove(aside)
    if os.path.lexists(final):
        os.replace(final, aside)
    os.replace(temporary, final)
    if os.path.lexists(aside):
        _remove(aside)


def link(folder: Path, name: str, target: Path) -> None:
    """Point the link ``folder/name`` to the checkpoint ``target``, atomically, or raise UserError.

    A folder of that name, which copies without links have, is renamed to ``name.folder``.
    """
    path, temporary = folder / name, folder / _hidden(name)
    with _user_errors(f"the link {path}"):
        try:
            temporary.symlink_to(target.name)
            if path.is_dir() and not path.is_symlink():
                os.replace(path, _free_name(folder / f"{name}.folder"))
            os.replace(temporary, path)
            _flush(folder)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def link_best(folder: Path, best: dict[str, Any] | None) -> None:
    """Link ``best`` to the checkpoint of the best evaluation on record; remove the link if there is none any more."""
    target, path = folder / epoch_name(best["epoch"] if best else 0), folder / "best"
    if target.is_dir():
        link(folder, "best", target)
    elif path.is_symlink():
        with _user_errors(f"the link {path}"):
            path.unlink()


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
    epoch: int | None = None,
    keep_epochs: int = 1,
    good: Path | None = None,
) -> None:
    """Remove checkpoints that are neither linked nor to be kept, unless no good one would be left, or raise UserError.

    Args:
        keep: returns whether the checkpoint of an epoch is kept.
        update: current step; later checkpoints were left by a run that this one has restarted.
        keep_updates: number of checkpoints of steps to keep, the newest ones up to ``update``.
        epoch: current epoch; later checkpoints were left as well; None: all epochs count.
        keep_epochs: number of checkpoints of epochs to keep, the newest ones up to ``epoch``.
        good: a checkpoint that this process has written; others are verified before they count as good.
    """
    with _user_errors(f"in {folder}"):
        checkpoints = list_checkpoints(folder)
        linked = {linked_name(folder, name) for name in ("last", "best")}
        updates = sorted(n for kind, n, _ in checkpoints if kind == "update" and n <= update)[-keep_updates:]
        present = math.inf if epoch is None else epoch
        epochs = sorted(n for kind, n, _ in checkpoints if kind == "epoch" and n <= present)[-keep_epochs:]
        retained = {
            checkpoint
            for kind, number, checkpoint in checkpoints
            if checkpoint.name in linked
            or ((number <= present and keep(number) or number in epochs) if kind == "epoch" else number in updates)
        }
        unwanted = [checkpoint for _, _, checkpoint in checkpoints if checkpoint not in retained]
        if unwanted and (good in retained or any(map(_is_good, retained))):
            for path in unwanted:
                _remove(path)


def _is_good(directory: Path) -> bool:
    try:
        verify(directory)
    except DamagedCheckpointError:
        return False
    return True


def write_evaluation(
    directory: Path,
    best: dict[str, Any],
    evaluations: Sequence[tuple[int, float | None]] = (),
    values: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Record in a checkpoint that its evaluation is done, and the best one so far. Main process only.

    ``best``: name, value, epoch and line of the best evaluation; ``evaluations``: epoch and value of each; ``values``:
    of this one, by name. Raises UserError if the file system refuses.
    """
    with atomic_file(directory / EVALUATION) as file:
        file.write(format_json({"best": best, "evaluations": evaluations, "values": dict(values)}).encode())


def discard(directory: Path) -> None:
    """Remove a checkpoint and link ``last`` to the newest remaining one. Main process only.

    Raises UserError if the file system refuses.
    """
    folder = directory.parent
    remaining = [path for path in newest_first(folder) if path != directory]
    with _user_errors(f"in {folder}"):
        for name, replacement in (("last", remaining), ("best", [])):
            if linked_name(folder, name) == directory.name:
                if replacement:
                    link(folder, name, replacement[0])
                else:
                    (folder / name).unlink()
        _remove(directory)


def remove_leftovers(folder: Path) -> list[str]:
    """Remove half-written and half-removed files of killed processes; return their paths, relative to ``folder``.

    Only the owner of the output folder may call this: it would also remove files that a running process is writing.
    Raises UserError if the file system refuses.
    """
    removed = []
    with _user_errors(f"in {folder}"):
        for path in read_through_outages(lambda: sorted(folder.iterdir()) if folder.is_dir() else []):
            original = path.with_name(path.name.removesuffix(REPLACED))
            if is_temporary(path.name) or (parse_name(path.name) and os.path.lexists(original) and original != path):
                _remove(path)
                removed.append(path.name)
            elif parse_name(path.name) and original != path:  # the process was killed while replacing it
                os.replace(path, original)
            elif parse_name(path.name) and path.is_dir():
                for half in [file for file in sorted(path.iterdir()) if is_temporary(file.name)]:
                    half.unlink()
                    removed.append(f"{path.name}/{half.name}")
    return removed


def _hidden(name: str) -> str:
    return temporary_name(f".{name}")


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file or a directory; rename a directory first, so that a crash leaves nothing that looks complete."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    doomed = path
    if not path.name.startswith("."):
        doomed = path.with_name(_hidden(path.name))
        os.replace(path, doomed)
    shutil.rmtree(doomed)
