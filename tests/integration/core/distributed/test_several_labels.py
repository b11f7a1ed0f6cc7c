"""Unknown labels change neither losses nor scores, however processes and micro-batches divide the images."""

from pathlib import Path

import numpy as np
import paddle
import pytest
from support.processes import run_together
from support.samples.tagged_images import NAMES, make_task
from support.trainings.updates import changes_of_an_update

from paddlevit_dist.core.data.sampler import EvaluationSampler
from paddlevit_dist.core.distributed import rank, reduce_dict, world_size
from paddlevit_dist.core.engine import CountingCollate
from paddlevit_dist.core.metrics.confidence import IntervalConfig, compute_intervals
from paddlevit_dist.core.tasks.dataset import reading_generator
from paddlevit_dist.images.multi_label.metrics import LabelMetrics

IMAGES = 12  # of an update


def update(folder: str, micro_batches: int, *words: str) -> dict[str, np.ndarray]:
    """What an update of twelve images changes, of which this rank has an equal share."""
    task, splits = make_task(*words, folder=Path(folder))
    paddle.seed(0)
    model, collate, own = task.build_model(), CountingCollate(task), IMAGES // world_size() // micro_batches
    batches = []
    for micro in range(micro_batches):
        rows = np.arange(own) + own * (rank() + world_size() * micro)
        samples = [splits["train"].sample(int(row), reading_generator(0, 1, int(row), 0)) for row in rows]
        batches.append({name: paddle.to_tensor(array) for name, array in collate(samples).items()})
    return changes_of_an_update(task, model, batches, IMAGES)


def evaluate(batch: int) -> tuple:
    """Values and intervals of 47 images, of which this rank has seen its share, in batches of this size."""
    random = np.random.default_rng(5)
    labels, logits = random.integers(-1, 2, (47, 3), np.int8), random.normal(size=(47, 3)).round(1).astype(np.float32)
    metrics = LabelMetrics(NAMES, np.array([0.5, 0.3, 0.7]), "f1")
    sampler = EvaluationSampler(range(47), batch, rank=rank(), world_size=world_size())
    indices = metrics.indices = sampler.indices()
    for first in range(0, len(indices), batch):
        rows = indices[first : first + batch]
        metrics.update(paddle.to_tensor(logits[rows]), paddle.to_tensor(labels[rows]))
    values = metrics.compute(reduce_dict(metrics.state, average=False))
    intervals = compute_intervals(metrics, indices, IntervalConfig(95, 100))
    return values, {name: tuple(interval) for name, interval in intervals.items()}


LOSSES = {
    "bce": ["MULTI_LABEL.POSITIVE_WEIGHTS", "[0.5,1.0,3.0]"],
    "asymmetric": ["MULTI_LABEL.LOSS", "asymmetric", "TRAIN.SMOOTHING", "0.1"],
}


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("runs"))
    module = "integration.core.distributed.test_several_labels"
    calls = {
        f"{loss} {micro}": (f"{module}:update", (folder, micro, *words))
        for loss, words in LOSSES.items()
        for micro in (1, 2)
    }
    calls["scores"] = (f"{module}:evaluate", (4,))
    return {processes: run_together(calls, processes) for processes in (1, 2, 3)}


@pytest.mark.parametrize("loss", LOSSES)
def test_an_update_is_that_of_one_process_with_the_whole_batch(groups, loss):
    (expected,) = groups[1][f"{loss} 1"]
    scale = max(np.abs(change).max() for change in expected.values())
    assert scale > 1e-3
    for processes in (1, 2, 3):
        for micro in (1, 2):
            for changes in groups[processes][f"{loss} {micro}"]:
                difference = max(np.abs(changes[name] - expected[name]).max() for name in expected)
                assert difference < 1e-5 * max(scale, 1.0), (processes, micro)


def test_scores_and_intervals_are_equal_to_the_bit(groups):
    (expected,) = groups[1]["scores"]
    assert 0 < expected[0]["mAP"] < 1 and "threshold wing" in expected[0] and "threshold wing" in expected[1]
    for processes in (2, 3):
        assert groups[processes]["scores"] == [expected] * processes
    assert evaluate(11) == expected
