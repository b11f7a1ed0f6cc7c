"""Segmentation of images gives the same weights for any number of processes, also with losses of classes and an
auxiliary head; and resumes as if nothing had happened."""

import numpy as np
import pytest
from support.processes import run_together
from support.trainings import small_segmenters

TRAIN = "support.trainings.small_segmenters:train"
PLAIN = ["TRAIN.BATCH_NORM", "sync"]
ALL = [*PLAIN, "MODEL.NAME", "upernet_of_tests", "TRAIN.DICE_WEIGHT", "1", "TRAIN.LOVASZ_WEIGHT", "0.5"]
ALL += ["SEGMENTATION.CLASS_WEIGHTS", "[0.5, 1, 2, 1]"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Trainings by one process, then the same by two."""
    folder = tmp_path_factory.mktemp("segmentation")
    one, calls = {}, {}
    for name, words in (("plain", PLAIN), ("all", ALL)):
        one[name] = small_segmenters.train(str(folder / f"{name}_1"), ["-batch_size=4", *words])
        calls[name] = (TRAIN, (str(folder / f"{name}_2"), ["-batch_size=2", *words]))
    return folder, one, run_together(calls)


def largest_difference(left: dict, right: dict) -> float:
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.mark.parametrize("name, words", [("plain", PLAIN), ("all", ALL)])
def test_two_processes_give_the_losses_and_weights_of_one(runs, name, words):
    folder, one, two = runs
    ranks, whole = two[name], one[name]
    assert sorted(whole["seen"]) == sorted(ranks[0]["seen"] + ranks[1]["seen"])
    for update, terms in enumerate(whole["losses"]):
        for term, (total, count) in terms.items():
            sums, counts = zip(*(rank["losses"][update][term] for rank in ranks))
            assert sum(counts) == count > 0
            assert sum(sums) == pytest.approx(total, rel=2e-4)
    assert largest_difference(ranks[0]["weights"], ranks[1]["weights"]) == 0.0
    start = small_segmenters.make_weights(small_segmenters.build(str(folder / f"{name}_start"), *words))
    moved = largest_difference(start, whole["weights"])
    assert moved > 1e-3 and largest_difference(whole["weights"], ranks[0]["weights"]) < 5e-4 * moved


def test_a_resumed_training_ends_with_the_same_weights(runs, tmp_path):
    words = ["-epochs=2", "-batch_size=4", *PLAIN]
    whole = small_segmenters.train(str(tmp_path / "whole"), words)
    output = str(tmp_path / "parts")
    small_segmenters.train(output, [*words, "-stop_after_epoch=1"])
    resumed = small_segmenters.train(output, [*words, "-resume=auto"])
    assert resumed["seen"] == whole["seen"][24:] and len(whole["seen"]) == 48
    assert largest_difference(whole["weights"], resumed["weights"]) == 0.0
