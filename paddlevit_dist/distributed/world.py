"""Rank of this process and number of processes."""

import paddle.distributed as dist


def rank() -> int:
    """Return this process's number in ``[0, world_size)``; 0 without a process group."""
    return dist.get_rank() if world_size() > 1 else 0


def world_size() -> int:
    """Return the number of processes that train together; 1 without a process group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """Return whether this is rank 0, the one process that prints and writes."""
    return rank() == 0
