"""The example of a Slurm job, with programs in place of Slurm's: which ends it queues again, how, and with what."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support.processes import ROOT, run_command

STOP, FAILURE, EPOCH, RESUME, FOUND = (
    {"kind": "interruption", "reason": "asked to stop (SIGTERM)"},
    {"kind": "failure", "reason": "training has diverged"},
    {"kind": "epoch", "epoch": 2},
    {"kind": "resume", "epoch": 1},
    {"kind": "interruption", "reason": "found when resuming"},
)


class QueuedJob:
    """A job whose programs are in ``folder``; ``srun`` runs what a test writes into it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output = folder, folder / "run"
        self.variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2"}
        (folder / "programs").mkdir()
        self.output.mkdir()
        text = (ROOT / "examples" / "cluster" / "slurm.sh").read_text()
        (folder / "slurm.sh").write_text(text.replace("/shared/run", str(self.output)))
        self.set("getent", 'echo "10.0.0.1 STREAM $2"')
        self.set("hostname", 'echo "127.0.0.1 fe80::1 10.0.0.9 "')
        self.set("squeue", "echo NONE")
        self.set_node("10.0.0.5")

    def set(self, name: str, text: str) -> None:
        """Set what a program does."""
        file = self.folder / "programs" / name
        file.write_text(f"#!/bin/bash\n{text}\n")
        file.chmod(0o755)

    def set_node(self, address: str) -> None:
        """Set the address by which Slurm lists machines, and note what is queued again."""
        requeue = f"[ $1 = requeue ] && echo $2 >> {self.folder}/requeued"
        hosts = '[ "$1 $2" = "show hostnames" ] && printf "node1\\nnode2\\n"'
        node = f'[ "$1 $2" = "show node" ] && echo "   NodeAddr={address} NodeHostName=$3 Version=22"'
        self.set("scontrol", f"{requeue}\n{hosts}\n{node}\nexit 0")

    def record(self, *events: dict) -> str:
        """Return a command that appends events to the run's records."""
        lines = "".join(json.dumps(event) + "\n" for event in events)
        return f"printf '%s' '{lines}' >> {self.output}/metrics.jsonl"

    def start(self, srun: str) -> tuple[int, list[str], str]:
        """Run the job; return its exit code, the jobs that it queued again, and its messages."""
        self.set("srun", srun)
        (self.folder / "requeued").unlink(missing_ok=True)
        environment = {"PATH": f"{self.folder}/programs:{os.environ['PATH']}", "HOME": str(self.folder)}
        ended = run_command(["bash", "slurm.sh"], 60, self.folder, **environment, **self.variables)
        requeued = self.folder / "requeued"
        return ended.code, requeued.read_text().split() if requeued.exists() else [], ended.err


@pytest.fixture
def job(tmp_path) -> QueuedJob:
    return QueuedJob(tmp_path)


@pytest.mark.parametrize(
    "events, code, is_queued",
    [
        ([EPOCH, STOP], 15, True),  # the launcher's code after SIGTERM
        ([EPOCH, STOP], 75, True),
        ([EPOCH, STOP], 1, True),  # rank 0 recorded that another rank was lost
        ([EPOCH, FAILURE], 2, False),
        ([EPOCH, FAILURE], 247, False),
        ([FOUND, RESUME], 2, False),  # what the earlier start did not record
        ([], 75, True),  # stopped before the first update
        ([], 15, True),
        ([], 137, True),  # rank 0 was killed, as srun tells it
        ([], 247, True),  # and as the launcher
        ([EPOCH], 247, True),
        ([], 245, False),  # SIGSEGV
        ([], 1, False),
        ([], 2, False),
        ([EPOCH], 0, False),
    ],
)
@pytest.mark.parametrize("earlier", [STOP, FAILURE])
def test_the_record_of_this_start_decides_and_else_the_exit_code(job, earlier, events, code, is_queued):
    subprocess.run(["bash", "-c", job.record(EPOCH, earlier)], check=True)
    assert job.start(f"{job.record(*events)}\nexit {code}")[:2] == (code, ["7"] if is_queued else [])


