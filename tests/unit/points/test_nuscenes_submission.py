"""Predictions are written as nuScenes's benchmarks expect them."""

import json

import numpy as np

from paddlevit_dist.points.nuscenes_submission import is_submittable, write_submission_labels, write_submission_meta
from paddlevit_dist.points.prepare.nuscenes import CLASS_NAMES


def test_the_benchmark_takes_scans_and_classes_of_its_own_only():
    name = "scene-0061_" + 32 * "a"
    assert is_submittable(name, list(CLASS_NAMES)) and not is_submittable(name, ["car"])
    assert not is_submittable("08_000001", list(CLASS_NAMES))


def test_segments_are_numbered_in_their_class(tmp_path):
    name, classes = "scene-0061_" + 32 * "a", np.array([3, 3, -100, 10, 3, 6, 10])
    write_submission_labels(tmp_path, "test", name, classes, np.array([7, 2, -100, -100, 7, 0, -100]))
    with np.load(tmp_path / "panoptic" / "test" / f"{32 * 'a'}_panoptic.npz") as file:
        assert file["data"].dtype == np.uint16
        assert file["data"].tolist() == [4002, 4001, 0, 11000, 4002, 7001, 11000]
    write_submission_labels(tmp_path, "test", name, np.full(1001, 3), np.arange(1001))
    with np.load(tmp_path / "panoptic" / "test" / f"{32 * 'a'}_panoptic.npz") as file:
        assert file["data"].tolist() == [*range(4001, 5000), 0, 0]
    assert write_submission_meta(tmp_path, "test", has_instances=True) == "panoptic"
    assert json.loads((tmp_path / "test" / "submission.json").read_text())["meta"]["task"] == "segmentation"
