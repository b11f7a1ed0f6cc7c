"""Several processes, of which one may have no object at all, learn what one process learns."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support import rtdetr_batches as batches
from support import small_detections
from support.processes import run_workers, succeeded
from support.updates import changes_of_an_update

from paddlevit_dist import settings
from paddlevit_dist.data.loader import sample_generator
from paddlevit_dist.data.sampler import SampleKey
from paddlevit_dist.debug.first_layer import FirstLayer
from paddlevit_dist.distributed import rank, world_size
from paddlevit_dist.engine.precision import Precision
from paddlevit_dist.engine.steps import COUNTS
from paddlevit_dist.images.detection.data.samples import DetectionSample
from paddlevit_dist.images.detection.rtdetr.criterion import VarifocalCriterion
from paddlevit_dist.images.detection.rtdetr.fine_criterion import FineCriterion
from paddlevit_dist.tasks.task import Step, Task, make_task

OBJECTS = (2, 3, 0, 0, 6, 1)  # two processes: the second has 7; three: the second has none
IMAGES = len(OBJECTS)
CRITERIA = {"RT-DETR": VarifocalCriterion, "D-FINE": FineCriterion}


class Shifted(paddle.nn.Layer):
    """Outputs that are given, each with a shift that is learnt, except the references, which learn nothing."""

    def __init__(self, arrays):
        super().__init__()
        self.names = [name for name in arrays if "references" not in name]
        shifts = [self.create_parameter([arrays[name].shape[-1]], is_bias=True) for name in self.names]
        self.shifts = paddle.nn.ParameterList(shifts)

    def forward(self, outputs):
        return {**outputs, **{name: outputs[name] + shift for name, shift in zip(self.names, self.shifts)}}


class Losses(Task):
    """A criterion on outputs that are given."""

    def __init__(self, kind):
        options = {"bins": batches.BINS} if kind == "D-FINE" else {}
        sizes = (batches.CLASSES, batches.QUERIES, batches.LAYERS)
        self.criterion = CRITERIA[kind](*sizes, noise=batches.NOISE, **options)
        self.count_names, self.exchanges_in_step = self.criterion.count_names, self.criterion.communicates
        super().__init__(None)

    def train_step(self, model, batch, step):
        return self.criterion.terms(model(batch["outputs"]), batch["targets"])


def share_of(kind: str) -> tuple:
    """A task, a model and this rank's share of the images."""
    task, batch = Losses(kind), batches.batch_of(OBJECTS)
    arrays = batches.arrays_of(batch["denoising_labels"].shape[1], images=IMAGES)
    if kind == "RT-DETR":
        arrays = {name: array for name, array in arrays.items() if name.endswith(("logits", "boxes"))}
        arrays = {name: array for name, array in arrays.items() if "first" not in name}
    model = Shifted(arrays)
    share = IMAGES // world_size()
    rows = slice(rank() * share, (rank() + 1) * share)
    outputs = {
        name: paddle.to_tensor(array[batches.index_of(rows, name)].astype("float32")) for name, array in arrays.items()
    }
    counts = task.criterion.counts({"labels": batch["labels"][rows]})
    counts = paddle.to_tensor(np.array([counts[name] for name in task.count_names], np.float64))
    return task, model, {"outputs": outputs, "targets": batches.targets_of(batch, rows), COUNTS: counts}


def update_once(kind: str) -> dict:
    """One update on this rank's share of the images."""
    task, model, given = share_of(kind)
    return changes_of_an_update(task, model, [given], IMAGES)


@pytest.mark.parametrize("kind", CRITERIA)
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_change_the_weights_as_one_does(kind, processes):
    alone = update_once(kind)
    target = "images.detection.test_rtdetr_ranks:update_once"
    ended = succeeded(run_workers(target, kind, processes=processes))
    assert len(ended.results) == processes
    for found in ended.results:
        assert set(found) == set(alone)
        for name, change in found.items():
            largest = abs(alone[name]).max()
            np.testing.assert_allclose(change, alone[name], atol=2e-6 * largest, err_msg=name)
            assert largest > 0, name


