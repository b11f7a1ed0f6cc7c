"""Machines of one rank, processes of this one started as Paddle's launcher would, and what their ranks do."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from support import acting, processes
from support.trainings import small_runs

from paddlevit_dist import Trainer
from paddlevit_dist.core.distributed import barrier, rank
from paddlevit_dist.core.launch import launch_workers, plan_processes, status

SECONDS = 8
LIMIT = 600.0


def start_rank(number: int, port: int, *words: str, size: int = 2, **more: str) -> Any:
    """One rank of ``size`` on a machine of its own, as far as it knows."""
    more = {"PADDLE_LOCAL_SIZE": "1", "PADDLE_MASTER": f"127.0.0.1:{port}", **more}
    return processes.start_rank(number, [*range(port, port + size)], [__file__, *words], **more)


def train(output: str, guilty: str, number: str, word: str, *more: str) -> None:
    """The rank ``guilty`` sends itself a signal at the place ``word``."""
    if rank() == int(guilty):
        acting.at_place(word, int(number))
    trainer: Trainer = small_runs.build(f"{output}/{rank()}", "-epochs=1000", "-batch_size=16", *more, train_size=64)
    trainer.train()


def clear_away(processes: list[Any]) -> None:
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def require_named(folder: Path, what: str, cause: str, mode: int = 0o600) -> None:
    """Start two ranks; rank 0 must name rank 1, whose file of the secret has ``mode``, with the cause."""
    secrets = [folder / f"secret_{number}" for number in range(2)]
    for file, its_mode in zip(secrets, (0o600, mode)):
        file.write_text("a secret of these tests")
        file.chmod(its_mode)
    (port,) = processes.free_ports(1)
    ranks = [start_rank(n, port, what, PADDLEVIT_DIST_SECRET_FILE=str(secrets[n])) for n in range(2)]
    try:
        _, err = ranks[0].communicate(timeout=LIMIT)
        (line,) = err.splitlines()
        assert line.startswith(f"error: rank 1 failed: {cause.format(secrets[1])}")
    finally:
        clear_away(ranks)


def fail_on_rank_one() -> None:
    barrier()
    if rank() == 1:
        raise ValueError("the sample at hand is broken")
    barrier()


def fail_while_rank_one_joins() -> None:
    """Called in place of Paddle's own function, once all ranks have met at the store."""
    if os.environ["PADDLE_TRAINER_ID"] == "1":
        raise OSError("the network card is gone")
    initialize()


def hang_on_rank_one() -> None:
    status.note("between two barriers")
    barrier()
    if rank() == 1:
        time.sleep(1000)
    barrier()


if __name__ == "__main__":
    from integration.core.launch.aborting import leave_a_destructor_that_aborts

    from paddlevit_dist.core.runtime.errors import run_and_report

    works = {"train": train, "fail": fail_on_rank_one, "hang": hang_on_rank_one}
    works["abort"] = leave_a_destructor_that_aborts
    import paddle.distributed as dist  # after this package, as Paddle 2.6 needs

    initialize = dist.init_parallel_env
    if sys.argv[1] == "join":
        dist.init_parallel_env = fail_while_rank_one_joins
    work, rest = works.get(sys.argv[1], fail_on_rank_one), tuple(sys.argv[2:])
    Path(rest[0]).mkdir(exist_ok=True) if rest else None
    sys.exit(run_and_report(lambda: launch_workers(work, rest, plan_processes(-1), watchdog_seconds=SECONDS)))
