"""Panoptic segmentation gives the same weights and scores for any number of processes, also where images have no
object; and resumes as if nothing had happened."""

import numpy as np
import pytest
from support.processes import run_together
from support.trainings import small_panoptic

TRAIN, EVALUATE = "support.trainings.small_panoptic:train", "support.trainings.small_panoptic:evaluate"
WORDS = ["TRAIN.WARMUP_STEPS", "None"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A training by one process, then the same by two."""
    folder = tmp_path_factory.mktemp("panoptic")
    one = small_panoptic.train(str(folder / "one"), ["-batch_size=6", *WORDS])
    return folder, one, run_together({"two": (TRAIN, (str(folder / "two"), ["-batch_size=3", *WORDS]))})["two"]


def largest_difference(left: dict, right: dict) -> float:
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


def test_two_processes_give_the_losses_and_weights_of_one(runs):
    folder, whole, ranks = runs
    assert sorted(whole["seen"]) == sorted(ranks[0]["seen"] + ranks[1]["seen"])
    for update, terms in enumerate(whole["losses"]):
        for term, (total, count) in terms.items():
            sums, counts = zip(*(rank["losses"][update][term] for rank in ranks))
            assert sum(counts) == pytest.approx(count) and count > 0
            assert sum(sums) == pytest.approx(total, rel=2e-4)
    assert largest_difference(ranks[0]["weights"], ranks[1]["weights"]) == 0.0
    start = small_panoptic.make_weights(small_panoptic.build(str(folder / "start"), *WORDS))
    moved = largest_difference(start, whole["weights"])
    assert moved > 1e-3 and largest_difference(whole["weights"], ranks[0]["weights"]) < 5e-4 * moved


def test_two_processes_give_the_scores_of_one(runs):
    folder, _, _ = runs
    weights = str(folder / "one" / "checkpoints" / "last")
    words = ["DATA.SHAPES.VAL", "7", "-batch_size_eval=2"]
    one = small_panoptic.evaluate(str(folder / "evaluated_1"), weights, words)
    ranks = run_together({"two": (EVALUATE, (str(folder / "evaluated_2"), weights, words))})["two"]
    assert ranks[0]["segments"] == one["segments"] > 0
    assert {name: value for name, value in ranks[0].items() if "Q" in name} == {
        name: value for name, value in one.items() if "Q" in name
    }


def test_a_resumed_training_ends_with_the_same_weights(tmp_path):
    words = ["-epochs=2", "-batch_size=4", *WORDS]
    whole = small_panoptic.train(str(tmp_path / "whole"), words)
    output = str(tmp_path / "parts")
    small_panoptic.train(output, [*words, "-stop_after_epoch=1"])
    resumed = small_panoptic.train(output, [*words, "-resume=auto"])
    assert resumed["seen"] == whole["seen"][24:] and len(whole["seen"]) == 48
    assert largest_difference(whole["weights"], resumed["weights"]) == 0.0
