"""Checkpoints of a run: a directory each, complete or absent.

``checkpoints/epoch_0004/``, or ``checkpoints/update_00000123/`` in the middle of an epoch, holds ``model.pdparams``
(readable by plain ``paddle.load``), ``model_ema.pdparams`` if the run averages weights, ``optimizer.npz``,
``state.json``, ``about.yaml`` (what the weights are of and which input they expect), ``samples.npz``
(digests of the samples trained on and held out, and names of the latter) where they are known, and ``manifest.json``
with the size and SHA-256 of each. ``evaluation.json`` comes later, when its evaluation is done.
``checkpoints/last`` and ``checkpoints/best`` are symbolic links that are switched when everything else is on disk.

What is not complete yet, or about to be removed, has a hidden name that no other process uses; what a killed process
has left of them is removed by ``remove_leftovers``, which only the owner of the output folder may call.
"""

import contextlib
import functools
import json
import math
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import paddle
import yaml

from ..runtime import paddle_versions
from ..runtime.files import atomic_file, is_temporary, os_errors_as_user_errors, temporary_name
from .content import (
    ABOUT,
    AVERAGED,
    EVALUATION,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    REPLACED,
    SAMPLES,
    STATE,
    DamagedCheckpointError,
    RunState,
    epoch_name,
    fingerprint,
    linked_name,
    list_checkpoints,
    parse_name,
    read,
    read_about,
    read_samples,
    update_name,
    verify,
)
from .finding import holds_any, is_newest, newest_first, newest_good, resolve

__all__ = [  # what those who save and continue runs need
    "DamagedCheckpointError", "HostCopies", "HostTensor", "RunState", "Tensors", "discard", "epoch_name", "holds_any",
    "host_values", "is_newest", "link", "newest_good", "prune", "read", "read_about", "read_samples",
    "remove_leftovers", "resolve", "save", "update_name", "verify", "write_evaluation", "write_tensors",
]  # fmt: skip

# ---- copies of what is written -----------------------------------------------------------------------------------

_NAME_TABLE = "StructuredToParameterName@@"  # Paddle's entry for the automatic names
_PROTOCOL = 4  # of pickle: Paddle's default
_told = functools.partial(os_errors_as_user_errors, hint=", then -resume=auto")


class HostTensor(NamedTuple):
    """A tensor's values, and the name that Paddle has given it."""

    array: np.ndarray
    name: str


Tensors = Mapping[str, paddle.Tensor | HostTensor]


class HostCopies:
    """Copies tensors, into the memory of the copy before where there is one: new memory takes the system much longer to
    give than the copy takes."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def of(self, part: str, tensors: Mapping[str, paddle.Tensor]) -> dict[str, HostTensor]:
        """Copies of ``tensors``, which the next call for the same part overwrites.

        Args:
            part: tells tensors of the same names apart.
        """
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
    """The values of tensors, to be read before the tensors change: not copied where they are in the host's memory."""
    in_place = {name: paddle_versions.values_in_place(tensor) for name, tensor in tensors.items()}
    return {name: tensors[name].numpy() if values is None else values for name, values in in_place.items()}


def write_tensors(file: BinaryIO, tensors: Tensors) -> None:
    """Write what ``paddle.save`` writes of a model's state."""
    content: dict[str, Any] = {}
    names = {}
    for key, tensor in tensors.items():
        content[key] = tensor.array if isinstance(tensor, HostTensor) else tensor.numpy()
        names[key] = tensor.name
    content[_NAME_TABLE] = names
    pickle.dump(content, file, protocol=_PROTOCOL)


# ---- writing -----------------------------------------------------------------------------------------------------


def save(
    folder: Path,
    name: str,
    weights: Tensors,
    state: RunState,
    averaged: Tensors | None = None,
    about: dict[str, Any] | None = None,
    samples: dict[str, np.ndarray] | None = None,
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
            _remove(temporary)  # incomplete; usually it has its name
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
    if samples:
        np.savez(directory / SAMPLES, **samples)
    if about is not None:
        (directory / ABOUT).write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    content = {"position": state.position, "extra": state.extra}
    (directory / STATE).write_text(json.dumps(content, indent=1), encoding="utf-8")
    files = {path.name: fingerprint(path) for path in sorted(directory.iterdir())}
    (directory / MANIFEST).write_text(json.dumps({"format": 1, "files": files}, indent=1), encoding="utf-8")


def _put(temporary: Path, final: Path) -> None:
    """Give a complete checkpoint its name; one that had it is found, and verified, under another name until then."""
    aside = final.with_name(final.name + REPLACED)
    if os.path.lexists(aside):
        _remove(aside)
    if os.path.lexists(final):
        os.replace(final, aside)
    os.replace(temporary, final)
    if os.path.lexists(aside):
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
    epoch: int | None = None,
    keep_epochs: int = 1,
    good: Path | None = None,
) -> None:
    """Remove checkpoints that are neither linked nor to be kept; none where no good one would be left.

    Kept are those of epochs for which ``keep(epoch)`` is true, the newest ``keep_epochs`` of epochs up to the present
    ``epoch``, and the newest ``keep_updates`` of updates up to the present ``update``: later ones were left by a run
    that this one has restarted. ``good`` is a checkpoint that this process has written; others are verified.

    Raises:
        UserError: the file system refuses.
    """
    with _told(f"in {folder}"):
        all_of_them = list_checkpoints(folder)
        linked = {linked_name(folder, name) for name in ("last", "best")}
        updates = sorted(n for kind, n, _ in all_of_them if kind == "update" and n <= update)[-keep_updates:]
        present = math.inf if epoch is None else epoch
        epochs = sorted(n for kind, n, _ in all_of_them if kind == "epoch" and n <= present)[-keep_epochs:]
        kept = {
            path
            for kind, number, path in all_of_them
            if path.name in linked or ((keep(number) or number in epochs) if kind == "epoch" else number in updates)
        }
        unwanted = [path for _, _, path in all_of_them if path not in kept]
        if unwanted and (good in kept or any(map(_is_good, kept))):
            for path in unwanted:
                _remove(path)


def _is_good(directory: Path) -> bool:
    try:
        verify(directory)
    except DamagedCheckpointError:
        return False
    return True


def write_evaluation(directory: Path, best: dict[str, Any]) -> None:
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


def remove_leftovers(folder: Path) -> list[str]:
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
            original = path.with_name(path.name.removesuffix(REPLACED))
            if is_temporary(path.name) or (parse_name(path.name) and os.path.lexists(original) and original != path):
                _remove(path)
                removed.append(path.name)
            elif parse_name(path.name) and original != path:  # killed in the middle of replacing it
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
    """Rename a directory out of sight first, so that a crash leaves nothing that looks complete."""
    if path.is_symlink() or not path.is_dir():
        path.unlink()
        return
    doomed = path
    if not path.name.startswith("."):
        doomed = path.with_name(_hidden(path.name))
        os.replace(path, doomed)
    shutil.rmtree(doomed)
