"""More optimizers whose steps are operations on lists, and an evaluation by three processes."""

import pytest
from integration.core.distributed.test_equivalence import (
    BY_DAY,
    LISTS,
    require_each_sample_once,
    require_the_same_evaluation,
    require_the_same_training,
    run_and_evaluate,
)

BY_NIGHT = {name: words for name, words in LISTS.items() if name != BY_DAY}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    sizes = {1: 16, 2: 8}
    found = {
        processes: run_and_evaluate(
            folder, processes, **{f"whole {name}": [f"-batch_size={size}", *words] for name, words in BY_NIGHT.items()}
        )
        for processes, size in sizes.items()
    }
    return {**found, 3: run_and_evaluate(folder, 3)}


@pytest.mark.parametrize("name", BY_NIGHT)
def test_the_losses_agree_and_ranks_have_the_same_weights(runs, name):
    require_the_same_training(runs, name)


def test_evaluation_of_1003_samples_counts_each_once_for_1_2_and_3_processes(runs):
    evaluations = {processes: results["evaluation"] for processes, results in runs.items()}
    require_each_sample_once(evaluations)
    require_the_same_evaluation(evaluations)
