"""Intervals do not depend on which process evaluates which sample."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.processes import run_workers, succeeded

from distributed.test_instance_metrics import NAMES, scene
from paddlevit_dist.data.sampler import EvaluationSampler
from paddlevit_dist.distributed import broadcast_object, is_main, rank, reduce_dict, world_size
from paddlevit_dist.engine.confidence import Confidence, EvaluatedSamples, intervals_of
from paddlevit_dist.images.detection.detections import Detections
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.images.segmentation.metrics import SegmentationMetrics
from paddlevit_dist.metrics.classification import ClassificationMetrics
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.tasks.metrics import Metrics
from paddlevit_dist.tasks.sample_groups import Groups
from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics

SAMPLES, BATCH = 11, 2
CONFIDENCE = Confidence(95, 100)
GROUPS = Groups("video", np.array(list("aabbbcadcdd")), "a file")


def add_images(metrics: ClassificationMetrics, indices: list) -> None:
    logits = np.random.default_rng(0).normal(size=(SAMPLES, 7)).astype(np.float32)
    labels = np.arange(SAMPLES) % 7
    metrics.update(paddle.to_tensor(logits[indices]), paddle.to_tensor(labels[indices]))


def add_boxes(metrics: DetectionMetrics, indices: list) -> None:
    for index in indices:
        generator = np.random.default_rng(index)
        corners = generator.uniform(0, 50, (4, 2))
        boxes = np.concatenate([corners, generator.uniform(20, 60, (4, 2))], axis=1)
        truth = BoxGroundTruth(boxes, np.arange(4) % 2, boxes[:, 2:].prod(axis=1), np.zeros(4, bool))
        moved = np.concatenate([corners, corners + boxes[:, 2:]], axis=1) + generator.normal(0, 3, (4, 4))
        found = Detections(moved.astype(np.float32), generator.random(4).astype(np.float32), np.arange(4) % 2)
        metrics.update(1000 - index, truth, found)


def add_scenes(metrics: InstanceMetrics, indices: list) -> None:
    for index in indices:
        true_class, true_instance, predictions = scene(index)
        metrics.update_instances(true_class, true_instance, predictions)
        labels = paddle.to_tensor(true_class)
        metrics.update_semantic((labels + index) % 3, labels, paddle.to_tensor(1.0))


def add_volumes(metrics: LandmarkMetrics, indices: list) -> None:
    for index in indices:
        metrics.update(np.random.default_rng(index).gamma(2.0, 1.0, 5))


def add_label_maps(metrics: SegmentationMetrics, indices: list) -> None:
    for index in indices:
        generator = np.random.default_rng(index)
        true = np.kron(generator.integers(0, 4, (5, 4 + index)), np.ones((6, 6), int)).astype(np.uint8)
        found = np.roll(true, 1 + index % 3, axis=1)
        metrics.update(found, np.where(generator.random(true.shape) < 0.1, 255, true).astype(np.uint8))


KINDS = {
    "pictures": (lambda: ClassificationMetrics(7, ["a", "b"]), add_images),
    "boxes": (lambda: DetectionMetrics(["a", "b"], SAMPLES), add_boxes),
    "scenes": (lambda: InstanceMetrics(NAMES, [1, 2, 3]), add_scenes),
    "label maps": (lambda: SegmentationMetrics(list("abcde")), add_label_maps),
    "volumes": (lambda: LandmarkMetrics(list("abcde")), add_volumes),
}


def plain(table: EvaluatedSamples) -> list:
    kept, columns = table.kept(), table.metrics.columns(table.columns)
    rows = {name: [str(value) for value in column] for name, column in columns.items()}
    arrays = {name: str(array.tolist()) for name, array in kept.arrays.items()}  # as text not a number is itself
    return [table.indices.tolist(), kept.kind, arrays, rows]


def evaluate_share() -> dict:
    """Intervals of all samples of each kind, and what is kept of them; this rank has seen its share."""
    found = {}
    for kind, (make, add) in KINDS.items():
        metrics = make()
        sampler = EvaluationSampler(range(SAMPLES), BATCH, rank=rank(), world_size=world_size())
        for keys in sampler:
            add(metrics, [key.index for key in keys])
        values = metrics.compute(reduce_dict(metrics.state, average=False))
        kept: list = []
        found[kind] = intervals_of(metrics, sampler.indices(), CONFIDENCE, kept.append)
        found[f"{kind} in groups"] = intervals_of(metrics, sampler.indices(), CONFIDENCE, None, GROUPS)
        found[f"what is kept of {kind}"] = broadcast_object(plain(*kept) if is_main() else None)
        for name, interval in found[kind].items():
            assert name not in values or values[name] == pytest.approx(interval.value), name
    return found


@pytest.fixture(scope="module")
def of_one_process() -> dict:
    return evaluate_share()


@pytest.mark.parametrize("processes", [2, 3])
def test_all_ranks_get_the_intervals_of_one_process(processes, of_one_process):
    ended = succeeded(run_workers("distributed.test_intervals:evaluate_share", processes=processes))
    assert ended.results == [of_one_process] * processes


def test_intervals_are_of_the_main_numbers_and_their_parts(of_one_process):
    main = {"pictures": "top-1", "boxes": "AP", "scenes": "AP", "label maps": "mIoU", "volumes": "mre_mm"}
    for kind, name in main.items():
        interval = of_one_process[kind][name]
        assert interval.low < interval.value < interval.high, kind
        assert of_one_process[f"{kind} in groups"] != of_one_process[kind]
    assert {"top-5", "loss", "balanced accuracy", "recall a", "recall 6"} <= set(of_one_process["pictures"])
    assert {"AP50", "AR_100", "AP a"} <= set(of_one_process["boxes"])
    assert {"AP25", "mIoU", "IoU chair", "AP chair"} <= set(of_one_process["scenes"])
    assert {"mIoU", "mean Dice", "boundary IoU", "IoU a"} <= set(of_one_process["label maps"])
    assert {"sdr_2mm", "sd_mm", "c mre_mm"} <= set(of_one_process["volumes"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_score_without_some_samples_is_that_of_an_evaluation_of_the_others(kind):
    """Values, line and intervals: what ``evaluate -without_leaks`` prints."""
    make, add = KINDS[kind]
    left_out, tables = [0, 3, 4, 11], []
    others = np.setdiff1d(range(SAMPLES), left_out)
    for chosen in (range(SAMPLES), others):
        metrics = make()
        if kind == "boxes":
            metrics.images = None
        add(metrics, list(chosen))
        values = metrics.compute(metrics.state)
        intervals_of(metrics, chosen, CONFIDENCE, tables.append)
    table = tables[0].without(left_out)
    assert table.indices.tolist() == others.tolist()
    found = table.values()
    assert set(values) - set(found) <= {
        "top-1 count", "top-5 count", "samples", "images", "detections", "not finite", "points", "landmarks",
        "pixels",
        *(f"{name} landmarks" for name in "abcde"),
    }  # fmt: skip
    shared = set(found) & set(values)
    assert {name: found[name] for name in shared} == pytest.approx({name: values[name] for name in shared}, rel=1e-6)
    assert table.intervals(CONFIDENCE) == tables[1].intervals(CONFIDENCE) and table.intervals(None) == {}
    assert table.metrics.summary(found) == metrics.summary(values)


def test_metrics_that_know_no_samples_have_no_intervals():
    assert intervals_of(Metrics(), [0, 1], CONFIDENCE) == {}
    twice = LandmarkMetrics(["a"])
    for _ in range(3):
        twice.update(np.ones(1))
    assert intervals_of(twice, [0, 1], CONFIDENCE) == {}  # more rows than samples
    assert Confidence.of(SimpleNamespace(EVALUATION=SimpleNamespace(INTERVAL=False, RESAMPLES=100))) is None
