"""Networks, recipes and tasks in captured passes (TRAIN.CAPTURE), by a graph for CPUs."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from support.networks.every_classifier import CLASSES, images, small_model
from support.networks.plain_layers import plain_layers
from support.recorded_graph import recorded_graphs
from support.trainings.captured_runs import CAPTURED, FEW, UPDATES, require_the_same_run
from support.trainings.small_keypoints import HEATMAPS
from support.trainings.small_runs import DIGITS, TINY, make_trainer
from support.trainings.small_segmenters import SHAPES

from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.protocols import Capturable
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task

NETWORKS = ("vit_tiny_patch16_224", "resnet50")  # the others in the night


class LabelsTask(Task, Capturable):
    """A cross-entropy with labels that differ from update to update."""

    traits = TaskTraits(normalizers_per_sample={"loss": 1}, normalizer_names=("loss",))

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(TASK="labels"))

    def find_obstacle(self) -> str:
        return ""

    def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
        outputs = model(batch["images"])
        logits = outputs if isinstance(outputs, paddle.Tensor) else paddle.add_n(list(outputs))
        loss = paddle.nn.functional.cross_entropy(logits, batch["labels"], reduction="sum")
        return {"loss": LossTerm(loss, batch["images"].shape[0])}


def train(name: str, captures: bool) -> tuple[dict[str, np.ndarray], list[str]]:
    """The state of a small network after some updates, and what was logged."""
    options = {} if name.startswith("hgnet") else {"drop_path": 0.5}
    model = small_model(name, **options)
    model.train()
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    lines: list[str] = []
    step = TrainStep(
        LabelsTask(),
        model,
        optimizer,
        TrainingPrecision(False),
        seed=0,
        samples_per_update=3,
        accumulation_steps=1,
        gradient_clip=1.0,
        captures=captures,
        log=lines.append,
    )
    for number in range(UPDATES):
        labels = np.random.default_rng(number).integers(0, CLASSES, 3)
        batch = {"images": images(name) + float(number), "labels": paddle.to_tensor(labels)}
        step([batch], StepPosition(1, number, UPDATES), 0.1)
    return {key: value.numpy().copy() for key, value in model.state_dict().items()}, lines


def require_the_same_training(name: str) -> None:
    """A network trains in a graph as without one."""
    with plain_layers():
        with recorded_graphs() as graphs:
            found, lines = train(name, True)
        expected, _ = train(name, False)
    assert lines[0].startswith(CAPTURED) and len(lines) == len(graphs) == 1
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_train_in_a_graph_as_without_one(name):
    require_the_same_training(name)


RECIPES = {
    "mixed": "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.MIXUP_PROB 0.7 TRAIN.SMOOTHING 0.1",
    "dropped, accumulated": "MODEL.DROPOUT 0.1 TRAIN.ACCUM_ITER 2 TRAIN.SMOOTHING 0.1 TRAIN.MODEL_EMA True",
    "erased": "TRAIN.RANDOM_ERASE_PROB 0.5 TRAIN.RANDOM_ERASE_MODE rand MODEL.DROPPATH 0.3 TRAIN.GRAD_CLIP 1.0",
}


PLAIN = [*DIGITS, *TINY, "-epochs=1", "-batch_size=8", "TRAIN.MIXUP_ALPHA", "0", "TRAIN.CUTMIX_ALPHA", "0"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_train_in_a_graph_as_without_one(tmp_path, recipe):
    require_the_same_run(tmp_path, [*PLAIN, *RECIPES[recipe].split()])


DECODER = "MASKED_AUTOENCODER.DECODER_WIDTH 16 MASKED_AUTOENCODER.DECODER_DEPTH 1 MASKED_AUTOENCODER.DECODER_HEADS 2"
KEYS = "OUTPUTS 32 HEAD_WIDTH 32 BOTTLENECK 16 SMALL_VIEWS 1 SMALL_SIZE 8 FROZEN_EPOCHS 1 TEMPERATURE_WARMUP_EPOCHS 2"
KEYS = " ".join(f"SELF_DISTILLATION.{word}" if word[0].isalpha() else word for word in KEYS.split())
DIGITS_ALONE = ["DATA.DATASET", "digits", "TRAIN.WARMUP_EPOCHS", "0", "MODEL.DROPPATH", "0.2"]
LABEL_MAPS = [*SHAPES, "REPORT_FREQ", "1", "-batch_size=4"]
TASKS: dict[str, tuple[list[str], dict[str, int]]] = {
    "masked autoencoder": ([*DIGITS_ALONE, "TASK", "masked_autoencoder", *DECODER.split()], {}),
    "two sizes, temperatures": (
        [*DIGITS_ALONE, "TASK", "self_distillation", *KEYS.split(), "TRAIN.ACCUM_ITER", "2", "-epochs=3"],
        {},
    ),
    "label maps": ([*LABEL_MAPS, "MODEL.DROPOUT", "0.2", "TRAIN.LOVASZ_WEIGHT", "0.5"], {"val": 4}),
    "heatmaps": ([*HEATMAPS, "-epochs=1", "REPORT_FREQ", "1", "DATA.SHAPES.TRAIN", "24"], {"val": 5}),
}


@pytest.mark.parametrize("name", TASKS)
def test_tasks_train_in_a_graph_as_without_one(tmp_path, name):
    words, sizes = TASKS[name]
    require_the_same_run(tmp_path, words if sizes else [*PLAIN, *words], sizes or FEW)


def test_a_resumed_run_captures_its_passes_if_it_did_so_before(tmp_path, monkeypatch):
    """TRAIN.CAPTURE is auto by default: a run decides at its start, and a run of an earlier version did not."""

    def run(*words: str) -> str:
        log = tmp_path / "log.txt"
        before = log.read_text(encoding="utf-8") if log.exists() else ""
        common = [*DIGITS, *TINY, "-epochs=3", "-batch_size=8", "TRAIN.RANDOM_ERASE_PROB", "0.5", "KEEP_EPOCHS", "3"]
        make_trainer(tmp_path, [*common, *words], {"train": 48, "val": 16}).train()
        return log.read_text(encoding="utf-8").removeprefix(before)

    monkeypatch.setattr("paddlevit_dist.core.engine.training_state.LEAST_UPDATES", 18)
    with plain_layers(), recorded_graphs() as graphs:
        assert CAPTURED in run("-stop_after_epoch=1")
        monkeypatch.setattr("paddlevit_dist.core.engine.training_state.LEAST_UPDATES", 19)
        assert CAPTURED in run("-resume=auto", "-stop_after_epoch=2")
    assert len(graphs) == 2
    assert checkpoint_store.read(tmp_path / "checkpoints" / "epoch_0002").extra["choices"]["TRAIN.CAPTURE"] is True
    assert CAPTURED not in run("-resume=auto", "TRAIN.CAPTURE", "False")
