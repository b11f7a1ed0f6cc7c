"""Updates and scores of a masked autoencoder are equal however processes and micro-batches divide the images."""

from pathlib import Path

import numpy as np
import paddle
import pytest
from support.processes import run_together
from support.trainings.small_runs import DIGITS, make_trainer
from support.trainings.updates import changes_of_an_update

from paddlevit_dist.core import settings
from paddlevit_dist.core.data.sampler import EvaluationSampler
from paddlevit_dist.core.distributed import rank, reduce_dict, world_size
from paddlevit_dist.core.engine import CountingCollate
from paddlevit_dist.core.tasks.dataset import reading_generator
from paddlevit_dist.images.pretraining.masked_autoencoder.task import MaskedAutoencoding
from paddlevit_dist.images.pretraining.metrics import PretrainingMetrics

IMAGES = 12  # of an update
WORDS = ["TASK", "masked_autoencoder", "-dataset=digits", "-image_size=16", "DATA.IMAGE_CHANNELS", "1"]
WORDS += ["MODEL.NAME", "vit", "MODEL.PATCH_SIZE", "4", "MODEL.EMBED_DIM", "16", "MODEL.DEPTH", "1"]
WORDS += ["MODEL.NUM_HEADS", "2", "MASKED_AUTOENCODER.DECODER_WIDTH", "8", "MASKED_AUTOENCODER.DECODER_DEPTH", "1"]
WORDS += ["MASKED_AUTOENCODER.DECODER_HEADS", "2"]


def update(folder: str, micro_batches: int) -> dict[str, np.ndarray]:
    """What an update of twelve images changes, of which this rank has an equal share."""
    task = MaskedAutoencoding(settings.load([*WORDS, f"-output={folder}"]).values)
    samples = task.build_dataset("train", Path(folder))
    paddle.seed(0)
    model, collate, own = task.build_model(), CountingCollate(task), IMAGES // world_size() // micro_batches
    batches = []
    for micro in range(micro_batches):
        rows = np.arange(own) + own * (rank() + world_size() * micro)
        drawn = [samples.sample(int(row), reading_generator(0, 1, int(row), 0)) for row in rows]
        batches.append({name: paddle.to_tensor(array) for name, array in collate(drawn).items()})
    return changes_of_an_update(task, model, batches, IMAGES)


def evaluate(batch: int) -> dict[str, float]:
    """Values of 47 images, of which this rank has seen its share, in batches of this size."""
    random = np.random.default_rng(5)
    labels, features = random.integers(0, 3, 47), random.normal(size=(47, 4)).round(1).astype(np.float32)
    metrics = PretrainingMetrics(list("abc"), 5)
    sampler = EvaluationSampler(range(47), batch, rank=rank(), world_size=world_size())
    indices = metrics.indices = sampler.indices()
    for first in range(0, len(indices), batch):
        rows = indices[first : first + batch]
        numbers = {"loss": paddle.to_tensor(features[rows, 0])}
        metrics.update(numbers, paddle.to_tensor(features[rows]), paddle.to_tensor(labels[rows]))
    return metrics.compute(reduce_dict(metrics.state, average=False))


def train(folder: str, name: str, words: list[str]) -> dict[str, float]:
    """Train six updates of twelve images, with a checkpoint of every second, and return the evaluation."""
    keys = (
        "-epochs=2 VALIDATE_FREQ 2 TRAIN.WARMUP_EPOCHS 0 TRAIN.OPTIMIZER.EPS 1e-4 SAVE_EVERY_UPDATES 2 KEEP_UPDATES 9"
    )
    sizes = {"train": 3 * IMAGES, "val": 30}
    return make_trainer(f"{folder}/{name}", [*WORDS, *DIGITS, *keys.split(), *words], sizes, MaskedAutoencoding).train()


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("runs"))
    module = "integration.core.distributed.test_masked_autoencoder"
    calls = {f"update {micro}": (f"{module}:update", (folder, micro)) for micro in (1, 2)}
    calls["scores"] = (f"{module}:evaluate", (4,))
    middle = f"-resume={folder}/straight/checkpoints/update_00000002"
    runs = {
        1: {"straight": ["-batch_size=12"]},
        2: {"of two": ["-batch_size=6", middle], "accumulated": ["-batch_size=2", "-accum_iter=3", middle]},
        3: {"of three": ["-batch_size=4", middle, "TRAIN.SHARDING", "optimizer"]},
    }
    found = {}
    for processes, own in runs.items():
        of_runs = {name: (f"{module}:train", (folder, name, words)) for name, words in own.items()}
        found[processes] = run_together({**calls, **of_runs}, processes)
    return {**found, "folder": Path(folder)}


def test_an_update_is_that_of_one_process_with_the_whole_batch(groups):
    (expected,) = groups[1]["update 1"]
    scale = max(np.abs(change).max() for change in expected.values())
    assert scale > 1e-3 and "pos_embed" not in expected
    for processes in (1, 2, 3):
        for micro in (1, 2):
            for changes in groups[processes][f"update {micro}"]:
                difference = max(np.abs(changes[name] - expected[name]).max() for name in expected)
                assert difference < 1e-5 * max(scale, 1.0), (processes, micro)


def test_scores_are_equal_to_the_bit(groups):
    (expected,) = groups[1]["scores"]
    assert 0 < expected["top-1"] < 100 and expected["images"] == 47
    for processes in (2, 3):
        assert groups[processes]["scores"] == [expected] * processes
    assert evaluate(11) == expected


@pytest.mark.parametrize(("processes", "name"), [(2, "of two"), (2, "accumulated"), (3, "of three")])
def test_a_run_resumed_on_more_processes_ends_as_a_straight_one(groups, processes, name):
    expected, found = (
        paddle.load(str(groups["folder"] / run / "checkpoints" / "last" / "model.pdparams"), return_numpy=True)
        for run in ("straight", name)
    )
    assert expected.keys() == found.keys()
    assert max(float(np.abs(found[key] - value).max()) for key, value in expected.items()) < 1e-5
    (straight,) = groups[1]["straight"]
    assert groups[processes][name] == [pytest.approx(straight, rel=1e-4)] * processes