def test_a_folder_without_records_is_a_first_start(job):
    assert job.start("exit 2")[:2] == (2, []) and job.start("exit 75")[:2] == (75, ["7"])


def test_three_restarts_may_bring_no_checkpoint(job):
    checkpoint = f"{job.output}/checkpoints/epoch_0001"  # newer than the start: clocks of files have steps
    newer = f"until [ {checkpoint} -nt $logs/started ]; do touch {checkpoint}; done"
    saved = f"mkdir -p {checkpoint}; {newer}; {job.record(STOP)}; exit 75"
    starts = [job.start(what) for what in ("exit 137", "exit 137", saved, "exit 137", "exit 137", "exit 137")]
    assert [queued for _, queued, _ in starts] == [["7"]] * 5 + [[]]
    assert starts[-1][0] == 137 and "not requeued: 3 restarts have brought no new checkpoint" in starts[-1][2]
    assert job.start("exit 137")[1] == ["7"]  # submitted again, it counts from the beginning


def test_a_task_of_an_array_queues_itself_only(job):
    job.variables |= {"SLURM_JOB_ID": "13", "SLURM_ARRAY_JOB_ID": "13", "SLURM_ARRAY_TASK_ID": "2"}
    assert job.start("exit 75")[1] == ["13_2"]


@pytest.mark.parametrize(
    "listed, named, address",
    [
        ("10.0.0.5", "10.0.0.1", "10.0.0.5"),
        ("10.0.0.5", "127.0.1.1", "10.0.0.5"),  # Debian's hosts file names the machine so
        ("node1", "10.0.0.1", "10.0.0.1"),
        ("node1", "127.0.1.1", "10.0.0.9"),
    ],
)
def test_the_master_has_an_address_that_other_machines_reach(job, listed, named, address):
    job.set_node(listed)
    job.set("getent", f'echo "{named} STREAM $2"')
    job.variables |= {"SLURMD_NODENAME": "node1", "SLURM_NODEID": "0"}
    job.set("python", f'echo "$@" >> {job.folder}/words')
    assert job.start('"$@"')[0] == 0
    words = (job.folder / "words").read_text()
    assert f"--master {address}:38707 --host {address} " in words and "stop_after_seconds" not in words


def test_machines_without_an_address_are_refused_before_they_wait_for_each_other(job):
    job.set_node("node1")
    job.set("getent", "echo 127.0.1.1 STREAM node1")
    job.set("hostname", "echo 127.0.0.1")
    assert "no address that others reach" in job.start("exit 0")[2]
    job.variables["SLURM_NNODES"] = "1"
    assert job.start('[ "$MASTER" = 127.0.0.1:38707 ]')[0] == 0


@pytest.mark.parametrize("minutes, seconds", [(60, 3300), (6, 180)])
def test_ranks_stop_before_the_end_of_the_job(job, minutes, seconds):
    job.set("squeue", f"date -d '+{minutes} minutes' +%Y-%m-%dT%H:%M:%S")
    job.set("python", f'echo "$@" >> {job.folder}/words')
    assert job.start('"$@"')[0] == 0
    found = re.search(r"-output=\S+ -resume=auto -stop_after_seconds=(\d+)$", (job.folder / "words").read_text(), re.M)
    assert found is not None and seconds - 30 <= int(found[1]) <= seconds


def test_the_snippet_of_the_page_queues_its_own_task(job):
    page = (ROOT / "docs" / "guides" / "running.md").read_text()
    command = next(line for line in page.splitlines() if line.startswith("srun ") and "scontrol requeue" in line)
    assert "--open-mode=append" in page
    (job.folder / "slurm.sh").write_text(f"{command}\n")
    assert job.start("exit 75")[1] == ["7"] and job.start("exit 2")[1] == []
    job.variables |= {"SLURM_JOB_ID": "13", "SLURM_ARRAY_JOB_ID": "13", "SLURM_ARRAY_TASK_ID": "2"}
    assert job.start("exit 75")[1] == ["13_2"]
