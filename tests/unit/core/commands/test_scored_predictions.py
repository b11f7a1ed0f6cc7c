"""What ``predict`` writes is read by the command that scores its kind: its file, its folder, and its tables."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.refusals import refusal_of

from paddlevit_dist.core.inference import rows
from paddlevit_dist.core.inference.rows import ROWS_CSV, ROWS_JSON
from paddlevit_dist.core.metrics.classifier_prediction import best_classes
from paddlevit_dist.core.tasks.prediction import PredictionRecord
from paddlevit_dist.images.classification import evaluate_command as evaluate_classes
from paddlevit_dist.images.detection import evaluate_command as evaluate_detections
from paddlevit_dist.images.keypoints import evaluate_command as evaluate_keypoints
from paddlevit_dist.images.segmentation import evaluate_command as evaluate_masks
from paddlevit_dist.points import evaluate_command as evaluate_scenes
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, NYU40_NUMBERS
from paddlevit_dist.points.data.scene_fields import make_scene
from paddlevit_dist.points.data.scene_store import write_scene
from paddlevit_dist.volumes import commands as volume_commands
from paddlevit_dist.volumes.slicer_files import LandmarkPoint, format_fcsv

BOX = {"bbox": [10.0, 10.0, 40.0, 40.0]}
POINTS = {"keypoints": [12, 15, 0.9, 40, 44, 0.5]}
PLACES = {"nose": (1.0, 2.0, 3.0), "chin": (4.0, 5.0, 9.0)}  # RAS


def write_tables(folder, rows_by_name):
    """The tables of a prediction of these inputs, as ``predict`` writes them."""
    folder.mkdir(exist_ok=True)
    rows.begin(folder, {"inputs": len(rows_by_name), "source": "a run"}, restart=False)
    with rows.open_rank_writer(folder, 0) as writer:
        for index, own in enumerate(rows_by_name.values()):
            writer.add([PredictionRecord(index, own)])
    samples = SimpleNamespace(names=list(rows_by_name), unreadable=[])
    rows.finish(folder, rows.write_tables(folder, samples))


def write_classes(truth, found):
    names = ["cat", "dog", "hen"]
    shares = np.array([[0.5, 0.3, 0.2], [0.2, 0.1, 0.7], [0.1, 0.8, 0.1]])
    write_tables(found, {f"new/p{row}.jpg": [best_classes(own, names)] for row, own in enumerate(shares)})
    truth.write_text("image,class\np0.jpg,cat\np1.jpg,dog\np2.jpg,dog\n")
    return {"top-1": 100 * 2 / 3, "recall cat": 100.0}


def write_landmarks(truth, found):
    def row(name, place):
        return {"landmark": name, **dict(zip(("x_mm", "y_mm", "z_mm"), place)), "confidence": 0.5, "world": "LPS"}

    truth.mkdir()
    cases = [f"case.{number}" for number in range(3)]
    moved = {name: (-x, -y, z + 2.0) for name, (x, y, z) in PLACES.items()}
    write_tables(found, {f"new/{case}.nii.gz": [row(*one) for one in moved.items()] for case in cases})
    for case in cases:
        for folder, places, world in ((truth, PLACES, "ras"), (found, moved, "lps")):
            points = [LandmarkPoint(name, tuple(map(str, place)), "") for name, place in places.items()]
            (folder / f"{case}.fcsv").write_text(format_fcsv(points, world))
    return {"mre_mm": 2.0, "sdr_2mm": 100.0}


def write_masks(truth, found):
    write_tables(found, {"new/a.jpg": [{"share 0": 0.5, "share 1": 0.5, "mask": "masks/a.png"}]})
    for folder, width in ((truth, 4), (found / "masks", 2)):
        folder.mkdir()
        labels = np.zeros((4, 4), np.uint8)
        labels[:, width:] = 1
        labels[0, 0] = 1
        Image.fromarray(labels).save(folder / "a.png")
    return {"accuracy": 0.5}


def write_objects(truth, found, shape):
    """One object of a COCO file, found where it is."""
    write_tables(found, {"new/a.png": [{"category": "hand", "score": 0.9}]})
    named = {"file_name": "new/a.png", "category_name": "hand"}
    (found / "results.json").write_text(json.dumps([{"image_id": 1, "category_id": 9, "score": 0.9, **named, **shape}]))
    points = {"num_keypoints": 2, "keypoints": [12, 15, 2, 40, 44, 2]} if "keypoints" in shape else {}
    category = {"id": 5, "name": "hand", "keypoints": ["wrist", "thumb"], "sigmas": [0.1, 0.2]}
    annotation = {"id": 1, "image_id": 7, "category_id": 5, "area": 1600, "iscrowd": 0, **BOX, **points}
    image = {"id": 7, "width": 100, "height": 80, "file_name": "a.png"}
    truth.write_text(json.dumps({"images": [image], "categories": [category], "annotations": [annotation]}))
    return {"AP": 1.0}


def write_scenes(truth, found):
    """Two scenes of ScanNet's classes. One point of the first is found as another class."""
    for name, semantic in (("a", [0, 0, 1, 1]), ("b", [0, 1])):
        (truth / "scenes").mkdir(parents=True, exist_ok=True)
        xyz = np.arange(3 * len(semantic), dtype=np.float32).reshape(-1, 3)
        write_scene(truth / "scenes" / f"{name}.scene", make_scene(xyz, semantic=semantic, name=name))
    (truth / "classes.txt").write_text("\n".join(CLASS_NAMES))
    (truth / "val.txt").write_text("a\nb\n")
    write_tables(found, {f"new/{name}.ply": [{"share wall": 0.5, "share floor": 0.5}] for name in "ab"})
    for name, labels in (("a", [0, 1, 1, 1]), ("b", [0, 1])):
        (found / f"{name}.txt").write_text("".join(f"{NYU40_NUMBERS[label]}\n" for label in labels))
    return {"IoU wall": 2 / 3, "IoU floor": 3 / 4}


