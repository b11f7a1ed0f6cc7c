"""Annotations of data sets, against the same annotations in a file, and results that name their images."""

import json

import numpy as np
import pytest
from support.samples.drawn_detections import as_coco

from paddlevit_dist import UserError
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes
from paddlevit_dist.images.keypoints.data.drawn_figures import DrawnFigures
from paddlevit_dist.images.keypoints.evaluation.result_files import read_annotations, read_dataset, read_results
from paddlevit_dist.images.keypoints.evaluation.score_kind import TEN, score_table


def as_file(dataset, path):
    """The images and annotations of a data set as a file in COCO's format, with other ids."""
    images, annotations = [], []
    for index in range(len(dataset)):
        truth, (height, width) = dataset.annotations(index), dataset.size(index)
        images.append({"id": 50 - index, "height": height, "width": width, "file_name": dataset.identity(index)})
        for box, label, area, points in zip(truth.boxes, truth.labels, truth.areas, truth.points):
            own = points[: len(dataset.keypoint_sets[label].names)]
            annotations.append({
                "id": len(annotations) + 1, "image_id": 50 - index, "category_id": 9 - int(label), "area": area,
                "bbox": box.tolist(), "iscrowd": 0, "keypoints": own.ravel().tolist(),
                "num_keypoints": int((own[:, 2] > 0).sum()),
            })  # fmt: skip
    categories = [
        {"id": 9 - label, "name": name, "keypoints": list(points.names), "sigmas": list(points.sigmas)}
        for label, (name, points) in enumerate(zip(dataset.class_names, dataset.keypoint_sets))
    ]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return annotations


def test_results_with_names_score_alike_against_a_data_set_and_against_its_file(tmp_path):
    dataset = DrawnFigures(None, "val", None, num_val=6)
    annotations = as_file(dataset, tmp_path / "truth.json")
    rng, results = np.random.default_rng(0), []
    for entry in annotations:
        points = np.reshape(entry["keypoints"], (-1, 3)) + rng.normal(size=(len(entry["keypoints"]) // 3, 3))
        name, label = dataset.identity(50 - entry["image_id"]), 9 - entry["category_id"]
        results.append({
            "image_id": 1, "category_id": 1, "file_name": name, "category_name": dataset.class_names[label],
            "keypoints": points.ravel().tolist(), "score": rng.random(),
        })  # fmt: skip
    (tmp_path / "results.json").write_text(json.dumps(results))
    scores = []
    for truth in (read_dataset(dataset, "figures"), read_annotations(str(tmp_path / "truth.json"))):
        found = read_results(str(tmp_path / "results.json"), truth)
        matches = truth.match(found, 20)
        values, _ = score_table(matches.table, 20, np.ones((1, len(dataset))))
        scores.append([values[name][0] for name in TEN])
        assert "matched by name: 6 images" in found.matched and np.isfinite(scores[-1][0])
    np.testing.assert_allclose(scores[0], scores[1], rtol=0, atol=1e-12)
    assert scores[0][0] > 0.2


def test_points_without_names_are_numbered(tmp_path):
    dataset, path = DrawnFigures(None, "val", None, num_val=6), tmp_path / "truth.json"
    as_file(dataset, path)
    content = json.loads(path.read_text())
    content["categories"] = [{"id": entry["id"], "name": entry["name"]} for entry in content["categories"]]
    path.write_text(json.dumps(content))
    sets = read_annotations(str(path), [0.1]).sets
    expected = [tuple(f"point {n + 1}" for n in range(len(own.names))) for own in dataset.keypoint_sets]
    assert sorted(own.names for own in sets) == sorted(expected) and {own.sigmas[0] for own in sets} == {0.1}


def test_data_without_keypoints_are_refused(tmp_path):
    with pytest.raises(UserError, match="shapes has images with boxes, not keypoints"):
        read_dataset(SyntheticShapes(None, "val", None, num_val=2), "shapes")
    (tmp_path / "boxes.json").write_text(json.dumps(as_coco(3)))
    with pytest.raises(UserError, match="boxes.json has no keypoints"):
        read_annotations(str(tmp_path / "boxes.json"))
