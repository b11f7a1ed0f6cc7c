"""One rank of a run whose ranks are started separately, as a launcher on several machines does.

python one_rank.py FOLDER: joins as the environment says and writes what it gathered to ``FOLDER/gathered_RANK.json``.
``--open`` joins as a user's own program does.
``--wait``: once it has joined, rank 0 creates ``FOLDER/joined`` and waits for ``FOLDER/go``.
``--evil`` does so too, after creating ``FOLDER/came``; what it sends creates ``FOLDER/executed`` when it is unpickled.
``--evil --polite`` joins as a rank does.
"""

import json
import os
import sys
import time
from pathlib import Path

from paddlevit_dist.core.runtime import process_exit
from paddlevit_dist.core.runtime.errors import run_and_report


class Evil:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder / "executed"),)


def join(folder: Path, own_program: bool, evil: bool) -> None:
    import paddle

    import paddlevit_dist
    from paddlevit_dist.core.launch import rendezvous

    paddle.disable_signal_handler()
    if evil and "--polite" in sys.argv:
        rendezvous.join_group("cpu", spawned=False)
        paddlevit_dist.barrier()
        paddlevit_dist.all_gather(Evil(folder))
    elif evil:
        import paddle.distributed as dist

        paddle.set_device("cpu")
        (folder / "came").touch()
        dist.init_parallel_env()
        paddlevit_dist.barrier()
        paddlevit_dist.all_gather(Evil(folder))
    elif own_program:
        import paddle.distributed as dist

        paddle.set_device("cpu")
        dist.init_parallel_env()
    else:
        rendezvous.join_group("cpu", spawned=False)
    paddlevit_dist.barrier()
    if "--wait" in sys.argv and paddlevit_dist.rank() == 0:
        (folder / "joined").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
    gathered = paddlevit_dist.all_gather(f"rank {paddlevit_dist.rank()}")
    total = paddlevit_dist.reduce_dict({"n": paddlevit_dist.rank() + 1}, average=False)["n"]
    Path(folder, f"gathered_{paddlevit_dist.rank()}.json").write_text(json.dumps([gathered, total]), encoding="utf-8")
    paddlevit_dist.barrier()


if __name__ == "__main__":
    code = run_and_report(lambda: join(Path(sys.argv[1]), "--open" in sys.argv, "--evil" in sys.argv))
    sys.stdout.flush()
    sys.stderr.flush()
    if code == 0:
        process_exit.end(0)  # as a worker does: rank 0, which serves the store, leaves last
    os._exit(code)  # the group's destructors would wait for ranks that have failed
