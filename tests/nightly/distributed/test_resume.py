"""Two processes that were stopped, killed and resumed equal ones that were not, and one process goes on with them."""

import json
from pathlib import Path

import pytest
from integration.distributed.resumed_runs import require_equal_records, require_equal_state, run, stop_kill_and_resume


@pytest.fixture(scope="module")
def by_two(tmp_path_factory) -> Path:
    return stop_kill_and_resume(tmp_path_factory.mktemp("resume"), processes=2)


def test_two_processes_resume_bit_for_bit(by_two):
    require_equal_state(by_two)
    require_equal_records(by_two)


def test_a_run_resumes_with_another_number_of_processes(by_two, tmp_path):
    source = by_two / "half"
    ended = run(tmp_path / "other", f"-resume={source}", "-ngpus=1", "-accum_iter=4", "-allow_changes")
    lines = [json.loads(line) for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [3, 4]
    assert ended.out.strip().splitlines()[-1].startswith("top-1")
