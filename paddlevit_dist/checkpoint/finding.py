"""Which checkpoint a run continues from."""

import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from .content import MODEL, STATE, DamagedCheckpointError, linked_name, list_checkpoints, read_state, verify


def newest_good(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The undamaged checkpoint that a run in ``folder`` should continue from, or None.

    The one that ``last`` points at comes first: a run that was resumed from an earlier epoch may have left later ones
    from before. ``say`` gets a line about each damaged one.
    """
    last = linked_name(folder, "last")
    copies = [path for path in (folder / "last", folder / "best") if path.is_dir() and not path.is_symlink()]
    for path in [*sorted(newest_first(folder), key=lambda path: path.name != last), *copies]:
        try:
            verify(path)
        except DamagedCheckpointError as error:
            say(f"damaged checkpoint skipped: {error}")
            continue
        return path
    return None


def holds_any(folder: Path) -> bool:
    """Whether there are checkpoints in a folder, good or damaged, or links that say that there were some."""
    return bool(list_checkpoints(folder)) or any(os.path.lexists(folder / name) for name in ("last", "best"))


def existing_run_error(output: str) -> UserError:
    """The error of a training that does not resume, and would write into the folder of one that was begun."""
    return UserError(
        f"-output={output} already holds a run's checkpoints; continue with -resume=auto, or choose another -output"
    )


def resolve(source: str, own_folder: Path, say: Callable[[str], None]) -> Path | None:
    """Find what ``-resume=source`` means: a checkpoint directory, or a file of weights, or None to start from scratch.

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
        if good is None and holds_any(own_folder):
            raise UserError(
                f"-resume=auto: all checkpoints in {own_folder} are damaged or gone; restore one, or choose another "
                "-output to start again"
            )
        return good
    path = existing(source)
    if path.is_file():
        if not (path.parent / STATE).exists():
            return path
        path = path.parent
    for folder in (path / "checkpoints", path):
        if list_checkpoints(folder):
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
    except DamagedCheckpointError as error:
        good = newest_good(path.parent, say)
        if good is None:
            raise UserError(f"-resume={source}: {error}, and there is no good checkpoint beside it") from error
        say(f"continuing from {good} instead")
        return good


def existing(source: str) -> Path:
    """The file or folder that ``-resume=source`` means, perhaps without its extension.

    Raises:
        UserError: there is none.
    """
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # too long, a null byte, ~ of nobody
        given = Path(source).expanduser()
        if given.exists():
            return given
        extended = given.with_name(given.name + Path(MODEL).suffix)
        if extended.exists():
            return extended
    raise UserError(
        f"-resume={shorten(source)}: nothing there; give a checkpoint directory, an output folder or 'auto'"
    )


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder by their place in the training; one of an update that does not record it comes first,
    to be found damaged."""

    def place(entry: tuple[str, int, Path]) -> tuple[float, int, int]:
        kind, number, path = entry
        if kind == "epoch":
            return number, 0, 1
        try:
            position, _ = read_state(path)
        except DamagedCheckpointError:
            return math.inf, number, 0
        return position["epoch"], position["consumed"], 0

    return [path for _, _, path in sorted(list_checkpoints(folder), key=place, reverse=True)]


def is_newest(directory: Path) -> bool:
    """Whether there is no later checkpoint beside this one."""
    return newest_first(directory.resolve().parent)[:1] in ([], [directory.resolve()])
