"""A disk that is full after some checkpoints."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from paddlevit_dist import UserError
from support.trainings import small_runs


def fill_disk_after(saves: int) -> Callable[[int], None]:
    """An ``os.fsync`` that fails once so many checkpoints have been written."""
    flush = os.fsync

    def fail(descriptor: int) -> None:
        target = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        half_written = [path for path in (target, *target.parents) if path.name.startswith((".epoch", ".update"))]
        if half_written and len(list(half_written[0].parent.glob("[eu]*_[0-9]*"))) >= saves:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(descriptor)

    return fail


def train_until_the_disk_is_full(output: str) -> str:
    """What each rank of a training says whose second checkpoint does not fit."""
    os.fsync = fill_disk_after(saves=1)
    arguments = ["-batch_size=16", "-epochs=1", "SAVE_EVERY_UPDATES", "2", "KEEP_UPDATES", "9"]
    try:
        small_runs.build(output, *arguments).train()
    except UserError as error:
        return str(error)
    return "no error"
