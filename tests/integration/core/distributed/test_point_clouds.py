"""Semantic segmentation with several processes: same results as one process, with uneven scenes on each."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import run_together

from paddlevit_dist import Trainer
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.points.data.scenes import SceneDataset

SMALL = ["TASK", "semantic_segmentation", "-dataset=synthetic_rooms", "MODEL.NAME", "minkunet_tutorial"]
ROOMS = [
    "POINTS.ROOMS.TRAIN",
    "8",
    "POINTS.ROOMS.VAL",
    "5",
    "POINTS.ROOMS.SPACING_M",
    "0.15",
    "DATA.VOXEL_SIZE_M",
    "0.2",
]
LOSSES = ["TRAIN.DICE_WEIGHT", "0.5", "POINTS.FOCAL_GAMMA", "1", "TRAIN.SMOOTHING", "0.1"]
LOSSES += ["POINTS.CLASS_WEIGHTS", str([0.5, 1.5] * 10), "-seed=1"]  # with 0 a ReLU is at 0, and rounding decides
# Patches have 32 voxels; without lost branches, which each rank draws for its points.
SORTED = ["MODEL.NAME", "ptv3", "MODEL.OPTIONS", "{encoder_depths: [2, 1], encoder_channels: [8, 16], "]
SORTED[-1] += "encoder_heads: [1, 2], strides: [2], decoder_depths: [1], decoder_channels: [8], decoder_heads: [1], "
SORTED[-1] += "patch_size: 32, drop_path: 0.0}"
SGD = ["TRAIN.OPTIMIZER.NAME", "SGD", "TRAIN.BASE_LR", "0.05", "TRAIN.WEIGHT_DECAY", "1e-4", "-epochs=2"]


class FewPoints(SceneDataset):
    """The rooms, of which some have no point, one, two, or fewer than a patch."""

    def __init__(self, rooms: SceneDataset) -> None:
        self.rooms, self.num_classes, self.class_names = rooms, rooms.num_classes, rooms.class_names

    def __len__(self) -> int:
        return len(self.rooms)

    def read(self, index: int) -> Any:
        room, number = self.rooms.read(index), (None, 1, 0, 0, 2, 20)[index % 6]
        parts = {name: getattr(room, name)[:number] for name in ("xyz", "rgb", "semantic", "instance")}
        return room._replace(**parts)

    def describe(self, index: int) -> str:
        return self.rooms.describe(index)


class PartlyLabeled(TransformedDataset):
    """The rooms, which differ in size by themselves; every fourth one has no labels."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def sample(self, index: int, generator: Any) -> Any:
        sample = self.samples.sample(index, generator)
        if index % 4 == 3:
            return sample._replace(scene=sample.scene._replace(semantic=np.full_like(sample.scene.semantic, -100)))
        return sample

    def describe(self, index: int) -> str:
        return self.samples.describe(index)


def build(output: str, *arguments: str, has_few_points: bool = False) -> Trainer:
    values = settings.load([f"-output={output}", *SMALL, *ROOMS, *SGD, "DATA.NUM_WORKERS", "0", *arguments]).values
    Path(output).mkdir(parents=True, exist_ok=True)
    task = resolve("task", values.TASK)(values)
    datasets = {split: task.build_dataset(split, Path(output)) for split in ("train", "val")}
    if has_few_points:
        datasets = {split: replace(rooms, dataset=FewPoints(rooms.dataset)) for split, rooms in datasets.items()}
    return Trainer(values, task, {split: PartlyLabeled(samples) for split, samples in datasets.items()})


def train(output: str, arguments: list, has_few_points: bool = False) -> dict[str, Any]:
    trainer = build(output, *arguments, has_few_points=has_few_points)
    initial = {name: tensor.numpy().copy() for name, tensor in trainer.model.state_dict().items()}
    values = trainer.train()
    return {
        "initial": initial,
        "weights": {name: tensor.numpy() for name, tensor in trainer.model.state_dict().items()},
        "values": values,
    }


def evaluate(output: str, arguments: list) -> dict[str, float]:
    trainer = build(output, "-batch_size=2", "POINTS.TEST_ROTATIONS", "2", *arguments)
    return trainer.evaluator("evaluation")[0]


FRAGMENTS = ["POINTS.FRAGMENT_SIZE_M", "3", "POINTS.TEST_FLIPS", "true"]
EVALUATIONS = {"whole": [], "fragments": FRAGMENTS}


def run_all(processes: int, folder: Path) -> dict[str, list]:
    """Training runs and evaluations; three processes train by sorted points and evaluate whole scenes, at night."""
    module = "integration.core.distributed.test_point_clouds"
    calls = {
        name: (f"{module}:evaluate", (str(folder / f"{processes} {name}"), words))
        for name, words in EVALUATIONS.items()
        if processes < 3 or name == "whole"
    }
    if processes < 3:
        words = [f"-batch_size={4 // processes}", *LOSSES]
        calls["train"] = (f"{module}:train", (str(folder / f"{processes}"), words))
    words = [f"-batch_size={6 // processes}", *LOSSES, *SORTED, "POINTS.ROOMS.TRAIN", "12", "POINTS.TEST_VOTES", "2"]
    calls["sorted"] = (f"{module}:train", (str(folder / f"{processes} sorted"), words, True))
    return run_together(calls, processes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[int, dict[str, list]]:
    """Trainings and evaluations by one process and two."""
    folder = tmp_path_factory.mktemp("points")
    return {processes: run_all(processes, folder) for processes in (1, 2)}


@pytest.mark.parametrize("name", ["train", "sorted"])
def test_two_processes_with_uneven_scenes_train_as_one(name, runs):
    """Batch statistics, normalizers of losses and gradients over all voxels of both: four updates."""
    require_equal_training(runs[1][name], runs[2][name])


def require_equal_training(expected: list, found: list) -> None:
    one = expected[0]
    for result in found:
        assert one["weights"].keys() == result["weights"].keys()
        for name, weight in one["weights"].items():
            np.testing.assert_allclose(result["weights"][name], weight, atol=2e-5, err_msg=name)
            assert np.array_equal(result["weights"][name], found[0]["weights"][name]), name
        assert result["values"]["mIoU"] == pytest.approx(one["values"]["mIoU"], abs=2e-3)
    moved = [np.abs(one["initial"][name] - one["weights"][name]).max() for name in one["weights"]]
    assert max(moved) > 1e-2


@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluation_is_equal_for_any_number_of_processes(name, runs):
    require_equal_evaluations(name, runs)


def require_equal_evaluations(name: str, runs: dict[int, dict[str, list]]) -> None:
    (expected, *_), *_ = (results[name] for results in runs.values())
    assert expected["points"] > 1000
    for results in runs.values():
        for values in results.get(name, []):
            assert values["loss"] == pytest.approx(expected["loss"], rel=1e-6)
            assert {**values, "loss": 0} == {**expected, "loss": 0}
