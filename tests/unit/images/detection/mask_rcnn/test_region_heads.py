"""Regions that are cut out of maps, and masks that are laid into images, against loops in float64."""

import numpy as np
import paddle
import pytest
from support.networks import mask_rcnn_peers as peers

from paddlevit_dist.images.detection.mask_rcnn.region_heads import (
    RegionHeads,
    assign_levels,
    paste,
    pool_regions,
    roi_align,
)
from paddlevit_dist.images.detection.mask_rcnn.rules import MaskRcnnRules


def tensor(values, dtype="float64"):
    return paddle.to_tensor(np.asarray(values, dtype))


def test_a_region_is_cut_out_one_level_coarser_for_each_doubling_of_its_side():
    sides = [1e-9, 4, 111, 112, 223, 224, 447, 448, 10000]
    boxes = tensor([[0, 0, side, side] for side in sides], "float32")
    assert assign_levels(boxes, 4, 224).numpy().tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert assign_levels(boxes[1:2], 4, 4).numpy().tolist() == [2]
    heads = RegionHeads(2, 3, (4, 8, 16), 4, (), MaskRcnnRules())
    assert heads.regions(boxes, np.zeros(9, np.int64)).levels.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("numbers", [[3, 0, 4], [0, 0, 7], [7, 0, 0]])
def test_numbers_on_the_host_give_the_same_bits_as_numbers_in_a_tensor(numbers):
    rng = np.random.default_rng(3)
    values, boxes = rng.normal(size=(3, 2, 9, 11)), tensor(peers.boxes(rng, 7, side=40), "float32")
    first, second = (paddle.to_tensor(values.astype(np.float32), stop_gradient=False) for _ in range(2))
    ours = roi_align(first, boxes[:], np.array(numbers), 5, 0.25, 2)
    theirs = paddle.vision.ops.roi_align(second, boxes, tensor(numbers, "int32"), 5, 0.25, 2, aligned=False)
    for found in (ours, theirs):
        (found**2).sum().backward()
    assert np.array_equal(ours.numpy(), theirs.numpy()) and np.array_equal(first.grad.numpy(), second.grad.numpy())


@pytest.mark.parametrize("samples, aligned", [(2, False), (-1, False), (2, True), (-1, True)])
def test_maps_are_cut_out_as_point_by_point_and_so_are_the_gradients(samples, aligned):
    rng = np.random.default_rng(6)
    strides, grids = (4, 8), ((9, 11), (5, 6))
    maps = [paddle.to_tensor(rng.normal(size=(3, 2, *grid)), stop_gradient=False) for grid in grids]
    boxes = peers.boxes(rng, 7, side=40)
    boxes[0], boxes[1], boxes[2] = [-20, -20, 9, 9], [90, 90, 99, 99], [5, 5, 5, 5]  # over a border, outside, a point
    boxes[3] = [5, 5, 6.5, 7]  # smaller than a position
    images, levels = np.array([0, 0, 0, 0, 2, 2, 2]), np.array([0, 0, 1, 0, 1, 1, 0])
    found = pool_regions(maps, strides, tensor(boxes), images, levels, 3, samples, aligned)
    weights = rng.normal(size=(7, 2, 3, 3))
    (found * tensor(weights)).sum().backward()
    for number, channel in np.ndindex(7, 2):
        level = levels[number]
        one = maps[level].numpy()[images[number], channel]
        expected = peers.cut_out(one, boxes[number], strides[level], 3, samples, aligned)
        np.testing.assert_allclose(found.numpy()[number, channel], expected, atol=1e-12)
    # cutting out is linear in the map: the gradient of an entry is what is cut out of a map that is 1 there alone
    for level, image, channel, row, column in [
        (0, 0, 0, 1, 1),
        (0, 0, 1, 2, 1),
        (0, 2, 0, 4, 4),
        (1, 2, 1, 2, 3),
        (1, 0, 0, 0, 0),
    ]:
        lone = np.zeros(grids[level])
        lone[row, column] = 1.0
        expected = sum(
            (peers.cut_out(lone, boxes[number], strides[level], 3, samples, aligned) * weights[number, channel]).sum()
            for number in range(7)
            if (levels[number], images[number]) == (level, image)
        )
        np.testing.assert_allclose(maps[level].grad.numpy()[image, channel, row, column], expected, atol=1e-12)


@pytest.mark.parametrize(
    "box",
    [
        *((3, 4, 17, 12), (12, 2, 22, 18), (1, 15, 20, 19)),
        *((-6.3, -2, 9.9, 30.2), (14.2, 8.1, 60, 70), (5, 5, 5, 5), (90, 90, 99, 99)),
    ],
)
def test_a_mask_is_resized_to_its_box_and_laid_into_the_image(box):
    rng = np.random.default_rng(7)
    mask, (height, width) = rng.random((6, 6)), (20, 24)
    # torchvision: a border of one, the box grown by as much, whole pixels, bilinear without aligned corners
    padded = np.pad(mask, 1)
    center, half = np.array([box[0] + box[2], box[1] + box[3]]) / 2, np.array([box[2] - box[0], box[3] - box[1]]) / 2
    x0, y0, x1, y1 = (int(value) for value in [*(center - half * 8 / 6), *(center + half * 8 / 6)])
    rows, columns = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
    expected = np.zeros((height, width), np.uint8)
    for y, x in np.ndindex(height, width):
        if 0 <= y - y0 < rows and 0 <= x - x0 < columns:
            down, across = (y - y0 + 0.5) * 8 / rows - 0.5, (x - x0 + 0.5) * 8 / columns - 0.5
            expected[y, x] = peers.value_at(padded, max(down, 0), max(across, 0)) > 0.5
    found = paste(mask, np.array(box, np.float64), (height, width))
    assert found.dtype == np.uint8 and found.shape == (height, width)
    np.testing.assert_array_equal(found, expected, strict=True)
