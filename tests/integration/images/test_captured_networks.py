"""Classifiers and their recipes in captured passes (TRAIN.CAPTURE), by a graph for CPUs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from support.networks.every_classifier import CLASSES, images, small_model
from support.networks.plain_layers import plain_layers
from support.recorded_graph import recorded_graphs
from support.trainings.small_runs import DIGITS, TINY, losses, make_trainer, make_weights

from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.engine import TrainStep
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.protocols import Capturable
from paddlevit_dist.core.tasks.step_types import LossTerm, StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task

NETWORKS = ("vit_tiny_patch16_224", "resnet50")  # the others in the night
CAPTURED = "passes are captured (TRAIN.CAPTURE), and equal"
UPDATES = 3


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


def require_the_same_run(tmp_path: Path, recipe: str) -> None:
    """A recipe trains in a graph as without one."""

    def run(folder: Path, captures: bool) -> dict[str, np.ndarray]:
        words = [*DIGITS, *TINY, "-epochs=1", "-batch_size=8", "TRAIN.MIXUP_ALPHA", "0", "TRAIN.CUTMIX_ALPHA", "0"]
        words += [*recipe.split(), "TRAIN.CAPTURE", str(captures)]
        trainer = make_trainer(folder, words, {"train": 48, "val": 16})
        trainer.train()
        return make_weights(trainer)

    with plain_layers():
        with recorded_graphs() as graphs:
            found = run(tmp_path / "captured", True)
        expected = run(tmp_path / "plain", False)
    assert CAPTURED in (tmp_path / "captured" / "log.txt").read_text(encoding="utf-8") and graphs[0].replays > UPDATES
    np.testing.assert_allclose(losses(tmp_path / "captured"), losses(tmp_path / "plain"), rtol=1e-4)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-3, atol=2e-4, err_msg=key)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_train_in_a_graph_as_without_one(tmp_path, recipe):
    require_the_same_run(tmp_path, RECIPES[recipe])


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
