"""Anchors, boxes, matching, sampling, suppression and cutting out, against loops in float64."""

import numpy as np
import paddle
import pytest
from images.detection import mask_rcnn_peers as peers

from paddlevit_dist.images.detection.boxes import inside, move_boxes, offsets, overlaps
from paddlevit_dist.images.detection.mask_rcnn.region_heads import cut_out, levels_of, paste, roi_align
from paddlevit_dist.images.detection.mask_rcnn.region_proposals import (
    anchors_at_origin,
    anchors_of_level,
    match,
    sample,
    suppress,
)


def tensor(values, dtype="float64"):
    return paddle.to_tensor(np.asarray(values, dtype))


def test_anchors_are_those_that_the_published_weights_were_trained_with():
    # of torchvision's maskrcnn_resnet50_fpn, first level
    expected = [[-23, -11, 23, 11], [-16, -16, 16, 16], [-11, -23, 11, 23]]
    assert anchors_at_origin(32, (0.5, 1.0, 2.0), rounds=True).tolist() == expected
    exact = anchors_at_origin(32, (0.5, 2.0), rounds=False)
    sides = exact[:, 2:] - exact[:, :2]
    np.testing.assert_allclose(sides.prod(axis=1), 32**2)
    np.testing.assert_allclose(sides[:, 1] / sides[:, 0], [0.5, 2.0])


def test_anchors_go_row_by_row_and_position_by_position():
    anchors = anchors_of_level((2, 3), 8, 16, (1.0, 2.0), True).reshape(2, 3, 2, 4)
    first = anchors_at_origin(16, (1.0, 2.0), True)
    for row, column in np.ndindex(2, 3):
        np.testing.assert_array_equal(anchors[row, column], first + 8 * np.array([column, row] * 2))


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-13)])
def test_overlaps_are_those_of_single_pairs(dtype, tolerance):
    rng = np.random.default_rng(0)
    one, other = peers.boxes(rng, 5), peers.boxes(rng, 9)
    one[1], other[2], other[3] = [4, 4, 4, 9], [4, 4, 4, 4], one[0]  # without width, a point, the same
    expected = [[peers.overlap(a, b) for b in other] for a in one]
    found = overlaps(tensor(one, dtype), tensor(other, dtype))
    np.testing.assert_allclose(found.numpy(), expected, atol=tolerance)


def test_a_box_is_found_again_from_its_difference_to_another():
    rng = np.random.default_rng(1)
    boxes, references = peers.boxes(rng, 20), peers.boxes(rng, 20)
    weights = (10.0, 10.0, 5.0, 5.0)
    changes = offsets(tensor(boxes), tensor(references), weights)
    np.testing.assert_allclose(move_boxes(changes, tensor(references), weights).numpy(), boxes, atol=1e-10)
    # R-CNN's equations by hand: one to the right by half a width, twice as high
    by_hand = offsets(tensor([[15.0, 5, 25, 25]]), tensor([[10.0, 10, 20, 20]]), weights)
    np.testing.assert_allclose(by_hand.numpy(), [[5.0, 0.0, 0.0, 5 * np.log(2)]], atol=1e-12)


def test_a_box_grows_by_a_factor_of_62_5_at_most_however_large_the_change():
    box = move_boxes(tensor([[0.0, 0, 1e9, 0]], "float32"), tensor([[0.0, 0, 2, 2]], "float32")).numpy()[0]
    np.testing.assert_allclose(box, [1 - 62.5, 0, 1 + 62.5, 2], rtol=1e-5)


def test_boxes_are_cut_at_the_borders_of_their_own_image():
    boxes = tensor([[[-5.0, -5, 50, 50]], [[-5.0, 3, 50, 50]]])
    assert inside(boxes, tensor([[20, 30], [60, 10]], "int64")).numpy().tolist() == [[[0, 0, 30, 20]], [[0, 3, 10, 50]]]


@pytest.mark.parametrize("rule", [(0.5, 0.5, None), (0.7, 0.3, 0.0), (0.7, 0.3, 0.3), (0.5, 0.4, 0.6)])
def test_matches_are_those_of_a_loop(rule):
    rng = np.random.default_rng(2)
    objects, boxes = peers.boxes(rng, 6, smallest=20), peers.boxes(rng, 80, smallest=20)
    boxes[:4] = objects[0] + 1, objects[0] + 1, objects[1], objects[1]  # equally close to an object
    objects[5] = [500, 500, 510, 510]  # overlaps nothing
    matches = match(overlaps(tensor(objects), tensor(boxes)), *rule)
    expected = peers.matched(objects, boxes, *rule)
    assert (matches.objects.numpy().tolist(), matches.states.numpy().tolist()) == expected


def test_without_objects_all_boxes_are_negative():
    nothing = tensor([[0.0, 0, 0, 0]])  # what an empty list of objects is padded with
    matches = match(overlaps(nothing, tensor(peers.boxes(np.random.default_rng(3), 7))), 0.7, 0.3, 0.0)
    assert (matches.states == 0).all()


CASES = [
    (3, 50, 16, 0.5),
    (30, 50, 16, 0.5),
    (30, 2, 16, 0.5),
    (0, 20, 8, 0.25),
    (4, 0, 8, 0.5),
    (0, 0, 8, 0.5),
    (2, 2, 999, 0.5),
]


