"""Rank of this process and number of processes."""

import paddle.distributed as dist


def place() -> tuple[int, int]:
    """Return ``rank`` and ``world_size``."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def rank() -> int:
    """Return this process's number in ``[0, world_size)``; 0 without a process group."""
    return place()[0]


def world_size() -> int:
    """Return the number of processes that train together; 1 without a process group."""
    return place()[1]


def is_main() -> bool:
    """Return whether this is rank 0, the one process that prints and writes."""
    return rank() == 0
