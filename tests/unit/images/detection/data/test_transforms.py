"""Images, boxes and masks are resized, cropped and mirrored together: compared with brute force on masks."""

import dataclasses

import numpy as np
import paddle
import pytest
from PIL import Image
from support.samples.drawn_views import SHAPES, edges, make_view

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.data.samples import collate, largest_side
from paddlevit_dist.images.detection.data.transforms import (
    DetectionEvaluationTransform,
    DetectionTrainingTransform,
    build_evaluation_transform,
    build_training_transform,
    crop,
    fitted_size,
    flip,
    resize,
    resize_as_torchvision,
    torchvision_fitted_size,
    whole_view,
    zoom_out,
)
from paddlevit_dist.images.detection.prediction import DetectionInput

FINE = DetectionTrainingTransform(
    shortest=(40, 64, 96), longest=120, shortest_to_crop=(50, 70), crop_sides=(24, 60), color_jitter=0.3
)


@pytest.mark.parametrize("index", range(12))
def test_boxes_of_mirrored_and_cut_masks_are_the_mirrored_and_cut_boxes(index):
    view, masks = make_view(index)
    view = flip(view)
    for which, box in zip(view.objects, view.boxes):
        assert np.array_equal(edges(masks[which][:, ::-1]), box)
        np.testing.assert_array_equal(view.mask(masks[which]), masks[which][:, ::-1], strict=True)
    part = crop(view, 5, 7, (20, 18))
    for which in range(len(masks)):
        cut = masks[which][:, ::-1][5:25, 7:25]
        assert cut.any() <= (which in part.objects)  # a box may reach in where its mask does not
        if which in part.objects:
            np.testing.assert_array_equal(part.mask(masks[which]), cut, strict=True)
            box = part.boxes[list(part.objects).index(which)]
            assert np.all(box[:2] <= edges(cut)[:2]) or not cut.any()
            assert np.all(box[2:] >= edges(cut)[2:])
    np.testing.assert_array_equal(
        np.asarray(part.image), np.asarray(SHAPES.read(index)[0])[:, ::-1][5:25, 7:25], strict=True
    )


@pytest.mark.parametrize("index", range(20))
def test_boxes_follow_their_masks_through_the_whole_recipe(index):
    view, masks = make_view(index)
    # Filled boxes in place of shapes: then the box of what is left of a mask is the box that is left.
    for mask in masks:
        x0, y0, x1, y1 = edges(mask)
        mask[y0:y1, x0:x1] = 1
    result = FINE(view, np.random.default_rng(index))
    height, width = result.size
    assert len(result.rows) == height and len(result.columns) == width
    scale = max(height / 24, width / 24, 1)  # of a pixel of the smallest crop: nearest neighbors are half of one off
    for which, box in zip(result.objects, result.boxes):
        mask = result.mask(masks[which])
        assert 0 <= box[0] < box[2] <= width and 0 <= box[1] < box[3] <= height
        if mask.any():
            assert np.abs(edges(mask) - box).max() <= scale
        else:
            assert min(box[2:] - box[:2]) <= scale
    for which in set(range(len(masks))) - set(result.objects.tolist()):
        assert result.mask(masks[which]).sum() <= scale * max(height, width)  # a sliver at an edge


def test_masks_are_resized_as_torch_does_with_nearest_neighbors():
    mask = np.random.default_rng(0).integers(0, 2, (7, 11)).astype(np.uint8)
    view = whole_view(Image.fromarray(np.zeros((7, 11, 3), np.uint8)), np.zeros((0, 4)), np.zeros(0, np.int64))
    for size in ((14, 22), (3, 5), (10, 4), (1, 1)):
        result = resize(view, size).mask(mask)
        rows = [int(row * 7 / size[0]) for row in range(size[0])]
        columns = [int(column * 11 / size[1]) for column in range(size[1])]
        np.testing.assert_array_equal(result, [[mask[row, column] for column in columns] for row in rows], strict=True)