def told_of_a_rank(broken: int) -> list:
    """What is told of an update in which one rank's objects are not finite."""
    task, model, given = share_of("D-FINE")
    given.pop(COUNTS)
    if rank() == broken:
        given["targets"] = given["targets"]._replace(boxes=given["targets"].boxes * np.nan)
    run = SimpleNamespace(task=task, model=model, precision=Precision(False))
    run.config = SimpleNamespace(SEED=0, TRAIN=SimpleNamespace(ACCUM_ITER=1))
    run.datasets = {"train": SimpleNamespace(describe=str)}
    look = FirstLayer(run)
    look._keys = lambda step: [[SampleKey(1, number, 0) for number in range(IMAGES // world_size())]]
    look._is_bad_alone = lambda key, step, counts: look._pass(given, 1, step, counts) is not None
    return look([given], Step(1, 0, 1), dict.fromkeys(task.count_names, 12))


def test_ranks_that_sum_in_their_losses_make_the_same_passes_to_find_what_is_not_finite():
    ended = succeeded(run_workers("images.detection.test_rtdetr_ranks:told_of_a_rank", 1, processes=2, timeout=60))
    told = ended.results[0]
    assert told == ended.results[1] and told[0].startswith("rank 1, micro-batch 0: the term 'class'"), told


def sample(task, number: int) -> DetectionSample:
    """An image of 48 x 48 pixels with objects and denoising queries, as a loader reads it."""
    random, objects = np.random.default_rng(number), OBJECTS[number]
    low = random.integers(0, 24, (objects, 2))
    corners = np.concatenate([low, low + random.integers(8, 24, (objects, 2))], axis=1).astype(np.float32)
    image, labels = random.integers(0, 255, (3, 48, 48)).astype(np.uint8), random.integers(0, 3, objects)
    noise = task.criterion.noise.draw(corners, labels, (48, 48), sample_generator(0, SampleKey(1, number, 0)))
    return DetectionSample(number, True, image, (48, 48), corners, labels, None, noise)


SIZES = ["DATA.SQUARE", "True", "DATA.SHORTEST_SIDES", "[48]", "DATA.BATCH_SIDES", "[64, 80, 96, 112]"]


def update_of_the_network(name: str) -> dict:
    """One update of a whole network on this rank's share of the images, by the task, at a size that is drawn."""
    words = [*small_detections.SHAPES, "-num_classes=3", "MODEL.NAME", name, "MODEL.MASK_PADDING", "False", *SIZES]
    task = make_task(settings.load(words).values)
    paddle.seed(1)  # Paddle's SiLU has no gradient below -88 on CPUs, which norms without statistics reach
    model = task.build_model()
    model.eval()  # batch norms see the same
    share = IMAGES // world_size()
    batch = task.collate([sample(task, number) for number in range(rank() * share, (rank() + 1) * share)])
    counts = task.counts(batch)
    batch[COUNTS] = np.array([counts[name] for name in task.count_names], np.float64)
    given = {name: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in batch.items()}
    return changes_of_an_update(task, model, [given], IMAGES)


@pytest.mark.parametrize("name", ["rtdetr_small", "dfine_small"])
def test_two_processes_change_a_whole_network_as_one_does(name):
    alone = update_of_the_network(name)
    target = "images.detection.test_rtdetr_ranks:update_of_the_network"
    ended = succeeded(run_workers(target, name, processes=2))
    assert len(ended.results) == 2
    largest = max(abs(change).max() for change in alone.values())
    for found in ended.results:
        assert set(found) == set(alone)
        for name, change in found.items():
            np.testing.assert_allclose(change, alone[name], atol=2e-5 * largest, err_msg=name)
    assert sum(np.abs(change).max() > 0 for change in alone.values()) > 0.9 * len(alone)
