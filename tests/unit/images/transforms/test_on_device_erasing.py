"""Random erasing: the distribution of its boxes, exactly what is filled, and with what."""

import math
import random

import numpy as np
import paddle
import pytest
from support.networks.timm_peer import kolmogorov_distance, timm_module

from paddlevit_dist.images.transforms.on_device import BOXES, COLORS, ROWS, RandomErasing, box_masks


def rng(seed=0):
    return np.random.default_rng(seed)


def drawn(count, erasing, shape=(3, 4000, 3000)):
    """Boxes (count, max_count, 4) of an image so large that rounding does not show."""
    generator = rng(3)
    return np.stack([erasing.draw(shape, generator)[BOXES] for _ in range(count)])


def filled(erasing, boxes, images, colors=None):
    drawn = [{BOXES: np.asarray(entry, dtype=np.int32)} for entry in boxes]
    for entry, color in zip(drawn, colors if colors is not None else []):
        entry[COLORS] = color
    batch = {name: paddle.to_tensor(array) for name, array in erasing.collate(drawn).items()}
    return erasing.fill(paddle.to_tensor(images), batch).numpy()


def test_masks_are_one_exactly_inside():
    boxes = np.array([[1, 2, 4, 5], [0, 0, 0, 0], [0, 0, 6, 7], [5, 6, 6, 7]], dtype=np.int32)
    expected = np.zeros((4, 1, 6, 7), dtype=bool)
    for mask, (top, left, bottom, right) in zip(expected, boxes):
        mask[0, top:bottom, left:right] = True
    np.testing.assert_array_equal(box_masks(paddle.to_tensor(boxes), 6, 7).numpy(), expected, strict=True)


def test_erasing_happens_as_often_as_asked_and_area_aspect_and_place_are_as_stated():
    # Boxes that always fit, so that closed forms are exact.
    erasing = RandomErasing(0.3, area=(0.02, 0.2), aspect=(0.5, 2.0))
    boxes = drawn(9000, erasing)[:, 0]
    erased = boxes.any(axis=1)
    assert abs(erased.mean() - 0.3) < 4 * math.sqrt(0.21 / 9000)
    top, left, bottom, right = boxes[erased].T
    height, width = bottom - top, right - left
    area, log_aspect = height * width / (4000 * 3000), np.log(height / width)
    assert kolmogorov_distance(area, lambda a: np.clip((a - 0.02) / 0.18, 0, 1)) < 1.95
    assert kolmogorov_distance(log_aspect, lambda a: np.clip((a + math.log(2)) / (2 * math.log(2)), 0, 1)) < 1.95
    assert kolmogorov_distance(top / (4000 - height), lambda t: t) < 1.95
    assert kolmogorov_distance(left / (3000 - width), lambda t: t) < 1.95


def test_counts_are_uniform_and_share_the_area():
    boxes = drawn(3000, RandomErasing(1.0, max_count=3, area=(0.1, 0.1), aspect=(1.0, 1.0)), (3, 1000, 1000))
    counts = (boxes[:, :, 2] > 0).sum(axis=1)
    for count in (1, 2, 3):
        assert abs((counts == count).mean() - 1 / 3) < 4 * math.sqrt(2 / 9 / 3000)
        sides = boxes[counts == count][:, :count]
        assert ((sides[..., 2] - sides[..., 0]) == round(math.sqrt(0.1 / count) * 1000)).all()


def test_boxes_are_smaller_than_the_image_and_may_fail_to_fit():
    boxes = drawn(2000, RandomErasing(1.0, area=(0.5, 1.0)), (3, 20, 12))[:, 0]
    assert (boxes[:, 2] <= 20).all() and (boxes[:, 3] <= 12).all() and (boxes >= 0).all()
    assert (boxes[:, 2] - boxes[:, 0] < 20).all() and (boxes[:, 3] - boxes[:, 1] < 12).all()
    low, high = boxes[boxes.any(axis=1)][:, :2].min(axis=0), boxes.max(axis=0)[2:]
    assert low.tolist() == [0, 0] and high.tolist() == [20, 12]  # up to the borders
    never = drawn(20, RandomErasing(1.0, area=(1.0, 1.0), aspect=(1.0, 1.0)), (3, 8, 8))
    assert not never.any()
    generator, expected = rng(), rng()
    RandomErasing(1.0, area=(1.0, 1.0), aspect=(1.0, 1.0)).draw((3, 8, 8), generator)
    expected.random(1 + 2 * 10)  # whether, then area and aspect of ten boxes
    assert generator.random() == expected.random()


@pytest.mark.parametrize("count", [1, 3])
def test_timm_erases_areas_of_the_same_distribution(count):
    torch = pytest.importorskip("torch")
    timm = timm_module("random_erasing")
    random.seed(0)
    theirs_of = timm.RandomErasing(0.7, mode="const", max_count=count, device="cpu")
    theirs = []
    for _ in range(1500):
        image = torch.ones(1, 32, 40)
        theirs_of(image)
        theirs.append(float((image == 0).sum()) / (32 * 40))
    masks = np.zeros((1500, 32, 40))
    boxes = drawn(1500, RandomErasing(0.7, "const", count), (1, 32, 40))
    for mask, rows in zip(masks, boxes):
        for top, left, bottom, right in rows:
            mask[top:bottom, left:right] = 1
    ours = masks.mean(axis=(1, 2))
    grid = np.linspace(0, 1, 400)
    distance = np.abs(
        np.searchsorted(np.sort(ours), grid, "right") - np.searchsorted(np.sort(theirs), grid, "right")
    ).max()
    assert distance / 1500 * math.sqrt(1500 / 2) < 1.95  # Kolmogorov-Smirnov of two samples


