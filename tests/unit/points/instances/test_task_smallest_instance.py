"""The points of the smallest instance that AP counts: a key; without such instances there is no AP."""

import numpy as np
import pytest
from support.refusals import refusal_of
from support.samples.instance_scenes import NAMES, scene

from paddlevit_dist.core import settings
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scenes import SceneDataset
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.instances.task import InstanceSegmentation

KEY = "POINTS.INSTANCES.AP_MIN_POINTS"
WORDS = "TASK pointgroup MODEL.NAME pointgroup -dataset=synthetic_rooms POINTS.INSTANCES.STUFF_CLASSES [floor]"


class Poles(SceneDataset):
    """Scenes with poles of some numbers of points each, on a floor of 300."""

    class_names, num_classes = ["pole", "floor"], 2

    def __init__(self, *poles, classes=(0, 1)):
        self.poles, self.classes = poles, classes

    def __len__(self):
        return len(self.poles)

    def read(self, index):
        numbers = np.repeat(np.arange(len(self.poles[index])), self.poles[index])
        labels = np.repeat(self.classes, [len(numbers), 300]).astype(np.int16)
        instances = np.concatenate([numbers, np.full(300, -100)]).astype(np.int16)
        xyz = np.random.default_rng(index).uniform(0, 3, (len(labels), 3)).astype(np.float32)
        return Scene(xyz, np.full((len(labels), 3), 9, np.uint8), labels, instances, f"scene{index}")


def make_task(words: str = "") -> InstanceSegmentation:
    task = InstanceSegmentation(settings.load(f"{WORDS} {words}".split()).values)
    task.class_names, task.num_classes = Poles.class_names, 2
    return task


@pytest.mark.parametrize("least", [50, 20])
def test_a_limit_is_that_of_the_benchmark_with_each_point_as_often_as_it_is_lower(least):
    """Overlaps do not change if each point is repeated, and 100 points are then as many as the limit was."""
    times, found, expected = 100 // least, [], []
    for number in range(5):
        true_class, true_instance, predictions = scene(number)
        metrics = InstanceMetrics(NAMES, [1, 2, 3], least)
        metrics.update_instances(true_class, true_instance, predictions)
        found.append(metrics.tables[0])
        metrics = InstanceMetrics(NAMES, [1, 2, 3])
        repeated = [
            each._replace(points=(each.points[:, None] * times + np.arange(times)).ravel()) for each in predictions
        ]
        metrics.update_instances(np.repeat(true_class, times), np.repeat(true_instance, times), repeated)
        expected.append(metrics.tables[0])
    for table, other in zip(found, expected):
        for part, other_part in zip(table, other, strict=True):
            np.testing.assert_array_equal(part, other_part, strict=True)
    assert sum(table.num_true.sum() for table in found) > 20


@pytest.mark.parametrize(("points", "least", "ap"), [(60, 60, 1.0), (60, 61, None), (100, 100, 1.0), (99, 100, None)])
def test_perfect_instances_have_ap_1_or_none(points, least, ap):
    labels, instances = np.repeat([1, 0], [points, 50]), np.repeat([0, -100], [points, 50])
    metrics = InstanceMetrics(NAMES, [1, 2, 3], least)
    metrics.update_instances(labels, instances, [InstancePrediction(1, 0.9, np.arange(points))])
    metrics.add(statistics=np.ones((3, len(NAMES)), int), losses=0.0)
    values = metrics.compute({})
    assert [values.get(name) for name in ("AP", "AP50", "AP25", "AP chair")] == [ap] * 4
    line = metrics.summary(values)
    assert line.startswith("AP 1.0000" if ap else "AP not defined (no instance is large enough) mIoU")


@pytest.mark.parametrize(
    ("poles", "words", "metric"),
    [
        ([[60, 99], [5]], "", "mIoU"),
        ([[60, 99], [100]], "", "AP"),
        ([[60, 99], [5]], f"{KEY} 99 POINTS.INSTANCES.MIN_PREDICTION_POINTS 0", "AP"),
        ([[], []], f"{KEY} 1 POINTS.INSTANCES.MIN_PREDICTION_POINTS 0", "mIoU"),
    ],
)
def test_an_evaluation_says_its_rule_and_undefined_ap_chooses_no_checkpoint(poles, words, metric):
    task = make_task(words)
    rule, *note = task.build_samples(Poles(*poles), is_training=False).notices
    least = task.config.POINTS.INSTANCES.AP_MIN_POINTS
    assert rule == f"AP: instances of fewer than {least} points do not count, true or predicted ({KEY})"
    assert task.best_metric == (metric, True)
    assert len(note) == (metric == "mIoU") and all("AP is not defined, and mIoU chooses" in line for line in note)


def test_instances_of_classes_without_instances_do_not_count():
    task = make_task()
    task.build_samples(Poles([200], classes=(1, 1)), is_training=False)
    assert task.best_metric == ("mIoU", True)


def test_training_needs_a_point_with_an_instance():
    message = refusal_of(make_task().build_samples, Poles([], []), is_training=True)
    assert message.startswith("no point of the 2 training scenes of dataset synthetic_rooms has an instance: ")
    for sizes, is_told in (([], [3]), True), (([100], []), True), (([50], [101]), False):
        told = "points, and a prediction needs 101: set POINTS.INSTANCES.CLUSTER_POINTS and"
        notices = make_task().build_samples(Poles(*sizes), is_training=True).notices
        assert [told in line for line in notices] == [True] * is_told
    unlabeled = Poles([])
    unlabeled.labeled = False
    assert not make_task().build_samples(unlabeled, is_training=False).notices


def test_instances_that_count_but_are_never_predicted_are_told():
    told = "instances of up to 100 points are never predicted: set POINTS.INSTANCES.MIN_PREDICTION_POINTS lower"
    for words, is_told in (
        ("", False),
        (f"{KEY} 50", True),
        (f"{KEY} 50 POINTS.INSTANCES.MIN_PREDICTION_POINTS 50", False),
    ):
        assert any(told in line for line in settings.load(f"{WORDS} {words}".split()).notices) == is_told
