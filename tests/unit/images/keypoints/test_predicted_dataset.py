"""A data set of predicted points is read back with the same points, whichever are seen."""

import numpy as np
from PIL import Image

from paddlevit_dist.images.keypoints.data.yolo_pose import YoloPose
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from paddlevit_dist.images.keypoints.predicted_dataset import PredictedKeypoints

SETS = [
    KeypointSet(("head", "left", "right"), ((1, 2),), (0.05,) * 3, ((0, 1),)),
    KeypointSet(("tip", "end"), (), (0.1,) * 2, ()),
]
FOUND = DetectedKeypoints(
    np.array([[[4, 6, 0.9], [8, 2, 0.3], [9, 9, 0.29]], [[1, 1, 0.9], [30, 12, 0.8], [5, 5, 1.0]]], np.float32),
    np.array([0.9, 0.7], np.float32),
    np.array([0, 1]),
    np.array([[2, 1, 12, 16], [0, 0, 35, 15]], np.float32),
)
SEEN = [[[4, 6, 2], [8, 2, 2], [0, 0, 0]], [[1, 1, 2], [30, 12, 2], [0, 0, 0]]]  # a tip has an end and no third point


def test_points_of_the_least_score_are_seen_in_both_layouts_and_others_not_labeled(tmp_path, cache):
    written = PredictedKeypoints(tmp_path, None, "yolo", ["bug", "rod"], [5, 9], 0.5, keypoint_sets=SETS)
    for folder, name, content in (
        ("labels/train", "a.txt", written.format_labels(written.choose(FOUND, (20, 40)), (20, 40))),
        (".", "data.yaml", written.format_yaml()),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_text(content)
    (tmp_path / "images" / "train").mkdir(parents=True)
    Image.new("RGB", (40, 20)).save(tmp_path / "images" / "train" / "a.png")
    read = YoloPose(str(tmp_path), "train", cache)
    np.testing.assert_allclose(read.annotations(0).points, SEEN, atol=1e-5)
    assert [points.names for points in read.keypoint_sets] == [("head", "left", "right"), ("tip", "end", "unused 3")]
    entries = [written.build_entry(FOUND, number, (20, 40)) for number in range(2)]
    assert [entry["keypoints"] for entry in entries] == [sum(SEEN[0], []), sum(SEEN[1][:2], [])]
    assert [(entry["category_id"], entry["num_keypoints"]) for entry in entries] == [(5, 2), (9, 2)]
