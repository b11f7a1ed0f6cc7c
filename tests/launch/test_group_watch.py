"""Ranks of several machines: one that is gone, stands still or never comes ends the others, which name it.

The machines are processes of this one, started as Paddle's launcher would.
"""

import contextlib
import io
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support import acting, processes, small_runs
from support.processes import ended_by_itself, free_ports, start_command

from paddlevit_dist import Run
from paddlevit_dist.distributed import barrier, rank
from paddlevit_dist.launch import group_watch, launch_workers, plan_processes, status

SECONDS = 8
LIMIT = 120.0  # on a machine that is busy with something else


def start_rank(number: int, port: int, *words: str, size: int = 2, **more: str) -> Any:
    """One rank of ``size`` on a machine of its own, as far as it knows."""
    more = {"PADDLE_LOCAL_SIZE": "1", "PADDLE_MASTER": f"127.0.0.1:{port}", **more}
    return processes.start_rank(number, [*range(port, port + size)], [__file__, *words], **more)


def train(output: str, guilty: str, number: str, word: str, *more: str) -> None:
    """The rank ``guilty`` sends itself a signal at the place ``word``."""
    if rank() == int(guilty):
        acting.at_place(word, int(number))
    trainer: Run = small_runs.build(f"{output}/{rank()}", "-epochs=1000", "-batch_size=16", *more, train_size=64)
    trainer.train()


def fail_on_rank_one() -> None:
    barrier()
    if rank() == 1:
        raise ValueError("the sample at hand is broken")
    barrier()


def fail_while_rank_one_joins() -> None:
    """Called in place of Paddle's own function, once all ranks have met at the store."""
    if os.environ["PADDLE_TRAINER_ID"] == "1":
        raise OSError("the network card is gone")
    initialise()


def hang_on_rank_one() -> None:
    status.note("between two barriers")
    barrier()
    if rank() == 1:
        time.sleep(1000)
    barrier()


def last_line(process: Any) -> str:
    """What a rank that must have ended says last."""
    ended = ended_by_itself(process, LIMIT)
    assert ended.code == 1, ended.err
    return ended.err.strip().splitlines()[-1]


def clear_away(processes: list[Any]) -> None:
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    "guilty, number, word",
    [
        pytest.param(1, signal.SIGKILL, "in the evaluation", marks=pytest.mark.long),
        pytest.param(0, signal.SIGKILL, "in the evaluation", marks=pytest.mark.long),
        pytest.param(0, signal.SIGSTOP, "in its forward pass", marks=pytest.mark.long),
    ],
)
def test_a_machine_that_is_gone_or_stands_still_ends_the_others(tmp_path, guilty, number, word):
    (port,) = free_ports(1)
    words = ["train", str(tmp_path), str(guilty), str(int(number)), word]
    ranks = [start_rank(each, port, *words) for each in range(2)]
    try:
        assert last_line(ranks[1 - guilty]).startswith(f"error: rank {guilty} failed: ")
        assert ranks[guilty].wait(LIMIT) == -signal.SIGKILL  # the kernel ends one that is stopped
    finally:
        clear_away(ranks)


def test_a_killed_rank_is_named_by_those_that_wait_for_it(tmp_path):
    (port,) = free_ports(1)
    words = ["train", str(tmp_path), "1", str(int(signal.SIGKILL)), "in its forward pass"]
    ranks = [start_rank(each, port, *words) for each in range(2)]
    try:
        _, err = ranks[0].communicate(timeout=LIMIT)
        assert "Traceback" not in err
        assert err.splitlines()[-1].startswith("error: rank 1 failed: not heard of for ")
    finally:
        clear_away(ranks)


def test_the_kernel_ends_a_rank_that_is_stopped():
    program = "import os; from paddlevit_dist.launch import group_watch as watch; watch._kill_after(60.0); "
    stopped = start_command(
        [sys.executable, "-c", program + f"watch._kill_after(0.2); os.kill(os.getpid(), {signal.SIGSTOP:d})"]
    )
    assert stopped.wait(LIMIT) == -signal.SIGKILL


def test_the_watch_goes_on_while_a_long_join_has_stderr_elsewhere(monkeypatch):
    """A group of GPUs takes seconds to join, and what Paddle says meanwhile goes into a string."""
    has_looked = threading.Event()
    monkeypatch.setattr(group_watch.Process, "look", lambda pid: has_looked.set() or group_watch._NO_PROCESS)
    watch = group_watch.GroupWatch(0, 1, {}, 60.0)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            assert has_looked.wait(LIMIT / 10)
    finally:
        watch.stop()


