"""Sets in published layouts are recognized at their path and read."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.samples.published_keypoints import CEPHALOGRAM, FLIP_IDX, HAND, LAYOUTS

from paddlevit_dist.core.registry.lookup import guess_dataset, resolve
from paddlevit_dist.images.detection.odd_objects import find_outside
from paddlevit_dist.images.keypoints.data.keypoint_dataset import is_posed
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON

DATASETS = {"cvat": "coco_keypoints", "roboflow": "coco_keypoints", "long table": "keypoint_table"}
SIZES = {  # training and validation images
    "coco_keypoints": (6, 3),
    "cvat": (6, None),
    "roboflow": (5, 2),
    "yolo_pose": (5, 2),
    "keypoint_table": (6, 3),
    "long table": (6, 3),
}


def count_labeled(path: Path) -> int:
    """The labeled points of a file in COCO's format."""
    return sum(entry["num_keypoints"] for entry in json.loads(path.read_text())["annotations"])


@pytest.fixture
def opened(tmp_path, cache):
    def open_layout(name, split="train"):
        root = tmp_path / "set"
        if not root.exists():
            root.mkdir()
            LAYOUTS[name](root)
        dataset = guess_dataset(str(root), "keypoint_heatmaps").dataset
        assert dataset == DATASETS.get(name, name)
        return resolve("dataset", dataset)(str(root), split, cache)

    return open_layout


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_image_and_its_points_are_read(opened, name):
    for split, number in zip(("train", "val"), SIZES[name]):
        if number is None:
            continue
        dataset = opened(name, split)
        assert len(dataset) == number
        for index in range(number):
            image, annotations = dataset.read(index)
            assert (image.height, image.width) == dataset.size(index)
            labeled = annotations.points[annotations.points[:, :, 2] > 0]
            assert (labeled[:, :2] >= 0).all() and (labeled[:, :2] <= image.size).all()
        assert dataset.posed_objects().tolist() == [
            [index, row] for index in range(number) for row in np.flatnonzero(is_posed(dataset.annotations(index)))
        ]


def test_people_of_coco_have_all_that_the_file_says(opened, tmp_path):
    dataset = opened("coco_keypoints")
    assert dataset.keypoint_sets == (COCO_PERSON,)
    assert dataset.count_points()[..., 1:].sum() == count_labeled(
        tmp_path / "set" / "annotations" / "person_keypoints_train2017.json"
    )
    first = dataset.annotations(0)
    assert first.is_crowd.tolist() == [False, True, False] and is_posed(first).tolist() == [True, False, False]


def test_a_hand_of_cvat_has_a_box_around_its_points(opened):
    dataset = opened("cvat")
    assert dataset.keypoint_sets[0][:2] == (HAND, ()) and dataset.keypoint_sets[0].skeleton == ((0, 1), (0, 2))
    x, y, width, height = dataset.annotations(0).boxes[0]
    points = dataset.annotations(0).points[0]
    assert (points[:, 0] > x).all() and (points[:, 1] < y + height).all() and width > 2
    assert dataset.annotations(0).areas == width * height
    assert not dataset.has_validation(dataset.root)


def test_a_category_without_points_and_pairs_by_names(opened):
    dataset = opened("roboflow")
    assert dataset.class_names == ["water", "fish"]
    assert [points.pairs for points in dataset.keypoint_sets] == [(), ((2, 3),)] and dataset.can_mirror


def test_yolo_s_pairs_are_its_permutation(opened):
    dataset = opened("yolo_pose")
    assert dataset.mirrors.tolist() == [FLIP_IDX]
    assert dataset.keypoint_sets[0].names == COCO_PERSON.names  # which data.yaml does not give
    assert dataset.keypoint_sets[0].sigmas == COCO_PERSON.sigmas


def test_tables_have_names_and_sizes_of_pixels(opened):
    dataset = opened("keypoint_table")
    assert dataset.keypoint_sets[0].names == CEPHALOGRAM and dataset.spacing_mm(2) == (0.1, 0.1)
    assert (dataset.annotations(3).points[0, :, 2] > 0).tolist() == [True, False, True, True]


def test_labeled_points_beyond_the_borders_of_their_image_are_outside():
    cases = [  # x, y and visibility of two points in an image of height and width
        ((20, 30), [[0, 0, 1], [30, 20, 2]], False),
        ((20, 30), [[5, 5, 2], [30.5, 9, 1]], True),
        ((20, 30), [[5, 20.5, 2], [5, 5, 2]], True),
        ((30, 20), [[20.5, 5, 0], [-1, -1, 0]], False),
        ((30, 20), [[25, 5, 2], [-1, -1, 0]], True),
        ((30, 20), [[5, 25, 2], [7, -0.5, 1]], True),
        ((30, 20), [[5, 25, 2], [-0.5, 7, 0]], False),
    ]
    sizes, points, expected = zip(*cases)
    assert find_outside(np.array(points, float), np.array(sizes)).tolist() == list(expected)
