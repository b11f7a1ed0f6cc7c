"""Images of scenes: the truth beside the prediction, in ScanNet's colors, with a legend."""

import numpy as np
from PIL import Image
from support.small_scenes import scene

from paddlevit_dist.points.data.images import UNLABELED_PIXELS, draw, sheet
from paddlevit_dist.points.data.samples import SceneSamples
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, COLORS
from paddlevit_dist.points.segmentation.prediction import SceneClassWriter


def make_colors(image):
    packed = np.unique(image.reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1]))
    return {(color >> 16, color >> 8 & 255, color & 255) for color in packed.tolist()}


def test_views_stand_side_by_side_and_the_legend_beside_them():
    shades = np.array([(10, 0, 77), (0, 90, 99)], np.uint8)
    left, right = np.tile(shades[0], (90, 120, 1)), np.tile(shades[1], (80, 70, 1))
    drawn = sheet([("a", left), ("b", right)], [(f"name {number}", (200, number, 0)) for number in range(45)])
    found = [np.argwhere((drawn == shade).all(axis=2)) for shade in shades]
    (top, first), (bottom, last) = found[0].min(axis=0), found[0].max(axis=0)
    assert (bottom - top + 1, last - first + 1) == (90, 120)
    assert found[1].min(axis=0)[1] > last and found[1].min(axis=0)[0] == top
    assert {(200, number, 0) for number in range(45)} <= make_colors(drawn[:, found[1].max(axis=0)[1] + 1 :])


def test_truth_is_on_the_left_of_the_prediction(tmp_path):
    room = scene(400)
    true = np.where(room.semantic < 10, room.semantic, -100)
    predicted = np.full(400, 17)  # nothing but sinks
    writer = SceneClassWriter(tmp_path, SceneSamples([room], (), "first"), CLASS_NAMES)
    names = writer.write_scene(room, predicted, true)
    assert sorted(names) == ["a.ply", "a.png", "a.txt"]
    image = np.asarray(Image.open(tmp_path / "a.png"))
    width = draw(room.xyz, room.rgb, true >= 0).shape[1]
    shown = make_colors(image[30:, :width]), make_colors(image[30:, width + 12 : 2 * width + 12])
    assert shown[0] - {(255, 255, 255)} <= {*COLORS[:10], UNLABELED_PIXELS} and len(shown[0]) > 8
    assert shown[1] - {(255, 255, 255)} == {COLORS[17]}
    writer.write_scene(room, predicted)
    alone = np.asarray(Image.open(tmp_path / "a.png"))
    assert alone.shape[1] < image.shape[1] - width and COLORS[17] in make_colors(alone)
