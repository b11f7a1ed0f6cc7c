"""The semaphores of multiprocessing's queues, each of which takes a page of shared memory."""

from __future__ import annotations

import errno
import multiprocessing

from ..errors import UserError


def require_semaphores(number: int, what: str, remedy: str) -> None:
    """Check that this many more semaphores can be made, before something that makes them fails half-way.

    Args:
        what: needs them, for the message.
        remedy: what to do besides enlarging shared memory.

    Raises:
        UserError: shared memory is full.
    """
    made = []
    try:
        for _ in range(number):
            made.append(multiprocessing.Lock())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(
            f"/dev/shm is full: it has no room for {what}; {remedy}, remove what other programs have left there, or "
            "enlarge it (docker run --shm-size=8g)"
        ) from error