def test_what_a_rank_notes_last_is_what_it_tells_last(monkeypatch):
    """Else rank 0 would take one that has finished and gone for one that has failed."""
    told, has_read, has_told = [], threading.Event(), threading.Event()

    class Peer:
        def send(self, **message):
            told.append(message["status"])

    def read_slowly() -> str:
        if threading.current_thread() is threading.main_thread():
            return "finished"
        has_read.set()
        has_told.wait(0.2)
        return "at work"

    watch = group_watch.GroupWatch(0, 1, {}, 60.0)
    watch.stop()
    watch._peers = {1: Peer()}
    monkeypatch.setattr(group_watch.status, "own", read_slowly)
    watching = threading.Thread(target=watch._tell_status)
    watching.start()
    assert has_read.wait(LIMIT)
    watch._tell_status()
    has_told.set()
    watching.join()
    assert told == ["at work", "finished"]


@pytest.mark.long
def test_machines_that_would_train_differently_end_before_the_first_step(tmp_path):
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, "train", str(tmp_path), "-1", "0", "", "SEED", str(each)) for each in range(2)]
    try:
        host = socket.gethostname()
        for process in ranks:
            _, err = process.communicate(timeout=LIMIT)
            assert process.returncode == 2, err
            told = f"error: rank 1 on {host} differs from rank 0 on {host}: SEED 1 instead of 0; give all machines "
            assert err.splitlines()[-1].startswith(told)
    finally:
        clear_away(ranks)


@pytest.mark.parametrize("what", ["secret", pytest.param("join", marks=pytest.mark.long)])
def test_a_rank_that_fails_while_joining_is_named_at_once(tmp_path, what):
    secrets = [tmp_path / f"secret_{number}" for number in range(2)]
    for number, file in enumerate(secrets):
        file.write_text("a secret of these tests")
        file.chmod(0o644 if what == "secret" and number == 1 else 0o600)
    causes = {"secret": f"PADDLEVIT_DIST_SECRET_FILE={secrets[1]} can be read by", "join": "OSError: the network card"}
    (port,) = free_ports(1)
    ranks = [start_rank(n, port, what, PADDLEVIT_DIST_SECRET_FILE=str(secrets[n])) for n in range(2)]
    try:
        _, err = ranks[0].communicate(timeout=LIMIT)
        (line,) = err.splitlines()
        assert line.startswith(f"error: rank 1 failed: {causes[what]}")
    finally:
        clear_away(ranks)


@pytest.mark.long
@pytest.mark.parametrize("what, cause", [("fail", "ValueError: the sample at hand"), ("hang", "stood still for ")])
def test_every_machine_is_told_why_a_rank_failed(what, cause):
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, what) for each in range(2)]
    try:
        for process in ranks:
            line = last_line(process)
            assert cause in line
            if process is ranks[0] or what == "hang":
                assert line.startswith("error: rank 1 failed: ")
    finally:
        clear_away(ranks)


def test_what_aborts_after_the_work_does_not_fail_a_launched_rank_and_nothing_own_is_lost(tmp_path):
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, "abort", str(tmp_path)) for each in range(2)]
    try:
        assert [ended_by_itself(process, LIMIT).code for process in ranks] == [0, 0]
        assert all((tmp_path / f"log_{rank}").read_text() == "a line" for rank in (0, 1))
        assert all((tmp_path / f"handler_{rank}").exists() for rank in (0, 1))
    finally:
        clear_away(ranks)


@pytest.mark.long
def test_a_rank_that_never_comes_is_named_on_all_machines():
    (port,) = free_ports(1)
    ranks = [start_rank(each, port, "fail", size=3) for each in range(2)]
    try:
        for process in ranks:
            line = last_line(process)
            assert line.startswith("error: rank 2 failed: it did not come to 127.0.0.1:"), line
            assert f"within {SECONDS} s (WATCHDOG_SECONDS)" in line
    finally:
        clear_away(ranks)


@pytest.mark.long
def test_a_master_port_that_another_program_has_is_named_on_all_machines():
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        port = stranger.getsockname()[1]
        ranks = [start_rank(each, port, "fail") for each in range(2)]
        try:
            for process in ranks:
                _, err = process.communicate(timeout=LIMIT)
                assert process.returncode == 2, err
                (line,) = err.strip().splitlines()
                assert "another program" in line and f"127.0.0.1:{port}" in line
                assert line.endswith("choose a free port") or line.endswith("choose a free port for the master")
        finally:
            clear_away(ranks)


if __name__ == "__main__":
    from launch.test_failures import leave_a_destructor_that_aborts
    from paddlevit_dist.runtime.errors import run_and_report

    works = {"train": train, "fail": fail_on_rank_one, "hang": hang_on_rank_one}
    works["abort"] = leave_a_destructor_that_aborts
    import paddle.distributed as dist  # after this package, as Paddle 2.6 needs

    initialise = dist.init_parallel_env
    if sys.argv[1] == "join":
        dist.init_parallel_env = fail_while_rank_one_joins
    work, rest = works.get(sys.argv[1], fail_on_rank_one), tuple(sys.argv[2:])
    Path(rest[0]).mkdir(exist_ok=True) if rest else None
    sys.exit(run_and_report(lambda: launch_workers(work, rest, plan_processes(-1), watchdog_seconds=SECONDS)))
