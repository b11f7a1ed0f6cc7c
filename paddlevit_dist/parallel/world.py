"""Which process this is: rank, world size, and joining the group."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys

import paddle
import paddle.distributed as dist


def rank() -> int:
    """This process's number in ``[0, world_size)``; 0 without a group."""
    return dist.get_rank() if world_size() > 1 else 0


def world_size() -> int:
    """Number of processes that train together; 1 without a group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """True on the one process that prints and writes."""
    return rank() == 0


def join_group(uses_gpu: bool, spawned: bool) -> None:
    """Choose this process's device and, when it is one of several, join their group. Every rank must call this.

    Args:
        uses_gpu: each process drives one GPU; otherwise the CPU with gloo.
        spawned: this machine's parent process started us. The rendezvous variables that a cluster's shell may have
            exported belong to somebody else then and are dropped.
    """
    paddle.set_device("gpu" if uses_gpu else "cpu")
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) < 2:
        return
    if spawned:
        for name in ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER"):
            os.environ.pop(name, None)
    if not uses_gpu:
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    with contextlib.redirect_stderr(io.StringIO()) as messages:  # Paddle 3 lists its own modified flags on each start
        try:
            dist.init_parallel_env()
        except BaseException:
            sys.__stderr__.write(messages.getvalue())
            raise
    _send_small_messages_at_once()


def _send_small_messages_at_once() -> None:
    """Switch off Nagle's algorithm on this process's TCP connections (Linux).

    The store's client writes a request in several small pieces, so each one waited 44 ms for the kernel's delayed
    acknowledgement; without it a request takes 0.1 ms.
    """
    if not os.path.isdir("/proc/self/fd"):
        return
    for name in os.listdir("/proc/self/fd"):
        try:
            connection = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # the descriptor is no socket, or was the listing's own and is closed by now
            continue
        with connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def store():
    """The key-value store of the group, served by rank 0. Unlike collectives it may be waited on for hours."""
    return paddle.base.core.create_or_get_global_tcp_store()
