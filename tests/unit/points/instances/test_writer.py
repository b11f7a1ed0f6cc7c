"""Which points, numbers and colors predicted instances have in files, tables and figures."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.points.data.images import draw, sheet
from paddlevit_dist.points.data.ply import read_vertices
from paddlevit_dist.points.data.samples import SceneSamples
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.writer import (
    InstanceWriter,
    color_instances,
    draw_instances,
    get_point_instances,
    instance_layers,
)

NAMES = ["wall", "chair", "table"]


def predict(*rows):
    """Predictions (class, confidence, points)."""
    return [
        InstancePrediction(class_number=label, confidence=confidence, points=np.array(points, np.int64))
        for label, confidence, points in rows
    ]


FOUND = predict((1, 0.9, [0, 1, 2]), (2, 0.75, [2, 3, 6]), (1, 0.5, [6, 7]))
TRUE = np.array([40, 40, 7, 7, -1, 7, -100, -100])


def test_a_point_has_the_best_prediction_that_contains_it():
    found, expected = get_point_instances(FOUND, 8), np.array([0, 0, 0, 1, -100, -100, 1, 2])
    np.testing.assert_array_equal(found, expected, strict=True)


def test_predictions_have_the_color_of_the_true_instance_that_they_overlap_most():
    colored = color_instances(TRUE, FOUND, 8)
    assert colored.truth.tolist() == [1, 1, 0, 0, -100, 0, -100, -100]
    assert colored.predicted.tolist() == get_point_instances(FOUND, 8).tolist()
    assert colored.true_palette.shape == (2, 3) and colored.palette.shape == (3, 3)
    assert colored.palette[:2].tolist() == colored.true_palette[[1, 0]].tolist()  # of 40, then of 7
    assert colored.palette[2].tolist() not in colored.true_palette.tolist()
    truth, predicted = colored.colors
    for colors, palette, labels in (
        (truth, colored.true_palette, colored.truth),
        (predicted, colored.palette, colored.predicted),
    ):
        for row, label in zip(colors.tolist(), labels):
            assert row == ([205] * 3 if label < 0 else palette[label].tolist())
    unknown = color_instances(None, FOUND, 8)
    assert len(unknown.true_palette) == 0 and len({tuple(row) for row in unknown.palette.tolist()}) == 3


def test_layers_name_true_instances_by_the_class_of_their_first_point():
    scene = SimpleNamespace(instance=TRUE, semantic=np.array([0, 2, -100, 1, 0, 1, 0, 0]), xyz=np.zeros((8, 3)))
    layers, legends = instance_layers(scene, FOUND, NAMES)
    assert list(layers) == list(legends) == ["true instances", "predicted instances"]
    assert [name for name, _ in legends["true instances"]] == ["no class", "wall"]  # of 7, then of 40
    assert [name for name, _ in legends["predicted instances"]] == ["chair 0.90", "table 0.75", "chair 0.50"]
    assert layers["true instances"][0].tolist() == list(legends["true instances"][1][1])
    assert layers["predicted instances"][3].tolist() == list(legends["predicted instances"][1][1])


def make_scene() -> Scene:
    xyz = np.random.default_rng(0).uniform(0, 3, (8, 3)).astype(np.float32)
    labels = np.zeros(8, np.int16)
    return Scene(xyz, np.zeros((8, 3), np.uint8), labels, labels, "room", (10.0, 20.0, 0.5), skipped_rows=[1, 4])


def make_writer(tmp_path) -> InstanceWriter:
    return InstanceWriter(tmp_path, SceneSamples([make_scene()], (), "first"), NAMES, [1, 2])


def test_masks_have_a_row_for_each_row_of_the_source(tmp_path):
    classes = np.array([1, 1, 1, 2, 0, 0, 2, 1])
    names = make_writer(tmp_path).write_scene(make_scene(), (classes, FOUND), TRUE)
    assert names == ["room_prediction.ply", "room_truth.ply", "room.txt", "room.png"]
    assert (tmp_path / "room.txt").read_text().splitlines() == [
        "predicted_masks/room_000.txt 1 0.9000",
        "predicted_masks/room_001.txt 2 0.7500",
        "predicted_masks/room_002.txt 1 0.5000",
    ]
    masks = [(tmp_path / "predicted_masks" / f"room_00{number}.txt").read_text().split() for number in range(3)]
    rows = [0, 2, 3, 5, 6, 7, 8, 9]  # of the points: 1 and 4 were skipped
    for mask, prediction in zip(masks, FOUND):
        assert mask == [str(int(row in [rows[point] for point in prediction.points])) for row in range(10)]
    points = read_vertices(tmp_path / "room_prediction.ply")
    assert np.flatnonzero(np.isnan(points["x"])).tolist() == np.flatnonzero(np.isnan(points["z"])).tolist() == [1, 4]
    assert points["class"][rows].tolist() == classes.tolist() and points["label"][[1, 4]].tolist() == [-100, -100]
    assert points["red"][1] == points["blue"][4] == 205  # of points without an instance
    np.testing.assert_allclose(points["y"][rows], make_scene().xyz[:, 1].astype(np.float64) + 20, rtol=1e-12)
    alone = make_writer(tmp_path / ".").write_scene(make_scene(), (classes, FOUND))
    assert alone == ["room_prediction.ply", "room.txt", "room.png"]
    with Image.open(tmp_path / "room.png") as image:
        assert image.width > 720


def test_classes_and_instances_of_points_and_of_segments(tmp_path):
    written, classes = make_writer(tmp_path), np.array([1, 1, 1, 2, 0, 0, 2, 1])
    labels, instances = written.point_labels((classes, FOUND))
    assert labels.tolist() == classes.tolist() and instances.tolist() == [0, 0, 0, 1, -100, -100, 1, 2]
    segments, _ = written.segment_labels((classes, FOUND))
    assert segments[:4].tolist() == [1, 1, 1, 2] and segments[4] == 0
    assert written.is_thing.tolist() == [False, True, True]


def test_a_legend_ends_where_it_is_too_long(tmp_path):
    found = [*FOUND[:2] * 30, FOUND[2]]
    colors = np.arange(3 * 61, dtype=np.uint8).reshape(61, 3)
    legend = make_writer(tmp_path).build_scene_legend(found, colors)
    assert legend[:2] == [("chair 0.90", (0, 1, 2)), ("table 0.75", (3, 4, 5))]
    assert len(legend) == 61 and legend[60] == ("and 1 more", (205, 205, 205))
    assert make_writer(tmp_path).build_scene_legend(found[:60], colors[:60]) == legend[:60]


def test_the_picture_of_a_scene_shows_instances_before_what_lies_at_their_place(tmp_path):
    scene = make_scene()
    scene.xyz[4], scene.xyz[5] = scene.xyz[3], scene.xyz[1]
    make_writer(tmp_path).write_scene(scene, (np.zeros(8, int), FOUND), TRUE)
    colored, views = color_instances(TRUE, FOUND, 8), []
    for kind, colors, labels in zip(("truth", "prediction"), colored.colors, (TRUE, [0, 0, 0, 1, -1, -1, 1, 2])):
        views.append((kind, draw(scene.xyz, colors, np.array(labels) >= 0)))
    entries = make_writer(tmp_path).build_scene_legend(FOUND, colored.palette)
    with Image.open(tmp_path / "room.png") as image:
        np.testing.assert_array_equal(np.asarray(image), sheet(views, entries), strict=True)
    assert not np.array_equal(views[1][1], draw(scene.xyz, colored.colors[1], colored.predicted > 0))


@pytest.mark.parametrize("instance", [TRUE, np.full(8, -100)])
def test_instances_are_drawn_in_a_color_each(instance):
    image = draw_instances(make_scene().xyz, instance, 100)
    shown = {tuple(color) for color in image.reshape(-1, 3).tolist()} - {(255, 255, 255), (205, 205, 205)}
    assert len(shown) == len(np.unique(instance[instance >= 0]))