def test_only_the_boxes_are_filled_in_each_mode():
    images = rng(1).standard_normal((4, 3, 10, 12)).astype(np.float32)
    boxes = np.zeros((4, 2, 4), dtype=np.int32)
    boxes[0, 0] = 1, 2, 7, 9
    boxes[1] = [[0, 0, 4, 4], [2, 2, 10, 12]]  # they overlap
    boxes[3, 1] = 9, 11, 10, 12
    inside = np.zeros((4, 1, 10, 12), dtype=bool)
    for image in range(4):
        for top, left, bottom, right in boxes[image]:
            inside[image, 0, top:bottom, left:right] = True
    inside = np.broadcast_to(inside, images.shape)
    colors = rng(2).standard_normal((4, 2, 3)).astype(np.float32)

    const = filled(RandomErasing(1.0, "const", 2), boxes, images)
    np.testing.assert_array_equal(const, np.where(inside, 0, images), strict=True)
    paddle.seed(5)
    pixel = filled(RandomErasing(1.0, "pixel", 2), boxes, images)
    np.testing.assert_array_equal(pixel[~inside], images[~inside], strict=True)
    assert (pixel[inside] != images[inside]).all() and len(np.unique(pixel[inside])) > 0.99 * inside.sum()
    rand = filled(RandomErasing(1.0, "rand", 2), boxes, images, colors)
    np.testing.assert_array_equal(rand[~inside], images[~inside], strict=True)
    np.testing.assert_array_equal(
        rand[0, :, 1:7, 2:9], np.broadcast_to(colors[0, 0, :, None, None], (3, 6, 7)), strict=True
    )
    np.testing.assert_array_equal(
        rand[1, :, 2:, 2:], np.broadcast_to(colors[1, 1, :, None, None], (3, 8, 10)), strict=True
    )
    np.testing.assert_array_equal(rand[1, :, 0, :4], np.broadcast_to(colors[1, 0, :, None], (3, 4)), strict=True)


def test_a_batch_names_the_images_that_lose_something_and_at_least_one():
    erasing = RandomErasing(0.3, "rand", 2)
    drawn = [erasing.draw((3, 16, 16), rng(seed)) for seed in range(20)]
    batch = erasing.collate(drawn)
    erased = [row for row in range(20) if drawn[row][BOXES].any()]
    assert batch[ROWS].tolist() == erased and 0 < len(erased) < 20
    for position, row in enumerate(erased):
        np.testing.assert_array_equal(batch[BOXES][position], drawn[row][BOXES], strict=True)
        np.testing.assert_array_equal(batch[COLORS][position], drawn[row][COLORS], strict=True)
    whole = [entry for entry in drawn if not entry[BOXES].any()]
    batch = erasing.collate(whole)
    assert batch[ROWS].tolist() == [0] and not batch[BOXES].any()
    images = rng(1).standard_normal((len(whole), 3, 16, 16)).astype(np.float32)
    tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
    np.testing.assert_array_equal(erasing.fill(paddle.to_tensor(images), tensors).numpy(), images, strict=True)


def test_noise_is_standard_normal_and_follows_the_step_seed():
    erasing = RandomErasing(1.0, "pixel")
    images = np.zeros((2, 3, 64, 72), dtype=np.float32)
    boxes = np.array([[[0, 0, 63, 71]]] * 2)
    paddle.seed(1)
    first = filled(erasing, boxes, images)
    second = filled(erasing, boxes, images)
    paddle.seed(1)
    np.testing.assert_array_equal(filled(erasing, boxes, images), first, strict=True)
    assert (first != second).any()
    values = first[:, :, :63, :71].ravel()
    normal = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))
    assert kolmogorov_distance(values, normal) < 1.95
    assert abs(np.corrcoef(first[0].ravel(), first[1].ravel())[0, 1]) < 4 / math.sqrt(first[0].size)


def test_colors_are_standard_normal_per_box_and_channel():
    erasing, generator = RandomErasing(1.0, "rand", 2), rng(9)
    colors = np.stack([erasing.draw((3, 16, 16), generator)[COLORS] for _ in range(500)])
    assert colors.shape == (500, 2, 3) and colors.dtype == np.float32
    normal = np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))
    assert kolmogorov_distance(colors.ravel(), normal) < 1.95


@pytest.mark.parametrize("mode", ["const", "pixel", "rand"])
def test_the_same_generator_draws_the_same(mode):
    erasing = RandomErasing(0.9, mode, 3)
    first, second = (erasing.draw((3, 20, 20), rng(4)) for _ in range(2))
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], strict=True)
