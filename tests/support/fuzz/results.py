"""Results of other programs, for the table."""

import json

import numpy as np
from PIL import Image

from paddlevit_dist.images import label_maps
from paddlevit_dist.images.classification import result_scores, result_tables
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.evaluation.scored_files import AnnotationFile
from paddlevit_dist.images.detection.evaluation.yolo_results import read_yolo
from paddlevit_dist.images.keypoints.evaluation import result_files
from paddlevit_dist.images.keypoints.evaluation.score_kind import score_table
from paddlevit_dist.points import scored_scenes
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.volumes.landmarks import scored as scored_landmarks
from support.networks.keypoint_peer import random_case

_CLASSES = ["cat", "dog", "hen"]


def make_scores(folder):
    rows = [f"p{row}.jpg,{0.2 + row / 100:.3f},{0.5 - row / 50:.3f},{0.3 + row / 100:.3f}\n" for row in range(9)]
    (folder / "results.csv").write_text("filename,cat,dog,hen\n" + "".join(rows))
    return [folder / "results.csv"]


def make_classes(folder):
    rows = [f"p{row}.jpg;{_CLASSES[row % 3]};{_CLASSES[(row + 1) % 3]}\r\n" for row in range(9)]
    (folder / "results.csv").write_bytes(("id;class;class_2\r\n" + "".join(rows)).encode("utf-16"))
    return [folder / "results.csv"]


def _scored(scored):
    values = scored.recompute(np.ones((1, len(scored.names))))
    assert all(np.isnan(column[0]) or np.isfinite(column[0]) for column in values.values())
    assert next(iter(scored.shown)) in values


def read_table(folder):
    truth = result_tables.ClassGroundTruth([f"p{row}.jpg" for row in range(9)], np.arange(9) % 3, _CLASSES, "truth")
    _scored(result_scores.score(str(folder / "results.csv"), truth))


def make_yolo(folder):
    (folder / "labels").mkdir()
    (folder / "labels" / "a.txt").write_text("0 0.5 0.5 0.25 0.125 0.75\n1 0.25 0.5 0.5 0.25 0.5\n")
    (folder / "labels" / "b.txt").write_text("1 0.1 0.1 0.6 0.2 0.5 0.9 0.625\r\n")
    return [folder / "labels" / "a.txt", folder / "labels" / "b.txt"]


def read_yolo_results(folder):
    truth = BoxGroundTruth(np.zeros((0, 4)), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, bool))
    sizes, first = np.array([[30, 40], [20, 50]]), np.zeros(3, np.int64)
    annotations = AnnotationFile("", [1, 2], sizes, [1, 2], ["x", "y"], truth, None, first, [], file_names=["a", "b"])
    results = read_yolo(str(folder), annotations, {0: 0, 1: 1})
    assert np.isfinite(results.boxes).all() and len(results.boxes) == len(results.scores) == results.first[-1]
    assert set(results.labels.tolist()) <= {0, 1}


def make_keypoints(folder):
    dataset, found, sigmas = random_case(4)
    for entry, own in zip(sorted(dataset["categories"], key=lambda one: one["id"]), sigmas):
        entry.update(keypoints=[f"p{number}" for number in range(len(own))], sigmas=own)
    (folder / "truth.json").write_text(json.dumps(dataset))
    (folder / "results.json").write_text(json.dumps(found, indent=1))
    return [folder / "results.json"]


def read_keypoints(folder):
    truth = result_files.read_annotations(str(folder / "truth.json"))
    matches = truth.match(result_files.read_results(str(folder / "results.json"), truth), 20)
    values, _ = score_table(matches.table, 20, np.ones((1, len(matches.sums))))
    assert all(np.isnan(column[0]) or 0 <= column[0] <= 1 for column in values.values())
    assert np.isfinite(matches.sums).all()


def make_maps(folder):
    for name in ("true", "found"):
        (folder / name).mkdir()
        for number in range(2):
            maps = np.arange(63, dtype=np.uint8).reshape(7, 9) % (4 + number)
            Image.fromarray(maps).save(folder / name / f"{number}.png")
    return [folder / "found" / "0.png", folder / "true" / "1.png"]


def read_maps(folder):
    _scored(label_maps.score(str(folder / "true"), str(folder / "found"), label_maps.LabelMapRules()))


def make_labels(folder):
    (folder / "scene.txt").write_text("".join(f"{1 + k % 9}\n" for k in range(300)))
    return [folder / "scene.txt"]


def make_instances(folder):
    (folder / "masks").mkdir()
    for number in range(2):
        (folder / f"masks/{number}.txt").write_text("".join(f"{int(k // 150 == number)}\n" for k in range(300)))
    (folder / "scene.txt").write_text("masks/0.txt 3 0.75\nmasks/1.txt 5 0.5\n")
    return [folder / "scene.txt", folder / "masks" / "1.txt"]


def read_scene(folder):
    labels = np.repeat(np.array([2, 4], np.int16), 150)
    scene = Scene(np.zeros((300, 3), np.float32), np.zeros((300, 3), np.uint8), labels, labels, "scene")
    truth = scored_scenes.SceneGroundTruth(
        ["scene"], iter([scene]), ["scene"], list(CLASS_NAMES), lambda: list(range(2, 20)), "truth"
    )
    _scored(scored_scenes.score(str(folder), truth))


def make_landmarks(folder):
    rows = [f"case{k // 3},{'abc'[k % 3]},{k / 8},{k},-{k}.5,LPS\n" for k in range(9)]
    (folder / "landmarks.csv").write_text("case,landmark,x_mm,y_mm,z_mm,world\n" + "".join(rows))
    return [folder / "landmarks.csv"]


def read_landmarks(folder):
    positions = {name: np.zeros(3) for name in "abc"}
    truth = [scored_landmarks.VolumeLandmarks(f"case{k}", "truth", positions) for k in range(3)]
    _scored(scored_landmarks.score(str(folder / "landmarks.csv"), truth, "truth"))
