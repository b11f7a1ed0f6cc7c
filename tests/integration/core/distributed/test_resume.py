"""A run that was stopped or killed and then resumed equals a run that was never stopped."""

from pathlib import Path

import pytest
from integration.core.distributed.resumed_runs import (
    TINY,
    require_equal_records,
    require_equal_state,
    run,
    stop_kill_and_resume,
)
from support.processes import run_main, run_workers, succeeded
from support.trainings.poisoned_runs import require_unchanged
from support.trainings.runs import read_events


@pytest.fixture(scope="module")
def straight_and_resumed(tmp_path_factory) -> Path:
    return stop_kill_and_resume(tmp_path_factory.mktemp("resume"), processes=1)


def test_four_epochs_equal_two_then_part_of_one_and_the_rest_bit_for_bit(straight_and_resumed):
    require_equal_state(straight_and_resumed)


def test_metrics_and_log_of_a_resumed_run_are_those_of_the_straight_run(straight_and_resumed):
    require_equal_records(straight_and_resumed)


def test_averaged_weights_are_what_counts(straight_and_resumed):
    """The last line is that of the averaged weights; evaluating the checkpoint repeats it, and its file its own."""
    straight = straight_and_resumed / "straight"
    lines = read_events(straight)
    averaged, own = (
        [line for line in lines if line["kind"] == kind][-1] for kind in ("evaluation", "evaluation_without_average")
    )
    assert averaged["loss"] != own["loss"]
    for source, expected in (("last", averaged), ("last/model.pdparams", own)):
        checkpoint = straight / "checkpoints" / source
        arguments = (f"-output={straight_and_resumed / 'evaluated'}", "-eval", f"-pretrained={checkpoint}", *TINY)
        ended = succeeded(run_main(*arguments))
        assert ended.out.strip().splitlines()[-1].endswith(f"loss {expected['loss']:.4f}")


def test_resuming_by_path_goes_on_in_a_new_output_folder(straight_and_resumed, tmp_path):
    source = straight_and_resumed / "half" / "checkpoints" / "last"
    ended = run(tmp_path / "new", f"-resume={source}", "-ngpus=1", "-allow_changes")
    assert "after epoch 2" in ended.out
    assert (tmp_path / "new" / "checkpoints" / "epoch_0004").is_dir()


def test_a_loss_that_is_infinite_on_one_rank_changes_nothing_on_any(tmp_path):
    ended = succeeded(run_workers("support.trainings.poisoned_runs:poisoned_on_the_second_of_two", str(tmp_path), 5))
    for result in ended.results:
        require_unchanged(*result, at=5)
