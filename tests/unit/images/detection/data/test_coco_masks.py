"""All masks of a file are checked when it is opened: their form, lengths and sizes."""

import json

import numpy as np
import pytest
from support.files.coco_writer import BOX, annotation, refused_by, write_coco, write_image
from support.refusals import refusal_of

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.coco_outlines import CocoOutlines
from paddlevit_dist.images.detection.data.samples import open_samples

SQUARE = [[2, 3, 12, 3, 12, 11, 2, 11]]
RUNS = {"size": [20, 30], "counts": [45, 5, 550]}
BROKEN = {  # what cannot be the mask of an image of 20 x 30 pixels, and why
    "turned": ({"size": [30, 20], "counts": [45, 5, 550]}, "is of 30 x 20 pixels, the image of 20 x 30"),
    "too short": ({"size": [20, 30], "counts": [45, 5]}, "has run lengths of 50 pixels for an image of 20 x 30"),
    "cut off": ({"size": [20, 30], "counts": "_o"}, "has run lengths that are not COCO's compressed form"),
    "pairs": ([[[2, 3], [12, 3], [12, 11]]], "has a polygon that is not a list of numbers x0, y0, x1, y1"),
    "flat": ([2, 3, 12, 3], "has a polygon that is not a list of numbers"),
    "far": ([[2, 3, 12, 3, 1e9, 11]], "has a polygon with a corner that is not a number, or far outside of any image"),
    "words": ([["a", "b", "c", "d", "e", "f"]], "has a polygon that is not a list of numbers"),
    "a file": ("mask.png", "is neither a list of polygons nor run lengths"),
    "two sizes": ([RUNS, {"size": [30, 20], "counts": [600]}], "is of 30 x 20 pixels, the image of 20 x 30"),
}


