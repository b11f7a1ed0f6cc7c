"""The landmark task evaluates alike with two processes and three."""

from integration.volumes.test_landmark_training import HERE
from support.processes import run_workers, succeeded


def test_evaluation_is_equal_for_two_processes_and_three(tmp_path):
    two, three = (
        succeeded(run_workers(f"{HERE}:evaluate", str(tmp_path / f"{number}"), processes=number)).results
        for number in (2, 3)
    )
    assert 30 <= two[0]["landmarks"] <= 40
    assert all(values == two[0] for values in two + three)
