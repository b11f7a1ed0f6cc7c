"""Two processes that were stopped, killed and resumed equal ones that were not, and one process goes on with them."""

import shutil
from pathlib import Path

import pytest
from integration.core.distributed.resumed_runs import (
    assert_bit_equal,
    require_equal_records,
    require_equal_state,
    run,
    stop_kill_and_resume,
    weights,
)
from support.trainings.runs import read_events


@pytest.fixture(scope="module")
def by_two(tmp_path_factory) -> Path:
    return stop_kill_and_resume(tmp_path_factory.mktemp("resume"), processes=2)


def test_two_processes_resume_bit_for_bit(by_two):
    require_equal_state(by_two)
    require_equal_records(by_two)


def test_sorted_points_resume_bit_for_bit(tmp_path):
    folder = stop_kill_and_resume(tmp_path, processes=2, kind="sorted points")
    require_equal_state(folder)
    require_equal_records(folder)


def test_a_run_resumes_with_another_number_of_processes(by_two, tmp_path):
    source = by_two / "half"
    ended = run(tmp_path / "other", f"-resume={source}", "-ngpus=1", "-accum_iter=4", "-allow_changes")
    lines = read_events(tmp_path / "other")
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [3, 4]
    assert ended.out.strip().splitlines()[-1].startswith("top-1")


def test_a_damaged_newest_checkpoint_is_passed_over_for_the_one_before(by_two, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(by_two / "half", damaged, symlinks=True)
    target = damaged / "checkpoints" / "epoch_0002" / "model.pdparams"
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    ended = run(damaged, "-resume=auto", "-ngpus=2")
    assert "damaged checkpoint skipped" in ended.out and "epoch_0002" in ended.out
    assert "after epoch 1" in ended.out
    assert_bit_equal(weights(damaged), weights(by_two / "straight"))
