"""Windows cover an image, and an object that several passes see is found once at its place."""

import itertools

import numpy as np
import pytest

from paddlevit_dist.images.detection import windows
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.windows import ImagePart, WindowPlan, merge_images, merge_parts
from paddlevit_dist.images.run_lengths import decode, encode


def see(parts, boxes, labels, scores=None, with_masks=False):
    """What a perfect detector finds in each part: objects clipped to it, if 4 pixels of each side are visible.

    A clipped object has a score nearly as high as a whole one; scores differ between parts.
    """
    results, random = [], np.random.default_rng(0)
    for part in parts:
        found, kept, masks, values = [], [], [], []
        for number, (left, top, right, low) in enumerate(boxes):
            box = np.array([left - part.left, top - part.top, right - part.left, low - part.top], float)
            box = np.clip(box, 0, [part.width, part.height] * 2)
            if (box[2:] - box[:2] < 4).any():
                continue
            if part.is_mirrored:
                box = box[[2, 1, 0, 3]] * [-1, 1, -1, 1] + [part.width, 0, part.width, 0]
            mask = np.zeros((part.height, part.width), np.uint8)
            mask[int(box[1]) : int(box[3]), int(box[0]) : int(box[2])] = 1
            found.append(box)
            kept.append(labels[number])
            masks.append(encode(mask))
            values.append(random.uniform(0.6, 1.0) if scores is None else scores[number])
        results.append(
            DetectedObjects(
                np.array(found, np.float32).reshape(-1, 4),
                np.array(values, np.float32),
                np.array(kept, np.int64),
                masks if with_masks else None,
            )
        )
    return results


@pytest.mark.parametrize("size", [(100, 130), (64, 56), (40, 200), (33, 50), (65, 56), (64, 57)])
@pytest.mark.parametrize("overlap", [0.0, 0.25, 0.5])
def test_windows_cover_every_pixel_and_overlap_enough(size, overlap):
    whole, *windows = WindowPlan((64, 56), overlap, False).find_parts(size)
    assert whole == (0, 0, *size, False)
    assert bool(windows) == (size[0] > 64 or size[1] > 56)
    covered = np.zeros(size, int)
    for top, left, height, width, _ in windows:
        assert (height, width) == (min(64, size[0]), min(56, size[1]))
        assert 0 <= top <= size[0] - height and 0 <= left <= size[1] - width
        covered[top : top + height, left : left + width] += 1
    assert not windows or covered.min() >= 1
    for starts, side in (({part.top for part in windows}, 64), ({part.left for part in windows}, 56)):
        assert all(after - before <= side * (1 - overlap) for before, after in itertools.pairwise(sorted(starts)))
    mirrored = WindowPlan((64, 56), overlap, True).find_parts(size)
    assert mirrored[::2] == [whole, *windows] and all(part.is_mirrored for part in mirrored[1::2])


@pytest.mark.parametrize("mirrors", [False, True])
def test_an_object_at_any_corner_or_border_of_a_window_is_found_once_at_its_place(mirrors):
    size, plan = (110, 160), WindowPlan((64, 80), 0.25, mirrors)
    parts, rows, columns = plan.find_parts(size), set(), set()
    for part in parts[1:]:
        rows |= {part.top, part.top + part.height}
        columns |= {part.left, part.left + part.width}
    places = [(row, column) for row in rows for column in columns]
    for (row, column), (down, across) in itertools.product(places, [(0, 0), (-6, -6), (-12, -12), (-12, 0), (-3, -9)]):
        top, left = np.clip(row + down, 0, size[0] - 12), np.clip(column + across, 0, size[1] - 12)
        box = [float(left), float(top), float(left + 12), float(top + 12)]
        results = see(parts[1 + mirrors :], [box], [2])
        merged = merge_parts(results, parts[1 + mirrors :], size, 0.5)
        assert len(merged.scores) == 1 and merged.labels.tolist() == [2], (box, merged)
        np.testing.assert_allclose(merged.boxes[0], box, atol=1e-4)


def test_objects_of_different_classes_or_of_one_pass_are_no_duplicates():
    parts = [ImagePart(0, 0, 80, 80), ImagePart(0, 0, 80, 80, is_mirrored=True)]
    boxes, labels = [[10, 10, 30, 30], [12, 10, 32, 30], [10, 10, 30, 30]], [0, 0, 1]
    merged = merge_parts(see(parts, boxes, labels), parts, (80, 80), 0.5)
    assert sorted(zip(merged.labels.tolist(), merged.boxes[:, 0].tolist())) == [(0, 10.0), (0, 12.0), (1, 10.0)]
    assert (np.diff(merged.scores) <= 0).all()


