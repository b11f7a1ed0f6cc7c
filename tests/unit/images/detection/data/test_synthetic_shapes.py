"""Drawn images with boxes: the same everywhere, boxes and masks those of the visible pixels."""

import hashlib
import pickle

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data.drawn_shapes import draw_shapes, render_image
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.run_lengths import decode, find_mask_runs
from paddlevit_dist.images.settings import CATEGORIES


def shapes(split="train", **options):
    return SyntheticShapes(None, split, None, **options)


def test_the_same_images_are_drawn_on_every_machine_and_by_every_version_of_numpy():
    for number, sides, per_image, expected in (
        (12, (20, 48), (0, 6), "a3af3abf338be778"),
        (60, (12, 20), (5, 9), "5669b149df697e8f"),  # crowded: many are placed again, or not at all
    ):
        digest = hashlib.sha256()
        dataset = shapes(num_train=number, sides=sides, per_image=per_image, categories=CATEGORIES)
        for index in range(number):
            image, annotations = dataset.read(index)
            digest.update(np.asarray(image).tobytes() + annotations.boxes.astype("<f8").tobytes())
            digest.update(repr((image.size, annotations.labels.tolist(), annotations.masks)).encode())
        assert digest.hexdigest()[:16] == expected


def test_keys_say_what_is_drawn():
    words = "TRAIN 7 VAL 5 SIDES [20,31] OBJECTS_PER_IMAGE [2,3] CATEGORIES [ring,bar]".split()
    words = [f"DATA.SHAPES.{word}" if word.isalpha() or "_" in word else word for word in words]
    config = load(["-cfg=detr_shapes", *words]).values
    for split, number in (("train", 7), ("val", 5)):
        opened = SyntheticShapes.open(config, split, None)
        own = shapes(split, num_train=7, num_val=5, sides=(20, 31), per_image=(2, 3), categories=("ring", "bar"))
        assert opened.summary() == own.summary() == f"{number} drawn images of 2 to 3 shapes each: ring, bar"
        assert opened.describe(3) == f"synthetic image {split}_00003 (seed 0, drawing 1)"
        assert opened.read(number - 1)[0].tobytes() == own.read(number - 1)[0].tobytes()
        with pytest.raises(IndexError, match=f"image {number} is outside 0..{number - 1}"):
            opened.read(number)


def test_boxes_areas_and_masks_are_those_of_the_visible_pixels():
    dataset = shapes(sides=(32, 72), per_image=(2, 5), categories=CATEGORIES)
    for index in range(30):
        image, annotations = dataset.read(index)
        assert (image.size[1], image.size[0]) == dataset.size(index)
        masks = np.array([decode(mask, *dataset.size(index)) for mask in annotations.masks])
        assert masks.sum(axis=0).max() <= 1  # one shape in front at each pixel
        for mask, box, area in zip(masks, annotations.boxes, annotations.areas):
            rows, columns = np.nonzero(mask)
            edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            assert (edges[0], edges[1], edges[2] - edges[0], edges[3] - edges[1]) == tuple(box)
            assert area == len(rows)


def test_every_shape_stays_visible_and_differs_from_its_background():
    for number in range(20):
        drawn = draw_shapes((7, number), (64, 64), (3, 6), CATEGORIES)
        assert all(mask.sum() >= 20 for mask in drawn.masks)
        pixels = render_image(drawn).astype(int)
        around = ~np.any(drawn.masks, axis=0)
        for mask in drawn.masks:
            assert np.abs(pixels[mask].mean(axis=0) - pixels[around].mean(axis=0)).sum() > 30


def test_splits_and_seeds_share_no_image_and_more_images_come_at_the_end():
    few, many = shapes(num_train=3), shapes(num_train=300)
    assert [np.asarray(few.read(i)[0]).tobytes() for i in range(3)] == [
        np.asarray(many.read(i)[0]).tobytes() for i in range(3)
    ]
    all_images = {
        np.asarray(dataset.read(index)[0]).tobytes()
        for dataset in (few, shapes("val"), shapes(seed=1))
        for index in range(3)
    }
    assert len(all_images) == 9
    with pytest.raises(IndexError):
        few.read(3)
    with pytest.raises(UserError, match="has no split 'test'"):
        shapes("test")


def test_every_category_occurs_and_labels_follow_the_order_of_the_names():
    dataset = shapes(categories=("ring", "bar"), per_image=(1, 1))
    assert dataset.class_names == ["ring", "bar"] and dataset.category_ids == (1, 2)
    found = {}
    for index in range(20):
        annotations = dataset.annotations(index)
        mask = decode(annotations.masks[0], *dataset.size(index))
        x, y, width, height = annotations.boxes[0].astype(int)
        found.setdefault(int(annotations.labels[0]), []).append(mask[y + height // 2, x + width // 2])
    assert set(found[0]) == {0} and set(found[1]) == {1}  # a ring has a hole in its middle


def test_its_pickle_is_small_and_reads_the_same():
    dataset = shapes()
    pickled = pickle.dumps(dataset)
    assert len(pickled) <= 1000
    again = pickle.loads(pickled)
    assert again.read(5)[0].tobytes() == dataset.read(5)[0].tobytes()
    assert len(again) == 2000 and again.image_ids[0] == again.image_id(0) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_run_lengths_of_any_mask_lead_back_to_it(first):
    mask = np.random.default_rng(0).random((5, 7)) < 0.5
    mask[0, 0] = first
    assert np.array_equal(decode(find_mask_runs(mask).listed(), 5, 7), mask)
    for value in (False, True):
        assert np.array_equal(decode(find_mask_runs(np.full((3, 2), value)).listed(), 3, 2), np.full((3, 2), value))