KINDS = {
    "classes": (evaluate_classes.run, write_classes, ROWS_CSV),
    "landmarks": (volume_commands.run_landmarks, write_landmarks, ROWS_CSV),
    "masks": (evaluate_masks.run, write_masks, "masks"),
    "detections": (evaluate_detections.run, lambda *places: write_objects(*places, BOX), "results.json"),
    "scenes": (evaluate_scenes.run, write_scenes, "."),
    "keypoints": (evaluate_keypoints.run, lambda *places: write_objects(*places, POINTS), "results.json"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_prediction_is_read_by_the_command_of_its_kind(tmp_path, capsys, kind):
    run, write, name = KINDS[kind]
    expected = write(tmp_path / "truth", tmp_path / "found")
    for given in (name, "", ROWS_CSV, ROWS_JSON):
        run([str(tmp_path / "truth"), str(tmp_path / "found" / given), "-json", "-interval=off"])
        captured = capsys.readouterr()
        scores = json.loads(captured.out)["scores"]
        assert {key: scores[key] for key in expected} == pytest.approx(expected, abs=1e-4)
        assert "ignored" not in captured.err and "skipped" not in captured.err


def test_predicted_classes_of_shapes_are_compared_with_the_data_of_a_recipe(tmp_path, capsys):
    data, names = tmp_path / "modelnet", ["chair", "lamp"]
    for split, number in (("train", 1), ("test", 3)):
        shapes = [f"{name}_{split}{at}" for name in names for at in range(number)]
        for shape in shapes:
            (data / shape.partition("_")[0]).mkdir(parents=True, exist_ok=True)
            (data / shape.partition("_")[0] / f"{shape}.txt").write_text("0,0,0,0,0,1\n1,0,0,0,0,1\n")
        (data / f"modelnet40_{split}.txt").write_text("\n".join(shapes))
    (data / "modelnet40_shape_names.txt").write_text("\n".join(names))
    shares = {f"{data}/{shape.partition('_')[0]}/{shape}.txt": np.array([0.6, 0.4]) for shape in shapes}
    write_tables(tmp_path / "found", {path: [best_classes(own, names)] for path, own in shares.items()})
    recipe = tmp_path / "shapes.yaml"
    recipe.write_text(f"TASK: shape_classification\nDATA: {{DATASET: modelnet40, DATA_PATH: {data}}}\n")
    for given in ("", ROWS_CSV, ROWS_JSON):
        evaluate_classes.run([str(tmp_path / "found" / given), f"-cfg={recipe}", "-json", "-interval=off"])
        scores = json.loads(capsys.readouterr().out)["scores"]
        assert (scores["top-1"], scores["recall chair"], scores["recall lamp"]) == (50.0, 100.0, 0.0)


def test_a_predicted_table_is_a_truth_as_well_and_names_folders_of_slices_by_their_last_part(tmp_path, capsys):
    write_landmarks(tmp_path / "truth", tmp_path / "found")
    file = tmp_path / "found" / ROWS_CSV
    file.write_text(file.read_text().replace("new/case.0.nii.gz", "new/case.0"))
    volume_commands.run_landmarks([str(file), str(tmp_path / "truth"), "-json", "-interval=off"])
    assert json.loads(capsys.readouterr().out)["scores"]["mre_mm"] == pytest.approx(2.0)


def test_two_predicted_files_of_one_volume_are_refused(tmp_path):
    write_landmarks(tmp_path / "truth", tmp_path / "found")
    file = tmp_path / "found" / ROWS_CSV
    text = file.read_text()
    file.write_text(text + text.splitlines()[1].replace("new/", "old/") + "\n")
    said = refusal_of(volume_commands.run_landmarks, [str(tmp_path / "truth"), str(file)])
    assert said == f"{file}, line 8: landmark 'nose' appears twice in volume case.0"