def test_an_object_larger_than_a_window_is_the_whole_images():
    size, plan = (64, 200), WindowPlan((64, 48), 0.25, False)
    parts = plan.find_parts(size)
    results = see(parts, [[5, 5, 195, 60]], [0], scores=[0.9])
    results[0] = results[0]._replace(scores=np.array([0.5], np.float32))  # it is seen worse, but whole
    merged = merge_parts(results, parts, size, 0.5)
    np.testing.assert_allclose(merged.boxes, [[5, 5, 195, 60]])


def brute_suppress(items, limit):
    """``items``: (box, score, label, pass, is_cut); the indices that remain, by definition."""
    order = sorted(range(len(items)), key=lambda i: -items[i][1] * (0.5 if items[i][4] else 1.0))
    kept = []
    for index in order:
        box, _, label, origin, is_cut = items[index]
        area = (box[2] - box[0]) * (box[3] - box[1])
        for other in kept:
            one, _, its_label, its_origin, _ = items[other]
            if its_label != label or its_origin == origin:
                continue
            across = max(0.0, min(one[2], box[2]) - max(one[0], box[0]))
            shared = across * max(0.0, min(one[3], box[3]) - max(one[1], box[1]))
            union = area + (one[2] - one[0]) * (one[3] - one[1]) - shared
            if shared > limit * union or (is_cut and shared > limit * area):
                break
        else:
            kept.append(index)
    return sorted(kept)


@pytest.mark.parametrize("seed", range(5))
def test_suppression_is_as_defined(seed):
    random, size = np.random.default_rng(seed), (100, 90)
    parts = WindowPlan((60, 52), 0.3, True).find_parts(size)
    results, items = [], []
    for number, part in enumerate(parts):
        low = random.integers(0, 40, (25, 2))
        boxes = np.concatenate([low, low + random.integers(5, 21, (25, 2))], axis=1).astype(np.float32)
        scores, labels = random.permutation(1000)[:25].astype(np.float32) / 1000, random.integers(0, 2, 25)
        results.append(DetectedObjects(boxes, scores, labels))
        for box, score, label in zip(boxes.astype(float).tolist(), scores.tolist(), labels.tolist()):
            left, top, right, below = box
            if part.is_mirrored:
                left, right = part.width - right, part.width - left
            across, down = 0.02 * part.width, 0.02 * part.height
            is_cut = (part.left > 0 and left < across) or (part.top > 0 and top < down)
            is_cut |= part.left + part.width < 90 and right > part.width - across
            is_cut |= part.top + part.height < 100 and below > part.height - down
            placed = [left + part.left, top + part.top, right + part.left, below + part.top]
            items.append((placed, score, label, number, is_cut))
    merged = merge_parts(results, parts, size, 0.4)
    kept = brute_suppress(items, 0.4)
    assert 0 < len(kept) < len(items)
    expected = sorted((-np.float32(items[i][1]), items[i][2], *items[i][0]) for i in kept)
    found = sorted(
        (-s, label, *box) for s, label, box in zip(merged.scores, merged.labels.tolist(), merged.boxes.tolist())
    )
    np.testing.assert_allclose(np.array(found, float), np.array(expected, float), atol=1e-4)


def test_masks_move_with_their_windows_and_images_of_a_batch_stay_apart():
    plan, sizes = WindowPlan((40, 32), 0.25, True), [(60, 70), (30, 30)]
    boxes = [[[45, 33, 57, 49]], [[3, 4, 20, 22]]]
    results, rows = [], []
    for image, size in enumerate(sizes):
        parts = plan.find_parts(size)
        results += see(parts, boxes[image], [image], with_masks=True)
        rows += [(image, *part) for part in parts]
    merged = merge_images(results, np.array(rows, np.int64), np.array(sizes), 0.5)
    for detections, size, ((left, top, right, low),) in zip(merged, sizes, boxes):
        (mask,) = detections.masks
        expected = np.zeros(size, np.uint8)
        expected[top:low, left:right] = 1
        np.testing.assert_array_equal(decode(mask, *size), expected, strict=True)


def test_no_detection_at_all():
    parts = WindowPlan((40, 40), 0.25, False).find_parts((60, 60))
    assert len(merge_parts(see(parts, [], []), parts, (60, 60), 0.5).scores) == 0


@pytest.mark.parametrize(
    ("size", "image", "parts"),
    [
        ((20, 60), (50, 100), [(top, left, 20, 60) for top in (0, 15, 30) for left in (0, 40)]),
        ((60, 20), (50, 50), [(0, left, 50, 20) for left in (0, 15, 30)]),
        ((20, 60), (20, 60), []),
        ((20, 60), (21, 60), [(0, 0, 20, 60), (1, 0, 20, 60)]),
        (None, (500, 500), []),
    ],
)
def test_windows_need_not_be_square(size, image, parts):
    whole, *windows = WindowPlan(size, 0.25, False).find_parts(image)
    assert whole == (0, 0, *image, False) and [tuple(part[:4]) for part in windows] == parts


