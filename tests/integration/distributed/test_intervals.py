"""Intervals do not depend on which process evaluates which sample."""

import pytest
from support.counted_samples import evaluate_share
from support.processes import run_workers, succeeded


@pytest.fixture(scope="module")
def of_one_process() -> dict:
    return evaluate_share()


@pytest.mark.parametrize("processes", [2, 3])
def test_all_ranks_get_the_intervals_of_one_process(processes, of_one_process):
    ended = succeeded(run_workers("support.counted_samples:evaluate_share", processes=processes))
    assert ended.results == [of_one_process] * processes
