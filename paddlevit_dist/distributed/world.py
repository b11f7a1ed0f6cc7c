"""Which process this is: rank and world size."""

import paddle.distributed as dist


def rank() -> int:
    """This process's number in ``[0, world_size)``; 0 without a group."""
    return dist.get_rank() if world_size() > 1 else 0


def world_size() -> int:
    """Number of processes training together; 1 without a group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """True on the one process that prints and writes."""
    return rank() == 0