def test_windows_that_overlap_wholly_move_by_a_pixel():
    assert windows.find_starts(7, 4, 0.9) == [0, 1, 2, 3] and windows.find_starts(8, 4, 0.5) == [0, 2, 4]


def test_the_parts_are_told_after_a_score_and_in_exports():
    plan = WindowPlan((20, 60), 0.25, True)
    merge = "merged by class-wise suppression at IoU 0.5"
    assert plan.describe(0.5) == (
        f"images whole and in windows of 20 x 60 pixels that overlap by 0.25, mirrored and not, {merge}"
    )
    assert WindowPlan(None, 0.25, True).describe(0.5) == f"images mirrored and not, {merge}"
    about = plan.to_description(0.5)
    assert (about["window"], about["overlap"], about["mirrored"], about["iou"]) == ([20, 60], 0.25, True, 0.5)
    assert about["merge"].endswith("are also suppressed where a better box covers more than 0.5 of them")
    assert WindowPlan(None, 0.1, False).to_description(0.6)["window"] is None


def test_masks_are_kept_only_if_all_passes_have_them_and_equal_scores_stay_in_order():
    parts = [ImagePart(0, 0, 60, 60), ImagePart(0, 0, 60, 60)]
    boxes = [[0, 0, 10, 10], [20, 20, 30, 30], [40, 40, 50, 50]]
    results = see(parts, boxes, [2, 0, 1], scores=[0.5] * 3, with_masks=True)
    merged = merge_parts(results, parts, (60, 60), 0.5)
    assert merged.labels.tolist() == [2, 0, 1] and [decode(mask, 60, 60).sum() for mask in merged.masks] == [100] * 3
    for mask, (left, top, *_) in zip(merged.masks, boxes):
        assert decode(mask, 60, 60)[top, left] == 1
    results[1] = results[1]._replace(masks=None)
    assert merge_parts(results, parts, (60, 60), 0.5).masks is None


@pytest.mark.parametrize(
    ("part", "box", "is_cut"),
    [
        (ImagePart(1, 0, 30, 40), [5, 0.9, 20, 20], True),  # a pixel, where 2 % of the window are less
        (ImagePart(1, 0, 30, 40), [5, 1, 20, 20], False),
        (ImagePart(0, 0, 30, 40), [5, 0, 20, 20], False),
        (ImagePart(0, 1, 30, 40), [0.9, 5, 20, 20], True),
        (ImagePart(0, 1, 30, 40), [1, 5, 20, 20], False),
        (ImagePart(0, 0, 30, 40), [5, 5, 20, 29.1], True),
        (ImagePart(0, 0, 30, 40), [5, 5, 20, 29], False),
        (ImagePart(0, 0, 30, 40), [5, 5, 39.1, 20], True),
        (ImagePart(0, 0, 30, 40), [5, 5, 39, 20], False),
        (ImagePart(70, 60, 30, 40), [5, 5, 40, 30], False),
        (ImagePart(0, 1, 30, 40, True), [20, 5, 39.1, 20], True),  # seen mirrored, it lies at the left
        (ImagePart(0, 1, 30, 40, True), [0.5, 5, 20, 20], True),
        (ImagePart(0, 60, 30, 40, True), [0.5, 5, 20, 20], False),
        (ImagePart(1, 0, 60, 90), [5, 1.5, 20, 20], False),  # 2 % of 60 rows are 1.2 pixels, of 90 columns 1.8
        (ImagePart(0, 1, 60, 90), [1.5, 5, 20, 20], True),
        (ImagePart(0, 0, 60, 90), [5, 5, 20, 58.5], False),
        (ImagePart(0, 0, 60, 90), [5, 5, 88.5, 20], True),
    ],
)
def test_a_box_is_cut_where_it_ends_near_the_border_of_a_window_inside_of_the_image(part, box, is_cut):
    result = DetectedObjects(np.array([box], np.float32), np.array([0.5], np.float32), np.array([0]))
    placed, cut = windows._place(result, part, (100, 100))
    assert cut.tolist() == [is_cut] and placed.boxes.shape == (1, 4)


def test_detections_of_equal_scores_stay_in_their_order_whatever_their_classes():
    random = np.random.default_rng(0)
    scores, labels = (random.integers(1, 4, 60) / 4).astype(np.float32), random.integers(0, 3, 60)
    boxes = np.arange(60)[:, None] * 10 + np.array([0.0, 0, 8, 8])
    result = DetectedObjects(boxes.astype(np.float32), scores, labels)
    merged = merge_parts([result], [ImagePart(0, 0, 700, 700)], (700, 700), 0.5)
    order = sorted(range(60), key=lambda place: -scores[place])
    np.testing.assert_array_equal(merged.boxes, result.boxes[order])
    assert merged.labels.tolist() == labels[order].tolist()
