"""Two processes, of which one may have no object at all, learn what one process learns, and so do micro-batches."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.processes import run_together
from support.samples import mask_rcnn_batches
from support.samples import rtdetr_batches as batches
from support.trainings import small_detections
from support.trainings.updates import changes_of_an_update

from paddlevit_dist.core import settings
from paddlevit_dist.core.data.sampler import SampleKey, sample_generator
from paddlevit_dist.core.distributed import rank, world_size
from paddlevit_dist.core.engine import COUNTS
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.core.tasks.step_types import StepPosition, TaskTraits
from paddlevit_dist.core.tasks.task import Task
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.debug.first_layer import FirstLayerFinder
from paddlevit_dist.images.detection.data.samples import DetectionSample
from paddlevit_dist.images.detection.denoising import ContrastiveNoise
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.detr.network import Detr
from paddlevit_dist.images.detection.mask_rcnn.network import MaskRCNN
from paddlevit_dist.images.detection.rtdetr.criterion import VarifocalCriterion
from paddlevit_dist.images.detection.rtdetr.fine_criterion import FineCriterion
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet

CRITERIA = {"RT-DETR": VarifocalCriterion, "D-FINE": FineCriterion}
Objects = tuple[int, ...]  # of each image
OBJECTS = (2, 3, 0, 0, 6, 1)
IMAGES = len(OBJECTS)


class Shifted(paddle.nn.Layer):
    """Outputs that are given, each with a shift that is learned, except the references, which learn nothing."""

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
        self.traits = TaskTraits(
            normalizer_names=self.criterion.normalizer_names, communicates_in_step=self.criterion.communicates
        )
        super().__init__(None)

    def train_step(self, model, batch, step):
        return self.criterion.terms(model(batch["outputs"]), batch["targets"])


def make_share(kind: str, objects: Objects) -> tuple:
    """A task, a model and this rank's share of the images."""
    task, batch = Losses(kind), batches.make_batch(objects)
    arrays = batches.make_arrays(batch["denoising_labels"].shape[1], images=IMAGES)
    if kind == "RT-DETR":
        arrays = {name: array for name, array in arrays.items() if name.endswith(("logits", "boxes"))}
        arrays = {name: array for name, array in arrays.items() if "first" not in name}
    model = Shifted(arrays)
    share = IMAGES // world_size()
    rows = slice(rank() * share, (rank() + 1) * share)
    outputs = {
        name: paddle.to_tensor(array[batches.make_index(rows, name)].astype("float32"))
        for name, array in arrays.items()
    }
    counts = task.criterion.loss_normalizers({"labels": batch["labels"][rows]})
    counts = paddle.to_tensor(np.array([counts[name] for name in task.traits.normalizer_names], np.float64))
    return task, model, {"outputs": outputs, "targets": batches.make_targets(batch, rows), COUNTS: counts}


def update_by_losses(kind: str, objects: Objects) -> dict:
    """RT-DETR's and D-FINE's losses, of outputs that are given."""
    task, model, given = make_share(kind, objects)
    return changes_of_an_update(task, model, [given], IMAGES)


