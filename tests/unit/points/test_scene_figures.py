"""What the point tasks hand to the report: the same scores as the metrics, and scenes in layers."""

import numpy as np
import paddle
import pytest
from support.networks.varied import vary
from support.samples.small_scenes import scene, tensors

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.figures import ConfusionMatrix, FigureTable, PointSet
from paddlevit_dist.core.tasks.protocols import Reportable
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.points.instances.task import InstanceSegmentation
from paddlevit_dist.points.scene_figures import build_point_set, select_scenes
from paddlevit_dist.points.segmentation.task import SemanticSegmentation

ROOMS = ["-dataset=synthetic_rooms", "POINTS.ROOMS.VAL", "3", "POINTS.ROOMS.SPACING_M", "0.12"]
SEMANTIC = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial", "DATA.VOXEL_SIZE_M", "0.2", *ROOMS]
INSTANCES = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "MODEL.OPTIONS.width", "4", *ROOMS]
INSTANCES += ["MODEL.OPTIONS.repeats", "1", "DATA.VOXEL_SIZE_M", "0.1"]


def evaluated(task_class, arguments):
    """Metric values, and the figures of the same evaluation in batches of two and one scenes."""
    task = task_class(settings.load(arguments).values)
    samples = task.build_dataset("val", None)
    model = vary(task.build_model())
    metrics, kept = task.build_metrics(), []
    for indices in ((0, 1), (2,)):
        batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in indices])
        with paddle.no_grad():
            records = task.eval_step(model, tensors(batch), EvaluationStep(metrics, keeps_records=True))
        kept += zip(indices, records())
    with paddle.no_grad():
        figures = get_aspect(task, Reportable).figures(samples, kept, model)
    return task, samples, metrics.compute(metrics.state), {figure.title: figure for figure in figures}


def make_rows(table):
    assert isinstance(table, FigureTable) and all(len(row) == len(table.columns) for row in table.rows)
    return {row[0]: dict(zip(table.columns, row)) for row in table.rows}


def check_semantic(task, samples, values, figures):
    classes = make_rows(figures["Classes of points"])
    for name in task.class_names:
        if f"IoU {name}" in values:
            assert classes[name]["IoU"] == pytest.approx(values[f"IoU {name}"], abs=0.00006)
    confusion = figures["Confusion of points"]
    assert isinstance(confusion, ConfusionMatrix)
    assert np.trace(confusion.values) / confusion.values.sum() == pytest.approx(values["accuracy"])
    assert confusion.values.sum() == values["points"]
    scenes = make_rows(figures["Scenes"])
    assert set(scenes) == {samples.describe(index) for index in range(3)}
    assert [row[1] for row in figures["Scenes"].rows] == sorted(row["mIoU"] for row in scenes.values())


def test_figures_of_segmentation_are_those_of_its_metrics():
    task, samples, values, figures = evaluated(SemanticSegmentation, SEMANTIC)
    check_semantic(task, samples, values, figures)
    sets = [figure for figure in figures.values() if isinstance(figure, PointSet)]
    assert {one.title for one in sets} <= {samples.dataset.read(index).name for index in range(3)} and len(sets) == 3
    scene = next(samples.dataset.read(index) for index in range(3) if samples.dataset.read(index).name == sets[0].title)
    assert list(sets[0].colors) == ["truth", "prediction", "mistakes", "colors"]
    assert np.array_equal(sets[0].xyz, scene.xyz) and np.array_equal(sets[0].colors["colors"], scene.rgb)
    palette = dict(sets[0].legends["truth"])
    for number, name in enumerate(task.class_names):
        of_class = sets[0].colors["truth"][scene.semantic == number]
        assert (of_class == palette[name]).all() if len(of_class) else name not in palette
    wrong = (sets[0].colors["mistakes"] == dict(sets[0].legends["mistakes"])["wrong"]).all(axis=1)
    differ = (sets[0].colors["truth"] != sets[0].colors["prediction"]).any(axis=1)
    np.testing.assert_array_equal(wrong, differ & (scene.semantic >= 0), strict=True)


def test_figures_of_instances_are_those_of_their_metrics():
    task, samples, values, figures = evaluated(InstanceSegmentation, INSTANCES)
    check_semantic(task, samples, values, figures)
    precisions = make_rows(figures["Average precision of instances"])
    assert set(precisions) == set(task.class_names) - {"wall", "floor"}
    for kind in ("AP", "AP50", "AP25"):
        for name, row in precisions.items():
            value = values.get(f"{kind} {name}")
            assert row[kind] == (None if value is None else pytest.approx(value, abs=0.00006))
    shown = next(figure for figure in figures.values() if isinstance(figure, PointSet))
    assert list(shown.colors)[:2] == ["true instances", "predicted instances"]
    assert len(shown.legends["true instances"]) > 2


def test_the_worst_scenes_are_shown_and_the_best():
    def confusion(right, wrong):
        return np.array([[right, wrong], [0, 0]])

    shares = [confusion(8, 2), confusion(1, 9), confusion(5, 5), confusion(9, 1), confusion(3, 7), confusion(7, 3)]
    assert select_scenes(shares) == [1, 4, 5, 3]
    assert select_scenes(shares[:1]) == [0] and select_scenes([]) == []


def test_a_large_scene_is_thinned_out():
    large = scene(400_000)
    shown = build_point_set("a", large, {"truth": large.rgb}, {})
    assert len(shown.xyz) == 133_334 and "every 3. of 400,000 points" in shown.note
    np.testing.assert_array_equal(shown.colors["truth"], large.rgb[::3], strict=True)
    nothing = build_point_set("b", scene(0), {}, {})
    assert len(nothing.xyz) == 0 and nothing.note == "0 points"
