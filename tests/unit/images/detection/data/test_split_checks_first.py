"""Objects of a user's dataset that cannot be meant as they are given, told before a run or refused."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.images.data.reading import UnreadableImage
from paddlevit_dist.images.detection.data import split_checks
from paddlevit_dist.images.detection.data.detection_dataset import DetectionDataset
from paddlevit_dist.images.detection.data.split_checks import note_first_objects
from paddlevit_dist.images.detection.odd_objects import CLIPPED
from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointDataset
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet

WITHIN = [[10, 10, 20, 20], [60, 50, 30, 20]]


class Own(DetectionDataset):
    """Images of 100 x 80 pixels with these boxes in each."""

    class_names, category_ids = ["thing"], (1,)

    def __init__(self, boxes, number=3, **more):
        self.boxes, self.number, self.more = boxes, number, more

    def __len__(self):
        return self.number

    def read(self, index):
        if index == 2:
            raise UnreadableImage("2.png", "is damaged")
        objects = {"boxes": self.boxes, "labels": [0] * len(self.boxes), "box_format": "xywh", **self.more}
        return Image.new("RGB", (100, 80)), objects

    def annotations(self, index):
        return super().annotations(index % 2)


class OwnPoints(Own, KeypointDataset):
    keypoint_sets = (KeypointSet(("tip",), (), (0.1,), ()),)


def look(dataset):
    return note_first_objects(OpenedDataset(dataset), "train", "own")


def test_plain_objects_and_no_objects_are_nothing_to_tell():
    assert look(Own(WITHIN)) == look(Own([])) == look(Own([[0, 0, 0, 0]])) == look(Own(WITHIN, 0)) == []
    assert look(OwnPoints(WITHIN, points=[[[10, 10, 2]], [[0, 0, 0]]])) == []


@pytest.mark.parametrize(
    ("dataset", "lines"),
    [
        (
            Own([*WITHIN, [200, 10, 20, 20]]),
            ["2 objects with a box outside the image, skipped in training, such as sample 0"],
        ),
        (
            Own([*WITHIN, [90, 10, 20, 20], [0, -2, 5, 5]]),
            [f"4 objects {CLIPPED}, such as sample 0"],
        ),
        (Own(WITHIN, is_crowd=[1, 0]), ["2 of 4 objects are crowds, not learned (iscrowd, difficult)"]),
        (Own(WITHIN, 1, is_crowd=[1, 0]), ["1 of 2 objects is a crowd, not learned (iscrowd, difficult)"]),
        (Own([*WITHIN, [1, 1, 5, 5]], is_crowd=[1, 0, 0]), []),
        (
            OwnPoints(WITHIN, points=[[[110, 10, 2]], [[-5, 2, 0]]]),
            [
                "2 objects with a labeled point outside its image: scored as COCO's tools do, but not learned, such "
                "as sample 0"
            ],
        ),
    ],
)
def test_what_is_odd_is_told_with_its_number(dataset, lines):
    """Of three images the last is unreadable, so that two are counted."""
    assert look(dataset) == [f"train: {line}" for line in lines]


def test_corners_and_shares_are_refused_as_in_files():
    corners = np.array([[20, 30, 60, 70], [50, 10, 95, 75]])
    message = refusal_of(look, Own(corners))
    assert message == (
        "dataset own: a box is x, y, width, height in pixels, and all of the 4 look like corners x0, y0, x1, y1 (as "
        "sides 4 boxes would exceed the image): write x0, y0, x1 - x0, y1 - y0, or return a dictionary with box_format "
        '"xyxy"'
    )
    assert look(Own(corners, box_format="xyxy")) == []
    shares = np.array(WITHIN) / [100, 80, 100, 80]
    assert "all of the 4 are fractions of the images from 0 to 1" in refusal_of(look, Own(shares))
    points = [[[0.2, 0.4, 2]], [[0.9, 0.9, 1]]]
    assert refusal_of(look, OwnPoints(WITHIN, points=points)) == (
        "dataset own, points: all coordinates are fractions of the images from 0 to 1: multiply by width and height"
    )


def test_only_the_first_images_are_looked_at_as_far_as_time_allows(monkeypatch):
    monkeypatch.setattr(split_checks, "_FIRST", 2)
    outside = Own([*WITHIN, [200, 10, 20, 20]], 1000)
    (line,) = look(outside)
    assert line.startswith("train: 2 objects") and line.endswith("such as sample 0 (in the first 2 of 1,000 images)")
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(split_checks, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert look(outside)[0].startswith("train: 1 object with")
