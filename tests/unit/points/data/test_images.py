"""Images of scenes: the truth beside the prediction, in ScanNet's colors, with a legend."""

import numpy as np
import pytest
from PIL import Image
from support.samples.small_scenes import scene

from paddlevit_dist.core.runtime.errors import UserError
from paddlevit_dist.core.runtime.text_rendering import LINE_PX
from paddlevit_dist.points.data.images import (
    UNLABELED_PIXELS,
    build_legend,
    color,
    draw,
    draw_classes,
    fit_in_cell,
    sheet,
)
from paddlevit_dist.points.data.samples import SceneSamples
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, COLORS
from paddlevit_dist.points.data.scenes import SceneDataset
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
    titles = [(drawn[:top, first : first + 40] == 0).all(axis=2).any() for first in (0, last + 1, last + 90)]
    assert titles == [True, True, False]
    assert len(drawn) == top + 20 * LINE_PX  # the legend goes on in further columns
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
    for truth, expected in ((np.full(400, -100), alone.shape[1]), (np.zeros(400, int), image.shape[1])):
        writer.write_scene(room, predicted, truth)
        with Image.open(tmp_path / "a.png") as shown:
            assert shown.width == pytest.approx(expected, abs=60)


def test_points_are_three_pixels_where_the_view_from_above_sees_them():
    xyz = np.array([[0, 0, 0], [2, 1, 0.5], [-1, 3, 1], [0.5, -2, 2]], np.float32)
    colors = np.array([[200, 0, 0], [0, 200, 0], [0, 0, 200], [90, 90, 0]], np.uint8)
    image = draw(xyz, colors, np.ones(4, bool), 300)
    yaw, tilt = np.radians(30), np.radians(55)
    right = xyz[:, 0] * np.cos(yaw) - xyz[:, 1] * np.sin(yaw)
    away = xyz[:, 0] * np.sin(yaw) + xyz[:, 1] * np.cos(yaw)
    up = away * np.sin(tilt) + xyz[:, 2] * np.cos(tilt)
    scale = 296 / np.ptp(right)
    assert image.shape == (int(np.ptp(up) * scale) + 4, 300, 3)
    for place in range(4):
        rows, columns = np.nonzero((image == colors[place]).all(axis=2))
        assert len(rows) == 9 and rows.min() == pytest.approx((up.max() - up[place]) * scale, abs=1)
        assert columns.min() == pytest.approx((right[place] - right.min()) * scale, abs=1)


def test_nearer_points_hide_farther_ones_and_the_foreground_the_room():
    above = np.array([[0, 0, 0], [0, 0, 0], [5, 0, 0]], np.float32)
    direction = np.array([0.5, np.sqrt(0.75), 0]) * np.cos(np.radians(55)) - np.array([0, 0, np.sin(np.radians(55))])
    above[0] -= (2 * direction).astype(np.float32)  # toward the viewer: the same pixel
    colors = np.array([[200, 0, 0], [0, 200, 0], [0, 0, 200]], np.uint8)
    for foreground, hidden in (([True] * 3, 1), ([False] * 3, 1), ([False, True, True], 0)):
        for order in ([0, 1, 2], [1, 2, 0]):
            shown = make_colors(draw(above[order], colors[order], np.array(foreground)[order], 100))
            assert tuple(colors[hidden].tolist()) not in shown and tuple(colors[1 - hidden].tolist()) in shown
    names = ["chair", "Wall", "floor", "table"]
    behind = draw_classes(above, np.array([1, 3, 0]), names, 100)
    before = make_colors(draw_classes(above, np.array([1, 0, 3]), names, 100))
    palette = color(np.arange(4), np.arange(12).reshape(4, 3))
    assert palette.tolist() == np.arange(12).reshape(4, 3).tolist()
    found = color(np.array([-100, 2, -1]), palette)
    np.testing.assert_array_equal(found, np.array([[205] * 3, [6, 7, 8], [205] * 3], np.uint8), strict=True)
    legend = dict(build_legend(np.array([[3, -100], [1, 0]]), names))
    assert list(legend) == ["chair", "Wall", "table"]
    assert legend["chair"] in before and legend["Wall"] not in before
    assert legend["table"] in make_colors(behind) and legend["Wall"] not in make_colors(behind)


def test_tall_scenes_are_cut_off_at_the_bottom_of_their_cell():
    image = np.repeat(np.arange(300) % 250, 240 * 3).reshape(300, 240, 3).astype(np.uint8)
    assert (fit_in_cell(image) == image[:240]).all()
    cell = fit_in_cell(image[:100])
    assert (cell[:100] == image[:100]).all() and (cell[100:] == 255).all() and cell.shape == (240, 240, 3)
    high = draw(np.array([[0, 0, 0], [0, 0, 9]], np.float32), np.zeros((2, 3), np.uint8), np.ones(2, bool), 50)
    assert high.shape == (4 * 46 + 4, 50, 3)


@pytest.mark.parametrize("length_m, width", [(0.0, 3), (0.00025, 24 + 3), (0.002, 96 + 3)])
def test_a_millimeter_is_the_smallest_width_of_an_image(length_m, width):
    direction = np.array([np.cos(np.radians(30)), -np.sin(np.radians(30)), 0])  # to the right
    xyz = np.outer([0, length_m], direction).astype(np.float32)
    image = draw(xyz, np.zeros((2, 3), np.uint8), np.ones(2, bool), 100)
    assert image.shape == (4, 100, 3) and np.ptp(np.flatnonzero((image == 0).all(axis=2).any(axis=0))) + 1 == width


def test_own_scenes_of_one_name_are_refused_before_one_overwrites_the_other(tmp_path):
    class Rooms(SceneDataset):
        def __len__(self):
            return 2

        def read(self, index):
            return scene(20 + index)

    writer = SceneClassWriter(tmp_path, SceneSamples(Rooms(None, "val", tmp_path), (), "first"), CLASS_NAMES)
    writer.write(0, np.zeros(20, int))
    with pytest.raises(UserError, match="^scene 0 and scene 1 both have the name 'a', and the files of their"):
        writer.write(1, np.zeros(21, int))
    assert len((tmp_path / "a.txt").read_text().splitlines()) == 20
