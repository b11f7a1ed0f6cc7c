"""The number of processes changes how fast a run is, never what it computes."""

from __future__ import annotations

import numpy as np
import pytest
from support.processes import run_workers, succeeded

SGD = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.05", "TRAIN.OPTIMIZER.MOMENTUM", "0.9"]
ADAMW = ["TRAIN.OPTIMIZER.NAME", "AdamW", "TRAIN.BASE_LR", "1e-3", "TRAIN.GRAD_CLIP", "1.0"]
COMMON = ["-epochs=1", "TRAIN.WARMUP_STEPS", "3", "TRAIN.SMOOTHING", "0.1"]


def trained(tmp_path, optimizer, processes: int, *arguments: str):
    """Results of all ranks of a run of 20 updates of 16 samples."""
    output = str(tmp_path / f"{processes}-{'-'.join(arguments).replace('=', '')}")
    target = "support.small_runs:train"
    ended = run_workers(target, output, [*arguments, *COMMON, *optimizer], processes=processes)
    return succeeded(ended).results


def largest_difference(left, right) -> float:
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)


@pytest.fixture(scope="module")
def sgd_runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sgd")
    return {
        "2 processes": trained(folder, SGD, 2, "-batch_size=8"),
        "1 process": trained(folder, SGD, 1, "-batch_size=16"),
        "accumulated": trained(folder, SGD, 1, "-batch_size=8", "-accum_iter=2"),
        "2 processes, accumulated": trained(folder, SGD, 2, "-batch_size=4", "-accum_iter=2"),
        "2 processes, recomputed": trained(folder, SGD, 2, "-batch_size=4", "-accum_iter=2", "-recompute"),
        "2 processes, compiled": trained(folder, SGD, 2, "-batch_size=4", "-accum_iter=2", "TO_STATIC=True"),
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
    """To the bit beside Paddle's layers, see images/test_compiled_models.py; our fast layers round differently."""
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


def test_with_adamw_and_clipping_the_losses_agree(tmp_path):
    reference = trained(tmp_path, ADAMW, 2, "-batch_size=8")[0]["losses"]
    for arguments in (["-batch_size=16"], ["-batch_size=8", "-accum_iter=2"]):
        other = trained(tmp_path, ADAMW, 1, *arguments)[0]["losses"]
        assert np.abs(np.array(reference) - np.array(other)).max() < 1e-4


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluation")
    target = "support.small_runs:evaluate"
    return {
        processes: succeeded(run_workers(target, str(folder / str(processes)), 1003, 32, processes=processes)).results
        for processes in (1, 2, 3)
    }


def test_evaluation_of_1003_samples_counts_each_once_for_1_2_and_3_processes(evaluations):
    expected = evaluations[1][0]
    assert expected["samples"] == 1003
    for results in evaluations.values():
        for values in results:
            assert {k: values[k] for k in ("samples", "top-1 count", "top-5 count")} == {
                k: expected[k] for k in ("samples", "top-1 count", "top-5 count")
            }
            assert values["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def test_all_ranks_return_the_same_evaluation(evaluations):
    for results in evaluations.values():
        assert all(values == results[0] for values in results)
