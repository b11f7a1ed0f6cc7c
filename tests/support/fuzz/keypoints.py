"""Keypoints in images, for the table."""

import numpy as np

from paddlevit_dist.images.keypoints.data.coco_keypoints import CocoKeypoints
from paddlevit_dist.images.keypoints.data.keypoint_table import KeypointTable
from paddlevit_dist.images.keypoints.data.yolo_pose import YoloPose
from support.files.coco_writer import write_image
from support.files.keypoint_writer import BUG, posed, write_keypoints
from support.files.yolo_writer import write_yolo

_YAML = "names: [bug, fly]\nkpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\nkpt_names:\n  0: [head, left, right]\n"


def _read(kind, folder):
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    dataset = kind(str(folder), "train", cache)
    assert dataset.summary() and dataset.object_counts().shape == (len(dataset), 2)
    assert len(dataset.keypoint_sets) == dataset.num_classes
    for points in dataset.keypoint_sets:
        number = len(points.names)
        assert len(points.sigmas) == number and sorted(points.mirror.tolist()) == list(range(number))
        assert all(0 <= end < number for line in points.skeleton for end in line)
    for index in range(len(dataset)):
        found = dataset.annotations(index)
        assert found.points.shape == (len(found.boxes), dataset.num_points, 3)
        assert np.isfinite(found.points).all() and np.isin(found.points[:, :, 2], (0, 1, 2)).all()
        assert dataset.spacing_mm(index) is None or min(dataset.spacing_mm(index)) > 0


def make_coco(folder):
    categories = [{**BUG, "sigmas": [0.1, 0.2, 0.3], "flip_pairs": [[1, 2]]}, {"id": 3, "name": "fly"}]
    objects = [posed(1, 11, num_keypoints=2), posed(2, 12, box=None), posed(3, 12, [0.0] * 9, category=3, iscrowd=1)]
    return [write_keypoints(folder, objects, categories=categories)]


def read_coco(folder):
    _read(CocoKeypoints, folder)


def make_yolo(folder):
    labels = {"1": "0 0.5 0.5 0.4 0.6 0.25 0.5 2 0.75 0.4 1 0 0 0\n", "2": "1 0.5 0.5 0.5 0.5\n"}
    write_yolo(folder, labels=labels, names=_YAML)
    return [folder / "labels" / "train" / "1.txt", folder / "labels" / "train" / "2.txt", folder / "data.yaml"]


def read_yolo(folder):
    _read(YoloPose, folder)


def _make_table(text):
    def make(folder):
        for number, name in enumerate("ab"):
            write_image(folder / f"{name}.png", 20, 30, number)
        (folder / "points.csv").write_text(text)
        return [folder / "points.csv"]

    return make


make_wide = _make_table(
    "image,split,spacing_mm,nose_x,nose_y,nose_v,tail_x,tail_y\na.png,train,0.5,1,2,2,3.5,4\nb,,1,5,6,1,,\n"
)
make_long = _make_table("image;point;x;y\na.png;1;1,5;2\na.png;2;3;4\nb.png;1;5;6\n")


def read_table(folder):
    _read(KeypointTable, folder)