@pytest.mark.parametrize("at_random", [True, False])
@pytest.mark.parametrize("positive, negative, number, share", CASES)
def test_a_sample_has_its_share_of_positive_boxes_and_is_filled_up_with_negative_ones(
    positive, negative, number, share, at_random
):
    states = np.array([1] * positive + [0] * negative + [-1] * 5, np.int32)
    np.random.default_rng(4).shuffle(states)
    paddle.seed(5)
    chosen, is_positive, is_used = (part.numpy() for part in sample(tensor(states, "int32"), number, share, at_random))
    assert len(chosen) == min(number, len(states)) == len(set(chosen.tolist()))
    expected = min(positive, int(number * share))
    assert states[chosen[is_positive]].tolist() == [1] * expected
    used = chosen[is_used & ~is_positive]
    assert states[used].tolist() == [0] * min(negative, number - expected)
    assert is_positive[:expected].all() and not is_positive[expected:].any()  # they come first
    assert is_used[: expected + len(used)].all() and not is_used[expected + len(used) :].any()


def test_each_box_is_as_likely_and_the_same_seed_draws_the_same():
    states = tensor([1] * 6 + [0] * 10, "int32")
    counts = np.zeros(16)
    for seed in range(400):
        paddle.seed(seed)
        chosen = sample(states, 8, 0.5).boxes.numpy()
        counts[chosen] += 1
    paddle.seed(399)
    assert sample(states, 8, 0.5).boxes.numpy().tolist() == chosen.tolist()
    # 4 of 6 and 4 of 10: five standard deviations of a binomial number
    assert (abs(counts[:6] - 400 * 4 / 6) < 5 * np.sqrt(400 * 2 / 9)).all()
    assert (abs(counts[6:] - 400 * 4 / 10) < 5 * np.sqrt(400 * 0.24)).all()


def test_without_chance_any_seed_samples_the_same_and_every_part_of_the_list():
    states = tensor([0] * 1000, "int32")
    found = []
    for seed in (1, 2):
        paddle.seed(seed)
        found.append(sorted(sample(states, 100, 0.5, at_random=False).boxes.tolist()))
    assert found[0] == found[1]
    assert max(np.diff([0, *found[0], 1000])) < 25  # one in ten


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", [0, 1, 2, 63, 64, 65, 150])
def test_suppression_keeps_what_a_loop_keeps(number, dtype):
    rng = np.random.default_rng(number)
    boxes = peers.boxes(rng, number).astype(dtype)
    scores, groups = rng.permutation(number) / max(number, 1), rng.integers(0, 3, number)
    best = np.argsort(-scores)
    found = suppress(tensor(boxes[best], dtype), tensor(groups[best], "int64"), 0.3, 1000)
    assert best[found.numpy()].tolist() == peers.suppressed(boxes.astype(np.float64), scores, groups, 0.3)


def test_suppression_knows_the_same_box_collapsed_boxes_and_a_limit():
    boxes = tensor([[0.0, 0, 9, 9], [3, 3, 3, 3], [3, 3, 3, 3], [0, 0, 9, 9], [0, 0, 9, 9]])
    groups = tensor([0, 0, 0, 1, 0], "int64")
    assert suppress(boxes, groups, 0.5, 9).numpy().tolist() == [0, 1, 2, 3]
    assert suppress(boxes, groups, 0.5, 2).numpy().tolist() == [0, 1]


def test_a_region_is_cut_out_one_level_coarser_for_each_doubling_of_its_side():
    sides = [1e-9, 4, 111, 112, 223, 224, 447, 448, 10000]
    boxes = tensor([[0, 0, side, side] for side in sides], "float32")
    assert levels_of(boxes, 4, 224).numpy().tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    assert levels_of(boxes[1:2], 4, 4).numpy().tolist() == [2]


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
    found = cut_out(maps, strides, tensor(boxes), images, levels, 3, samples, aligned)
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
    "box", [(3, 4, 17, 12), (-6.3, -2, 9.9, 30.2), (14.2, 8.1, 60, 70), (5, 5, 5, 5), (90, 90, 99, 99)]
)
def test_a_mask_is_resized_to_its_box_and_laid_into_the_image(box):
    rng = np.random.default_rng(7)
    mask, (height, width) = rng.random((6, 6)), (20, 24)
    # torchvision: a border of one, the box grown by as much, whole pixels, bilinear without aligned corners
    padded = np.pad(mask, 1)
    centre, half = np.array([box[0] + box[2], box[1] + box[3]]) / 2, np.array([box[2] - box[0], box[3] - box[1]]) / 2
    x0, y0, x1, y1 = (int(value) for value in [*(centre - half * 8 / 6), *(centre + half * 8 / 6)])
    rows, columns = max(y1 - y0 + 1, 1), max(x1 - x0 + 1, 1)
    expected = np.zeros((height, width), np.uint8)
    for y, x in np.ndindex(height, width):
        if 0 <= y - y0 < rows and 0 <= x - x0 < columns:
            down, across = (y - y0 + 0.5) * 8 / rows - 0.5, (x - x0 + 0.5) * 8 / columns - 0.5
            expected[y, x] = peers.value_at(padded, max(down, 0), max(across, 0)) > 0.5
    found = paste(mask, np.array(box, np.float64), (height, width))
    assert found.dtype == np.uint8 and found.shape == (height, width)
    np.testing.assert_array_equal(found, expected)