def write(root, shapes, **options):
    """Write objects of these segmentations, two in each image."""
    objects = [annotation(n, 11 + n // 2, BOX, segmentation=shape) for n, shape in enumerate(shapes)]
    return write_coco(root, objects, **options)


def open_split(root, cache, with_masks=True, split="train", *words):
    values = load(["-cfg=mask_rcnn_shapes", "-dataset=coco", f"-data_path={root}", *words]).values
    return open_samples(values, split, cache, is_training=split == "train", with_masks=with_masks)


@pytest.mark.parametrize("kind", BROKEN)
def test_the_first_mask_that_cannot_be_used_is_named_with_its_image(tmp_path, cache, kind):
    shape, reason = BROKEN[kind]
    for split in ("train2017", "val2017"):
        write(tmp_path, [SQUARE, RUNS, SQUARE, shape, shape], split=split)
    for split in ("train", "val"):
        message = refusal_of(open_split, tmp_path, cache, True, split)
        assert message.startswith(f"{split}: 2 images with a mask that cannot be used, such as {tmp_path}")
        assert f"2.png: the segmentation of its object 3 {reason}" in message
        assert ("DATA.ON_INVALID_SAMPLE skip" in message) == (split == "train")
    assert "object 3" in refusal_of(CocoOutlines, Coco(str(tmp_path), "train", cache))
    samples = open_split(tmp_path, cache, False)  # a detector of boxes has no use for masks
    assert len(samples) == 3
    said = [line for line in samples.dataset.notices if "cannot be used" in line]
    assert len(said) == 1 and "has 2 objects with a mask that cannot be used, such as 3 of 2.png, whose" in said[0]


def test_images_with_such_masks_are_left_out_where_the_key_says_so(tmp_path, cache):
    write(tmp_path, [SQUARE, RUNS, SQUARE, BROKEN["turned"][0], RUNS])
    samples = open_split(tmp_path, cache, True, "train", "DATA.ON_INVALID_SAMPLE", "skip")
    names = [samples.dataset.describe(index)[-5:] for index in range(len(samples))]
    assert names == ["1.png", "3.png"]
    for index in range(2):
        sample = samples.sample(index, np.random.default_rng(0))
        assert sample.masks.any(axis=(1, 2)).all()
    (said,) = [line for line in samples.notices if "excluded" in line]
    assert said.startswith("1 training image with a mask that cannot be used excluded (DATA.ON_INVALID_SAMPLE skip)")
    write(tmp_path, [BROKEN["turned"][0]] * 6)
    assert "3 images with a mask" in refusal_of(
        open_split, tmp_path, cache, True, "train", "DATA.ON_INVALID_SAMPLE", "skip"
    )


def test_run_lengths_are_compared_with_measured_sizes(tmp_path, cache):
    images = [{"id": 11, "file_name": "1.png"}, {"id": 12, "file_name": "2.png"}]
    for number, (height, width) in enumerate([(20, 30), (30, 20)], 1):
        write_image(tmp_path / "train2017" / f"{number}.png", height, width)
    objects = [annotation(n, 11 + n // 2, BOX, segmentation=RUNS) for n in range(3)]
    write_coco(tmp_path, objects, images=images)
    assert Coco(str(tmp_path), "train", cache).find_broken_masks() == [1]


def test_polygons_without_points_are_no_mask_and_stop_no_other_image(tmp_path, cache):
    path = write(tmp_path, [SQUARE, [[]], [[], *SQUARE], SQUARE])
    content = json.loads(path.read_text())
    content["annotations"].append(annotation(9, 13, None, segmentation=[[], []]))
    path.write_text(json.dumps(content))
    samples = open_split(tmp_path, cache)
    dataset = samples.dataset
    assert [dataset.find_masked(index).tolist() for index in range(3)] == [[True, False], [True, True], [False]]
    assert dataset.annotations(2).has_area.tolist() == [False]
    (said,) = [line for line in dataset.notices if "without points" in line]
    assert said.endswith("has 2 objects with polygons without points, as without a mask, such as 1 of 1.png")
    sample = samples.sample(1, np.random.default_rng(0))
    assert len(sample.boxes) == 2 and sample.masks.any(axis=(1, 2)).all()


def test_polygons_that_cover_nothing_are_told(tmp_path, cache):
    line, point, flat = [2.0, 3.0, 9.0, 8.0], [4.0, 5.0], [3.0, 4.0, 3.0, 9.0, 3.0, 5.5, 3.0, 4.0]
    write(tmp_path, [SQUARE, [line], [point, line], [line, *SQUARE], [flat], [flat, line]])
    dataset = open_split(tmp_path, cache).dataset
    said = [notice.partition("has 2 objects with polygons ")[2] for notice in dataset.notices]
    assert "of fewer than three points, whose mask is empty, such as 1 of 1.png" in said
    assert "whose points are on a line, whose mask is empty, such as 4 of 3.png" in said


@pytest.mark.parametrize("crowds", [0, 1, 4])
def test_crowds_are_counted_and_the_reason_why_nothing_is_learned_is_given(tmp_path, cache, crowds):
    objects = [annotation(n, 11 + n // 2, BOX, iscrowd=int(n < crowds)) for n in range(4)]
    write_coco(tmp_path, objects)
    dataset = Coco(str(tmp_path), "train", cache)
    assert dataset.count_crowds() == super(Coco, dataset).count_crowds() == crowds
    assert ("not learned" in dataset.summary()) == (crowds > 0)
    if crowds < 4:
        assert len(open_split(tmp_path, cache, False)) == 3
        return
    message = refusal_of(open_split, tmp_path, cache, False)
    assert "its 4 objects are 4 crowds, not learned (iscrowd 1" in message and "set iscrowd to 0" in message


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], "its annotations have none; is this the annotated folder, or was it exported before labeling?"),
        ([annotation(1, 11, [1, 1, 0, 5])], "its 1 object is 1 box without area; expected boxes with an area"),
        (
            [annotation(1, 11, [1, 1, 0, 5]), annotation(2, 11, BOX, iscrowd=1), annotation(3, 12, BOX, iscrowd=1)],
            "its 3 objects are 2 crowds, not learned (iscrowd 1 in COCO's files, difficult in VOC's), 1 box",
        ),
    ],
)
def test_a_file_without_an_object_to_learn_is_refused_with_its_reason(tmp_path, cache, objects, expected):
    write_coco(tmp_path, objects)
    assert expected in refusal_of(open_split, tmp_path, cache, False)


def test_a_mask_instead_of_a_missing_box_is_still_refused_where_it_is_read(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, None, segmentation=BROKEN["pairs"][0])])
    assert "without bbox, and its segmentation has a polygon" in refused_by(Coco, tmp_path, cache)
