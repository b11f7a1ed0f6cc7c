"""The number of processes changes how fast a run is, never what it computes; three, and more optimizers, at night."""

import numpy as np
import pytest
from support.processes import run_together

SGD = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.05", "TRAIN.OPTIMIZER.MOMENTUM", "0.9"]
ADAMW = ["TRAIN.OPTIMIZER.NAME", "AdamW", "TRAIN.BASE_LR", "1e-3", "TRAIN.GRAD_CLIP", "1.0"]
RULES = (("SGD", SGD), ("AdamW", ADAMW))
LISTS = {  # optimizers whose steps are operations on lists
    name: ["TRAIN.OPTIMIZER.NAME", name, "TRAIN.BASE_LR", rate, "TRAIN.GRAD_CLIP", "1.0", *more]
    for name, rate, more in (
        ("Lion", "1e-4", []),
        ("LAMB", "3e-3", []),
        ("Muon", "1e-3", ["TRAIN.OPTIMIZER.WARMUP_MOMENTUM", "0.8"]),
    )
}
BY_DAY = "Muon"
COMMON = ["-epochs=1", "TRAIN.WARMUP_STEPS", "3", "TRAIN.SMOOTHING", "0.1"]


def run_and_evaluate(folder, processes, **trainings):
    """Results of all ranks of each training and of an evaluation of 1003 samples, in one group."""
    named = {
        name: ("support.trainings.small_runs:train", (str(folder / f"{processes} {name}"), [*words, *COMMON]))
        for name, words in trainings.items()
    }
    evaluation = ("support.trainings.small_runs:evaluate", (str(folder / f"{processes} evaluation"), 1003, 32))
    return run_together({"evaluation": evaluation, **named}, processes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of runs of 20 updates of 16 samples, and of evaluations, by one process and two."""
    folder = tmp_path_factory.mktemp("runs")

    def calls(processes: int, **trainings: list):
        return run_and_evaluate(folder, processes, **trainings)

    quarter = ["-batch_size=4", "-accum_iter=2", *SGD]
    lora = [*ADAMW, "TRAIN.LORA.RANK", "4", f"-pretrained={folder / '1 whole SGD'}"]
    both = {"accumulated": ["-batch_size=8", "-accum_iter=2"], "whole": ["-batch_size=16"]}
    return {
        1: calls(
            1,
            **{f"{name} {kind}": [*words, *rule] for kind, rule in RULES for name, words in both.items()},
            **{f"whole {BY_DAY}": ["-batch_size=16", *LISTS[BY_DAY]], "whole LoRA": ["-batch_size=16", *lora]},
        ),
        2: calls(
            2,
            **{f"whole {BY_DAY}": ["-batch_size=8", *LISTS[BY_DAY]], "whole LoRA": ["-batch_size=8", *lora]},
            **{f"whole {kind}": ["-batch_size=8", *rule] for kind, rule in RULES},
            accumulated=quarter,
            recomputed=[*quarter, "-recompute"],
            compiled=[*quarter, "TO_STATIC=True"],  # the last: its threads stay
        ),
    }


def largest_difference(left, right) -> float:
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.fixture(scope="module")
def sgd_runs(runs):
    return {
        "2 processes": runs[2]["whole SGD"],
        "1 process": runs[1]["whole SGD"],
        "accumulated": runs[1]["accumulated SGD"],
        **{f"2 processes, {name}": runs[2][name] for name in ("accumulated", "recomputed", "compiled")},
    }


@pytest.mark.parametrize("other", ["1 process", "accumulated", "2 processes, accumulated"])
def test_twenty_sgd_updates_give_the_same_weights(sgd_runs, other):
    reference, result = sgd_runs["2 processes"][0], sgd_runs[other][0]
    assert len(reference["losses"]) == 20
    assert largest_difference(reference["weights"], result["weights"]) < 1e-5
    np.testing.assert_allclose(reference["losses"], result["losses"], rtol=1e-5)


def test_recomputed_blocks_give_the_same_weights_to_the_bit(sgd_runs):
    for of_rank, of_rank_that_way in zip(sgd_runs["2 processes, accumulated"], sgd_runs["2 processes, recomputed"]):
        assert largest_difference(of_rank["weights"], of_rank_that_way["weights"]) == 0.0


def test_compiled_passes_give_the_same_weights(sgd_runs):
    """To the bit beside Paddle's layers (nightly/images/test_compiled_models.py); our fast layers round differently."""
    for of_rank, of_rank_that_way in zip(sgd_runs["2 processes, accumulated"], sgd_runs["2 processes, compiled"]):
        assert largest_difference(of_rank["weights"], of_rank_that_way["weights"]) < 1e-5


def test_training_moved_the_weights(sgd_runs):
    """Otherwise the comparisons above would hold for a trainer that does nothing."""
    for run in sgd_runs.values():
        moved = [np.abs(run[0]["initial"][name] - run[0]["weights"][name]).max() for name in run[0]["weights"]]
        assert min(moved) > 1e-4 and max(moved) > 1e-2


def test_ranks_end_with_bit_equal_weights(sgd_runs):
    for run in ("2 processes", "2 processes, accumulated"):
        first, second = sgd_runs[run]
        assert largest_difference(first["weights"], second["weights"]) == 0.0


def test_with_adamw_and_clipping_the_losses_agree(runs):
    reference = runs[2]["whole AdamW"][0]["losses"]
    for name in ("whole", "accumulated"):
        other = runs[1][f"{name} AdamW"][0]["losses"]
        assert np.abs(np.array(reference) - np.array(other)).max() < 1e-4


@pytest.mark.parametrize("name", [BY_DAY, "LoRA"])
def test_with_other_optimizers_the_losses_agree_and_ranks_have_the_same_weights(runs, name):
    require_the_same_training(runs, name)


def require_the_same_training(runs, name):
    first, second = runs[2][f"whole {name}"]
    assert largest_difference(first["weights"], second["weights"]) == 0.0
    (alone,) = runs[1][f"whole {name}"]
    assert np.abs(np.array(first["losses"]) - np.array(alone["losses"])).max() < 1e-4
    moved = {key: np.abs(value - alone["weights"][key]).max() for key, value in alone["initial"].items()}
    trained = ["head.weight", "head.bias"] if name == "LoRA" else list(moved)
    assert min(moved[key] for key in trained) > 1e-5


@pytest.fixture(scope="module")
def evaluations(runs):
    return {processes: results["evaluation"] for processes, results in runs.items()}


def test_evaluation_of_1003_samples_counts_each_once_for_one_process_and_two(evaluations):
    require_each_sample_once(evaluations)


def require_each_sample_once(evaluations):
    expected = evaluations[1][0]
    assert expected["samples"] == 1003
    for results in evaluations.values():
        for values in results:
            assert {k: values[k] for k in ("samples", "top-1 count", "top-5 count")} == {
                k: expected[k] for k in ("samples", "top-1 count", "top-5 count")
            }
            assert values["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def test_all_ranks_return_the_same_evaluation(evaluations):
    require_the_same_evaluation(evaluations)


def require_the_same_evaluation(evaluations):
    for results in evaluations.values():
        assert all(values == results[0] for values in results)