def authors_size(width, height, size, longest):
    """As facebookresearch/detr has it in words: the shorter side becomes ``size``; where the longer one would pass
    ``longest``, the shorter one is rounded to what fits; a side that is right already stays."""
    low, high = min(width, height), max(width, height)
    if high / low * size > longest:
        size = int(round(longest * low / high))
    if low == size:
        return height, width
    return (int(size * height / width), size) if width < height else (size, int(size * width / height))


def lines(size=(90, 120)):
    """An image with vertical and horizontal lines of 1 to 3 pixels, and an L, as boxes and masks."""
    boxes, masks = [], []
    for number in range(24):
        low, length = 4 * number + number % 4, 1 + number % 3
        masks.append(np.zeros(size, np.uint8))
        if number % 2:
            masks[-1][5:80, low : low + length] = 1
        else:
            masks[-1][low % 80 : low % 80 + length, 9:111] = 1
        boxes.append(edges(masks[-1]))
    masks.append(np.zeros(size, np.uint8))
    masks[-1][10, 20:100] = masks[-1][10:80, 20] = 1
    corners = np.array([*boxes, edges(masks[-1])], float)
    picture = Image.new("RGB", size[::-1])
    return whole_view(
        picture, np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], 1), np.arange(25)
    ), masks


@pytest.mark.parametrize("scale", [0.9, 0.37, 0.25, 0.1, 1.7])
@pytest.mark.parametrize("mirrored", [False, True])
def test_shrinking_removes_no_object_and_a_crop_those_outside(scale, mirrored):
    view, masks = lines()
    whole = flip(view) if mirrored else view
    whole = resize(whole, (round(90 * scale), round(120 * scale)))
    seen, shown = whole.fit_to_masks(masks)
    assert seen.objects.tolist() == list(range(25))
    np.testing.assert_array_equal(seen.boxes, whole.boxes, strict=True)
    assert shown[-1].any()  # of the L, an arm may be skipped
    for box, mask in zip(seen.boxes[:-1], shown):
        assert mask.any() and np.abs(edges(mask) - box).max() <= max(scale, 1)
    height, width = (side // 2 for side in whole.size)
    part = crop(whole, 1, 2, (height, width))
    seen, shown = part.fit_to_masks(masks[index] for index in part.objects)
    for index, mask in enumerate(masks):  # brute force: the pixels' places in the resized image
        rows, columns = np.nonzero(mask[:, ::-1] if mirrored else mask)
        down, across = whole.size[0] / 90, whole.size[1] / 120
        inside = (rows + 1) * down > 1 + 1e-9, rows * down < 1 + height - 1e-9
        inside += (columns + 1) * across > 2 + 1e-9, columns * across < 2 + width - 1e-9
        if index in seen.objects:
            at = seen.objects.tolist().index(index)
            assert np.logical_and.reduce(inside).any() and shown[at].any()
            assert (seen.boxes[at] >= 0).all() and (seen.boxes[at] <= [width, height] * 2).all()
        else:
            assert not np.logical_and.reduce(inside).any()


@pytest.mark.parametrize("start", range(4))
def test_boxes_of_thin_objects_that_are_cut_do_not_depend_on_the_pixels_that_are_skipped(start):
    mask = np.zeros((100, 100), np.uint8)
    steps = np.arange(8, 92)
    mask[steps, steps * 2 // 9 + start] = mask[90, 10:90] = 1  # a steep line, and a level one outside
    box = edges(mask)
    corners = np.array([[*box[:2], *(box[2:] - box[:2])]], float)
    view = whole_view(Image.new("RGB", (100, 100)), corners, np.arange(1))
    part = crop(resize(view, (25, 25)), 0, 0, (20, 20))
    before = part.boxes.copy()
    seen, (shown,) = part.fit_to_masks([mask])
    assert (part.boxes == before).all() and (seen.boxes != before).any()
    rows, columns = np.nonzero(mask[:80])
    expected = [columns.min() / 4, rows.min() / 4, min((columns.max() + 1) / 4, 20), 20]
    assert np.abs(seen.boxes[0] - expected).max() < 1 and shown.any(axis=1).sum() == 18


def test_a_small_image_in_a_larger_one_keeps_thin_objects():
    view, masks = lines()
    view = resize(zoom_out(view, np.random.default_rng(2)), (31, 47))
    rows, columns = (np.flatnonzero(lines[:, 0] >= 0) for lines in (view.rows, view.columns))
    part = crop(view, 0, int(columns[0]), (int(rows[-1]), len(columns)))  # out of the image at its top alone
    assert part.rows[0, 0] == -1 and part.rows[-1, 0] >= 0 and part.columns.min() >= 0
    full = part.mask(np.ones((90, 120), np.uint8), 1)
    np.testing.assert_array_equal(full.all(axis=1), part.rows[:, 0] >= 0)
    seen, shown = view.fit_to_masks(masks)
    assert seen.objects.tolist() == list(range(25)) and view.rows[0, 0] == view.rows[-1, 0] == -1
    for box, mask in zip(seen.boxes[:-1], shown):
        assert np.abs(edges(mask) - box).max() <= 1


@pytest.mark.parametrize("seed", range(3))
def test_a_mask_of_a_whole_image_has_all_its_pixels_in_a_larger_one(seed):
    view = whole_view(Image.new("RGB", (5, 6)), np.array([[0.0, 0, 5, 6]]), np.arange(1))
    larger = zoom_out(view, np.random.default_rng(seed))
    left, top, right, bottom = larger.boxes[0].astype(int)
    expected = np.zeros(larger.size, np.uint8)
    expected[top:bottom, left:right] = 1
    np.testing.assert_array_equal(larger.mask(np.ones((6, 5), np.uint8)), expected)
    assert expected.sum() == 30 < expected.size


@pytest.mark.parametrize("size", [480, 608, 800])
def test_sizes_are_those_of_the_authors(size):
    generator = np.random.default_rng(size)
    for width, height in [*generator.integers(100, 1000, (200, 2)).tolist(), (480, 640), (800, 1333), (500, 500)]:
        assert fitted_size((height, width), size, 1333) == authors_size(width, height, size, 1333)


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (2, 2)])
def test_images_of_a_pixel_or_a_line_pass_both_recipes(size):
    image = Image.fromarray(np.zeros((*size, 3), np.uint8))
    for transform in (
        FINE,
        DetectionTrainingTransform(shortest=(32,), longest=64),
        DetectionEvaluationTransform(64, 96),
    ):
        for seed in range(4):
            view = whole_view(image, np.array([[0.0, 0.0, size[1], size[0]]]), np.arange(1))
            result = transform(view, np.random.default_rng(seed))
            assert min(result.size) >= 1 and max(result.size) <= 121 and len(result.boxes) == 1