def told_of_a_rank(broken: int) -> list:
    """What is told of an update in which one rank's objects are not finite."""
    task, model, given = make_share("D-FINE", OBJECTS)
    given.pop(COUNTS)
    if rank() == broken:
        given["targets"] = given["targets"]._replace(boxes=given["targets"].boxes * np.nan)
    run = SimpleNamespace(task=task, model=model, precision=TrainingPrecision(False))
    run.config = SimpleNamespace(SEED=0, TRAIN=SimpleNamespace(ACCUM_ITER=1))
    run.datasets = {"train": SimpleNamespace(describe=str)}
    look = FirstLayerFinder(run)
    look._get_sample_keys = lambda step: [[SampleKey(1, number, 0) for number in range(IMAGES // world_size())]]
    look._is_bad_alone = lambda key, step, counts: look._pass(given, 1, step, counts) is not None
    return look([given], StepPosition(1, 0, 1), dict.fromkeys(task.traits.normalizer_names, 12))


def sample(task, number: int) -> DetectionSample:
    """An image of 48 x 48 pixels with objects and denoising queries, as a loader reads it."""
    random, objects = np.random.default_rng(number), OBJECTS[number]
    low = random.integers(0, 24, (objects, 2))
    corners = np.concatenate([low, low + random.integers(8, 24, (objects, 2))], axis=1).astype(np.float32)
    image, labels = random.integers(0, 255, (3, 48, 48)).astype(np.uint8), random.integers(0, 3, objects)
    noise = task.criterion.noise
    if isinstance(noise, ContrastiveNoise):
        noise = noise.draw(corners, labels, (48, 48), sample_generator(0, SampleKey(1, number, 0)))
    masks = None
    if task._family.learns_masks:
        masks = np.zeros((objects, 48, 48), np.uint8)
        for mask, (left, top, right, bottom) in zip(masks, corners.astype(int).tolist()):
            mask[top:bottom, left:right] = 1
    return DetectionSample(number, True, image, (48, 48), corners, labels, masks, noise)


SIZES = ["DATA.RESIZE_TO_SQUARE", "True", "DATA.SHORTEST_SIDES", "[48]", "DATA.BATCH_SIDES", "[64, 80, 96, 112]"]


def sample_of_poses(task, number: int) -> DetectionSample:
    """That image with keypoints, at least one of each object labeled."""
    drawn, random = sample(task, number), np.random.default_rng(100 + number)
    points = np.zeros((len(drawn.labels), 5, 3), np.float32)
    corners = drawn.boxes[:, None]
    points[..., :2] = corners[..., :2] + random.random((len(points), 5, 2)) * (corners[..., 2:] - corners[..., :2])
    points[..., 2] = random.integers(3, size=points.shape[:2])
    points[:, 0, 2] = 2
    areas = (drawn.boxes[:, 2:] - drawn.boxes[:, :2]).prod(axis=1)
    noise = task.criterion.noise.draw(points, areas, drawn.labels, (48, 48), np.random.default_rng(number))
    return drawn._replace(points=points, areas=areas, noise=noise)


POSES = ["TASK", "keypoint_detection", "DATA.DATASET", "drawn_figures", "POSES.DISTILL_LOSS_WEIGHT", "1.0"]
POSES += ["MODEL.MASK_PADDING", "False"]


def update_of_the_network(name: str) -> dict:
    """One update of a whole network on this rank's share of the images, by the task, at a size that is drawn."""
    words = [*small_detections.SHAPES, "-num_classes=3", "MODEL.NAME", name, "MODEL.MASK_PADDING", "False", *SIZES]
    words += ["TRAIN.RANDOM_SAMPLING", "False"]  # of points of masks
    return _update(make_task(settings.load(words).values), sample)


def update_of_poses(name: str) -> dict:
    """One update of a whole network of keypoints, likewise; categories have 5, 3 and 4 points."""
    task = make_task(settings.load([*small_detections.SHAPES, *POSES, "MODEL.NAME", name, *SIZES]).values)
    points = KeypointSet(tuple("abcde"), (), (0.05, 0.1, 0.02, 0.08, 0.05), ())
    task.num_classes = 3
    task._set_points(tuple(KeypointSet(points.names[:k], (), points.sigmas[:k], ()) for k in (5, 3, 4)))
    return _update(task, sample_of_poses)


def _update(task: Task, sample: Callable[[Task, int], DetectionSample]) -> dict:
    paddle.seed(1)  # Paddle's SiLU has no gradient below -88 on CPUs, which norms without statistics reach
    model = task.build_model()
    model.eval()  # batch norms see the same
    share = IMAGES // world_size()
    batch = task.collate([sample(task, number) for number in range(rank() * share, (rank() + 1) * share)])
    counts = task.loss_normalizers(batch)
    batch[COUNTS] = np.array([counts[name] for name in task.traits.normalizer_names], np.float64)
    given = {name: paddle.to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in batch.items()}
    return changes_of_an_update(task, model, [given], IMAGES)


OBJECTS_OF_REGIONS = (2, 3, 0, 0)  # the second rank has the last two


class Regions(Task):
    """Mask R-CNN on images that are given."""

    criterion = MaskRCNN.criterion(mask_rcnn_batches.NAME, mask_rcnn_batches.CLASSES)
    traits = TaskTraits(normalizer_names=criterion.normalizer_names)

    def train_step(self, model, batch, step):
        images, targets = batch["images"], batch["targets"]
        return self.criterion.terms(model(images, targets.sizes, targets), targets)


def update_of_mask_rcnn(micro_batches: int) -> dict:
    """Mask R-CNN, whose anchors and regions all learn."""
    model = mask_rcnn_batches.model(**mask_rcnn_batches.EVERY_SAMPLE)
    model.eval()  # batch norms see the same
    arrays, task = mask_rcnn_batches.images(OBJECTS_OF_REGIONS), Regions(None)
    share = len(OBJECTS_OF_REGIONS) // world_size() // micro_batches
    given = []
    for micro in range(micro_batches):
        first = (rank() * micro_batches + micro) * share
        images, targets = mask_rcnn_batches.batch(arrays, slice(first, first + share))
        counts = task.criterion.loss_normalizers({"labels": targets.labels.numpy()})
        counts = paddle.to_tensor(np.array([counts[name] for name in task.traits.normalizer_names], np.float64))
        given.append({"images": images, "targets": targets, COUNTS: counts})
    return changes_of_an_update(task, model, given, len(OBJECTS_OF_REGIONS))


SMALL_DETR = {
    "backbone": "resnet18",
    "backbone_options": {"depths": (1,), "dims": (4,)},
    "frozen_stages": 0,
    "embed_dim": 8,
    "num_heads": 2,
    "feedforward": 8,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "num_queries": 4,
}
OBJECTS_OF_DETR = (0, 3, 0, 0, 1, 6, 0, 2)  # of each image: some halves and quarters have many, some none
SIZE_OF_DETR = (24, 40)  # height and width


class OnlyLosses(Task):
    """Nothing but DETR's losses."""

    def __init__(self):
        super().__init__(None)
        self.criterion = Detr.criterion("detr_resnet18", 3, **SMALL_DETR)
        self.traits = TaskTraits(normalizer_names=self.criterion.normalizer_names)

    def train_step(self, model, batch, step):
        targets = DetectionTargets(batch["boxes"], batch["labels"], batch["sizes"])
        return self.criterion.terms(model(batch["images"], batch["sizes"], targets), targets)


def drawn_images() -> dict:
    random, number = np.random.default_rng(0), len(OBJECTS_OF_DETR)
    boxes, labels = np.zeros((number, max(OBJECTS_OF_DETR), 4), np.float32), np.full((number, max(OBJECTS_OF_DETR)), -1)
    for image, objects in enumerate(OBJECTS_OF_DETR):
        boxes[image, :objects] = np.sort(random.random((objects, 2, 2)), axis=1).reshape(objects, 4)
        labels[image, :objects] = random.integers(3, size=objects)
    boxes *= np.tile(SIZE_OF_DETR[::-1], 2).astype(np.float32)
    images = random.standard_normal((number, 3, *SIZE_OF_DETR)).astype(np.float32)
    return {"images": images, "boxes": boxes, "labels": labels, "sizes": np.tile(SIZE_OF_DETR, (number, 1))}


def make_batch(part: slice, task: OnlyLosses) -> dict:
    arrays = {name: array[part] for name, array in drawn_images().items()}
    counts = task.criterion.loss_normalizers(arrays)
    arrays[COUNTS] = np.array([counts[name] for name in task.traits.normalizer_names])
    return {name: paddle.to_tensor(array) for name, array in arrays.items()}


def update_of_detr(micro_batches: int) -> dict:
    """What one SGD update on this rank's share of the images adds to the weights."""
    paddle.seed(0)
    model, task = create_model("detr_resnet18", 3, **SMALL_DETR), OnlyLosses()
    size = len(OBJECTS_OF_DETR) // world_size() // micro_batches
    first = rank() * micro_batches
    batches = [make_batch(slice((first + i) * size, (first + i + 1) * size), task) for i in range(micro_batches)]
    return changes_of_an_update(task, model, batches, len(OBJECTS_OF_DETR))


MODULE = "integration.images.detection.test_detector_ranks"
CALLS = {
    "DETR": (update_of_detr, 1),
    "DETR in two parts": (update_of_detr, 2),
    "RT-DETR": (update_by_losses, "RT-DETR", (2, 3, 6, 0, 0, 0)),
    "D-FINE": (update_by_losses, "D-FINE", (2, 3, 6, 0, 0, 0)),
    "the whole RT-DETR": (update_of_the_network, "rtdetr_small"),
    "the whole D-FINE": (update_of_the_network, "dfine_small"),
    "the whole RF-DETR": (update_of_the_network, "rfdetr_shapes"),
    "the whole RF-DETR Seg": (update_of_the_network, "rfdetr_seg_shapes"),
    "the whole DETRPose": (update_of_poses, "detrpose_small"),
    "Mask R-CNN": (update_of_mask_rcnn, 1),
    "Mask R-CNN in two parts": (update_of_mask_rcnn, 2),
    "told": (told_of_a_rank, 1),
}


@pytest.fixture(scope="module")
def by_two():
    """What each call gives on each rank of a group of two."""
    calls = {name: (f"{MODULE}:{call.__name__}", tuple(words)) for name, (call, *words) in CALLS.items()}
    return run_together(calls, timeout=600)


def require_same(found, alone, within, of_all):
    """Changes to ``within`` of the largest of each parameter, or ``of_all``."""
    assert set(found) == set(alone)
    largest = max(abs(change).max() for change in alone.values())
    for name, change in alone.items():
        own = largest if of_all else abs(change).max()
        np.testing.assert_allclose(found[name], change, rtol=0, atol=within * own, err_msg=name)


@pytest.mark.parametrize("kind", ["RT-DETR", "D-FINE"])
def test_a_rank_without_objects_changes_the_outputs_as_one_process_does(by_two, kind):
    alone = update_by_losses(*CALLS[kind][1:])
    for found in by_two[kind]:
        require_same(found, alone, 2e-6, of_all=False)
    assert all(abs(change).max() > 0 for change in alone.values())


@pytest.mark.parametrize("kind", [kind for kind in CALLS if kind.startswith("the whole ")])
def test_a_whole_network_is_changed_as_by_one_process(by_two, kind):
    call, name = CALLS[kind]
    alone = call(name)
    for found in by_two[kind]:
        require_same(found, alone, 2e-5, of_all=True)
    # Heads that start at zero learn their last layer first.
    assert sum(np.abs(change).max() > 0 for change in alone.values()) > 0.85 * len(alone)


def test_micro_batches_of_mask_rcnn_change_the_weights_as_one_batch_does(by_two):
    alone = update_of_mask_rcnn(1)
    for found in by_two["Mask R-CNN"] + by_two["Mask R-CNN in two parts"]:
        require_same(found, alone, 1e-6, of_all=False)
    assert all(abs(change).max() > 0 for change in alone.values())


def test_micro_batches_of_detr_change_the_weights_as_one_batch_does(by_two):
    alone = update_of_detr(1)
    assert max(np.abs(change).max() for change in alone.values()) > 0.1
    for found in [update_of_detr(4), *by_two["DETR"], *by_two["DETR in two parts"]]:
        require_same(found, alone, 1e-5, of_all=True)


def test_ranks_that_sum_in_their_losses_make_the_same_passes_to_find_what_is_not_finite(by_two):
    told = by_two["told"][0]
    assert told == by_two["told"][1] and told[0].startswith("rank 1, micro-batch 0: the term 'class'"), told
