"""Shells and machines that give a run too little, or something left over: one line each, before any work is done."""

import subprocess
import sys

import pytest
from support.processes import run_command, run_main
from support.trainings.runs import DIGITS, MAIN, refusal, refused, well

from paddlevit_dist.core.runtime import limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses ulimit, /proc and /dev/full")


def in_shell(setup: str, *words: str) -> list:
    return ["sh", "-c", f'{setup} && exec "$@"', "sh", sys.executable, *words]


@pytest.mark.parametrize(
    "setup, expected",
    [("ulimit -v 1000000", "too little memory or too few open files"), ("export HOME=/proc", "/proc/.cache': Paddle")],
    ids=["memory", "home"],
)
def test_too_low_a_limit_ends_in_one_line_at_the_start(setup, expected, tmp_path):
    arguments = [f"-output={tmp_path / 'output'}", *DIGITS]
    ended = run_command(in_shell(setup, str(MAIN), *arguments))
    last = ended.err.splitlines()[-1]  # Paddle 2.6 prints one of its own before it raises
    assert ended.code == 2 and last.startswith("error: ") and expected in last and "Traceback" not in ended.err


def test_a_low_limit_of_open_files_is_raised_as_far_as_the_user_may(tmp_path):
    arguments = [f"-output={tmp_path}", *[word for word in DIGITS if "num_workers" not in word], "-num_workers=2"]
    well(run_command(in_shell("ulimit -Sn 20", str(MAIN), *arguments)))


TAKES_TOO_MUCH = """
import resource, sys
from paddlevit_dist.core.runtime.errors import run_and_report
resource.setrlimit(resource.{limit}, ({value}, {value}))
def work():
    {work}
sys.exit(run_and_report(work))
"""


@pytest.mark.parametrize(
    "limit, value, work, expected",
    [
        ("RLIMIT_AS", 1 << 30, "bytearray(1 << 33)", "MemoryError: too little memory or too few open files"),
        ("RLIMIT_NOFILE", 32, "[open('/dev/null') for _ in range(40)]", "Too many open files: '/dev/null'"),
    ],
    ids=["memory", "files"],
)
def test_a_limit_that_is_met_later_is_named_too(limit, value, work, expected):
    script = TAKES_TOO_MUCH.format(limit=limit, value=value, work=work)
    said = refusal(run_command([sys.executable, "-c", script]))
    assert expected in said and "raise the limit, or lower" in said


def test_a_kill_for_memory_is_told_from_others_with_the_limit_of_the_container(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "CONTROL_GROUPS", tmp_path)  # no test may have its machine run out of memory
    counter = tmp_path / "memory.events"
    counter.write_text("low 0\noom 3\noom_kill 2\n")
    (tmp_path / "memory.max").write_text(f"{3 << 30}\n")
    before = limits.out_of_memory_kills()
    if not before:
        pytest.skip("this system has no control groups")
    assert limits.memory_kill_since(before) is None
    counter.write_text("low 0\noom 4\noom_kill 3\n")
    assert "the memory of its container or job, 3.0 GiB, ran out" in limits.memory_kill_since(before)


@pytest.mark.parametrize(
    "variables, problem",
    [
        ({"PADDLE_TRAINER_ID": "0"}, "PADDLE_TRAINERS_NUM is not"),
        ({"PADDLE_TRAINER_ID": "0", "PADDLE_TRAINERS_NUM": "1"}, "-ngpus=2 requests more processes"),
        ({"PADDLE_TRAINER_ID": "x", "PADDLE_TRAINERS_NUM": "2"}, "not one of PADDLE_TRAINERS_NUM=2 processes"),
    ],
    ids=["alone", "of one process", "no number"],
)
def test_a_number_that_an_earlier_launch_left_in_the_shell_is_refused(variables, problem, tmp_path):
    message = refused_with(variables, f"-output={tmp_path / 'output'}", *DIGITS, "-ngpus=2")
    assert problem in message and f"`unset {' '.join(variables)}`" in message
    assert not (tmp_path / "output").exists()


def refused_with(variables: dict, *words: str) -> str:
    return refusal(run_main(*words, **variables))


@pytest.mark.parametrize("name", ["log.txt", "run.json"])
def test_a_folder_in_the_place_of_a_file_of_the_run_is_named(name, tmp_path):
    (tmp_path / name).mkdir()
    message = refused(f"-output={tmp_path}", *DIGITS)
    assert f"cannot write {tmp_path / name}: Is a directory" in message
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_shared_memory_that_cannot_be_written_is_named(tmp_path):
    # A file system of its own over it: to mount the real one again read-only would do so for the whole machine.
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs -o ro tmpfs /dev/shm && exec "$@"']
    if subprocess.run([*mount, "sh", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system of their own")
    words = [sys.executable, str(MAIN), f"-output={tmp_path / 'output'}", *DIGITS, "-ngpus=2"]
    message = refusal(run_command([*mount, "sh", *words]))
    assert "Read-only file system" in message and "several processes need a writable /dev/shm" in message