def test_boxes_are_cut_off_at_the_edges_and_those_outside_or_empty_are_left_out():
    image = Image.fromarray(np.zeros((10, 20, 3), np.uint8))
    boxes = np.array([[-5, -5, 10, 10], [15, 5, 50, 50], [30, 3, 4, 4], [3, 3, 0, 4], [-8, 2, 8, 2]], float)
    view = whole_view(image, boxes, np.arange(5))
    assert view.boxes.tolist() == [[0, 0, 5, 5], [15, 5, 20, 10]] and view.objects.tolist() == [0, 1]


def test_everything_random_comes_from_the_generator():
    results = [FINE(make_view(3)[0], np.random.default_rng(seed)) for seed in (1, 1, 2, 3, 4)]
    same, again, *others = [(result.image.tobytes(), result.boxes.tobytes()) for result in results]
    assert same == again and all(other != same for other in others)


def test_an_evaluation_changes_the_size_only():
    view, _ = make_view(0)
    result = DetectionEvaluationTransform(60, 1000)(view, np.random.default_rng(0))
    assert min(result.size) == 60 and len(result.boxes) == len(view.boxes)
    assert np.allclose(result.boxes / result.image.size[0], view.boxes / view.image.size[0], atol=0.02)


@pytest.mark.parametrize("size", [(9, 14), (20, 31), (47, 53), (20, 14), (2, 2)])
def test_resizing_as_torchvision_is_interpolation_between_the_four_nearest_pixels(size):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 31, 3), dtype=np.uint8)
    view = whole_view(Image.fromarray(pixels), np.array([[2.0, 3.0, 10.0, 8.0]]), np.zeros(1, int))
    resized = resize_as_torchvision(view, size)
    stacked = paddle.to_tensor(pixels.transpose(2, 0, 1)[None].astype("float32"))
    expected = paddle.nn.functional.interpolate(stacked, size, mode="bilinear", align_corners=False)  # as torch's
    assert resized.image.dtype == np.float32 and resized.size == size
    assert np.abs(resized.image.transpose(2, 0, 1) - expected.numpy()[0]).max() < 1e-3
    np.testing.assert_array_equal(resized.boxes, resize(view, size).boxes, strict=True)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((480, 640), (800, 1066)), ((427, 1280), (444, 1333)), ((375, 500), (800, 1066)), ((10, 5000), (2, 1333))],
)
def test_sides_are_rounded_as_torchvision_does(size, expected):
    for turned in (1, -1):
        assert torchvision_fitted_size(size[::turned], 800, 1333) == expected[::turned]
    assert DetectionEvaluationTransform(800, 1333, "torchvision").resized(size) == expected
    assert fitted_size((427, 1280), 800, 1333) == (445, 1333)  # as DETR's authors round


