"""PointGroup with several processes, even if only one of them has a cluster to score."""

import numpy as np
import paddle
import pytest
from support.processes import run_workers, succeeded

from paddlevit_dist.core import settings as configuration
from paddlevit_dist.core.distributed import data_parallel, rank, world_size
from paddlevit_dist.core.engine import CountingCollate, TrainStep
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.registry.register import register_dataset
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scenes import SceneDataset
from paddlevit_dist.points.instances.task import InstanceSegmentation

OPTIONS = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "DATA.DATASET", "two_boxes"]
OPTIONS += ["MODEL.OPTIONS.width", "4", "MODEL.OPTIONS.repeats", "1", "POINTS.INSTANCES.STUFF_CLASSES", "[]"]
OPTIONS += ["POINTS.INSTANCES.CLUSTER_POINTS", "20", "DATA.VOXEL_SIZE_M", "0.05", "POINTS.INSTANCES.RADIUS_M", "0.1"]


class TwoBoxes(SceneDataset):
    """Scenes of two boxes of points, each an instance of the class "thing"."""

    class_names = ["thing"]
    num_classes = 1

    def __init__(self, data_path, split, cache_folder):
        self.split = split

    def __len__(self):
        return 4

    def describe(self, index):
        return f"scene {index}"

    def read(self, index):
        return boxes(index, points=200)


def boxes(number: int, points: int, spread: float = 0.3) -> Scene:
    generator = np.random.default_rng(number)
    instance = np.arange(points) % 2
    xyz = generator.random((points, 3)) * spread + instance[:, None] * [2.0 * spread, 0.0, 0.0]
    rgb = generator.integers(0, 255, (points, 3))
    semantic = np.zeros(points, np.int16)
    return Scene(xyz.astype(np.float32), rgb.astype(np.uint8), semantic, instance.astype(np.int16), f"scene{number}")


def build(prepare_epochs: int) -> InstanceSegmentation:
    register_dataset("two_boxes", TwoBoxes)
    words = [*OPTIONS, "POINTS.INSTANCES.PREPARE_EPOCHS", str(prepare_epochs)]
    task = InstanceSegmentation(configuration.load(words).values)
    task.build_dataset("train", None)
    return task


def train(scenes: list, prepare_epochs: int, updates: int = 3) -> tuple:
    """Weights after a few updates on this rank's share of the scenes, and the clusters of each step."""
    task = build(prepare_epochs)
    paddle.seed(0)
    model = task.build_model()
    optimizer = paddle.optimizer.SGD(learning_rate=0.0, parameters=model.parameters())
    updater = TrainStep(
        task,
        data_parallel(model, "sync"),
        optimizer,
        TrainingPrecision(False),
        seed=0,
        samples_per_update=len(scenes),
        accumulation_steps=1,
        gradient_clip=None,
    )
    share = len(scenes) // world_size()
    own = scenes[rank() * share : (rank() + 1) * share]
    generator = np.random.default_rng(0)
    unchanged = task.build_dataset("val", None)
    samples = [unchanged.build_sample(boxes(*arguments), generator) for arguments in own]
    counted = []
    for update in range(updates):
        batch = CountingCollate(task)(samples)
        tensors = {k: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for k, v in batch.items()}
        terms = updater([tensors], StepPosition(1, update, updates), learning_rate=0.01)
        counted.append(int(terms[0]["score"].count.item()))
    return {name: value.numpy() for name, value in model.state_dict().items()}, counted


ONE_RANK_HAS = [(0, 200, 0.3), (1, 30, 3.0)]  # boxes whose points hang together, and boxes whose points do not
NONE_HAS = [(0, 30, 3.0), (1, 40, 3.0)]
LARGE = [(0, 1500, 6.0), (1, 1200, 6.0)]  # voxels enough on every level to be normalized well


def train_all() -> dict:
    """All cases with the same processes: starting them takes longer than the rest."""
    return {
        "one has": train(ONE_RANK_HAS, 0),
        "none has": train(NONE_HAS, 0),
        "none asks": train(NONE_HAS, 1),
        "large": train(LARGE, 1, updates=1),
    }


@pytest.fixture(scope="module")
def ranks():
    return succeeded(run_workers("integration.core.distributed.test_pointgroup:train_all")).results


@pytest.mark.parametrize("case", ["one has", "none has", "none asks", "large"])
def test_the_ranks_have_the_same_weights(ranks, case):
    (weights, clusters), (other_weights, other_clusters) = (results[case] for results in ranks)
    assert (min(clusters) > 0) == (case == "one has") and max(other_clusters) == 0
    for name, value in weights.items():
        assert np.array_equal(value, other_weights[name]) and np.isfinite(value).all(), name


def test_one_rank_with_clusters_trains_all_layers(ranks):
    task = build(0)
    paddle.seed(0)
    start = {name: value.numpy() for name, value in task.build_model().state_dict().items()}
    for case, expected in (("one has", True), ("none asks", False)):
        weights = ranks[0][case][0]
        moved = {name.split(".")[0] for name in start if not np.array_equal(weights[name], start[name])}
        assert {"unet", "offset_linear"} <= moved
        assert ("score_unet" in moved and "score_linear" in moved) == expected


def test_two_processes_are_one_before_clusters_are_scored(ranks):
    alone, _ = train(LARGE, 1, updates=1)
    for results in ranks:
        for name, value in results["large"][0].items():
            np.testing.assert_allclose(value, alone[name], rtol=1e-3, atol=2e-4, err_msg=name)
