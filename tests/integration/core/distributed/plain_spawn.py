"""A user's own program: ``dist.spawn`` or ``paddle.distributed.launch``, using our collectives in its function.

python plain_spawn.py FOLDER: each rank writes what it saw to ``FOLDER/seen_RANK.json``.
"""

import json
import os
import socket
import sys
from pathlib import Path


def delayed_connections() -> int:
    """TCP connections of this process that hold small messages back (Nagle's algorithm)."""
    delayed = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            connection = socket.socket(fileno=os.dup(int(name)))
            connection.getpeername()
        except OSError:  # no socket, or not connected
            continue
        if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
            delayed += not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        connection.close()
    return delayed


def work(folder: str) -> None:
    import paddle.distributed as dist

    dist.init_parallel_env()
    import paddlevit_dist

    seen = {"delayed before": delayed_connections()}
    paddlevit_dist.barrier()
    seen["delayed after"] = delayed_connections()
    seen["gathered"] = paddlevit_dist.all_gather(f"rank {dist.get_rank()}")
    seen["reduced"] = paddlevit_dist.reduce_dict({"loss": dist.get_rank() + 1.0})
    if dist.get_rank() == 0:
        try:
            paddlevit_dist.barrier()  # rank 1 has left
        except ConnectionError as error:
            seen["left alone"] = str(error)
    Path(folder, f"seen_{dist.get_rank()}.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    if "PADDLE_TRAINER_ID" in os.environ:
        work(sys.argv[1])
    else:
        import paddle.distributed

        paddle.distributed.spawn(work, args=(sys.argv[1],), nprocs=2, backend="gloo")