def test_images_of_one_size_lose_their_proportions():
    words = ["-cfg=detr_shapes", "DETECTION.EVAL_BATCHING", "one_size"]
    assert build_evaluation_transform(load(words).values).resized((480, 640)) == (48, 48)
    transform = build_evaluation_transform(load([*words, "DETECTION.EXPORT_SIZE", "[30, 50]"]).values)
    image = DetectionInput(transform)(Image.fromarray(np.zeros((20, 31, 3), np.uint8)), None).image
    assert image.shape == (3, 30, 50)


def test_each_key_sets_its_part_of_the_transform():
    words = "DATA.SHORTEST_SIDES [40,64] DATA.LONGEST_SIDE 99 DATA.HORIZONTAL_FLIP 0.25 DATA.CROP_PROBABILITY 0.75"
    words += " DATA.CROP_SHORTEST_SIDES [31,37] DATA.CROP_SIDES [17,29] TRAIN.COLOR_JITTER 0.125 DATA.SSD_AUGMENT true"
    words += " DATA.RESIZE_TO_SQUARE true DATA.NO_AUGMENT_EPOCHS 3"
    found = build_training_transform(load(["-cfg=detr_shapes", *words.split()]).values)
    expected = ((40, 64), 99, 0.25, 0.75, (31, 37), (17, 29), 0.125, True, True, 3, None)
    assert dataclasses.astuple(found) == expected
    words = "DATA.RESIZE_TO_SQUARE true DATA.SHORTEST_SIDES [64] DATA.SCALE_JITTER [0.5,2]"
    assert build_training_transform(load(["-cfg=detr_shapes", *words.split()]).values).scales == (0.5, 2)


def test_training_images_become_squares_whose_boxes_follow():
    config = load(["-cfg=detr_shapes", "DATA.RESIZE_TO_SQUARE", "True", "DATA.SHORTEST_SIDES", "[40, 64]"]).values
    transform = build_training_transform(config)
    stored = SHAPES.size(3)
    assert stored[0] != stored[1]
    sides = set()
    for seed in range(8):
        view, masks = make_view(3)
        resized = transform(view, np.random.default_rng(seed))
        assert resized.size[0] == resized.size[1]
        sides.add(resized.size[0])
        for box, which in zip(resized.boxes, resized.objects):
            assert np.abs(edges(resized.mask(masks[which])) - box).max() <= 2
    assert sides == {40, 64} and largest_side(config.DATA, np.array([stored])) == 64


def test_levels_between_whole_ones_reach_the_batch():
    config = load(["TASK", "detection", "-cfg=mask_rcnn_resnet50_fpn_coco", "DATA.EVAL_SHORTEST_SIDE", "30"]).values
    transform = build_evaluation_transform(config)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 31, 3), dtype=np.uint8)
    samples = [DetectionInput(transform)(Image.fromarray(one), None) for one in (pixels, pixels[:15])]
    images = collate(samples)["images"]
    assert images.dtype == np.float32 and images.shape == (2, 3, 30, 62) and (images[0, :, :, 46:] == 0).all()
    assert (images % 1 != 0).any()
