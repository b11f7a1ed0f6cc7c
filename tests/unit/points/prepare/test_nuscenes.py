"""nuScenes-lidarseg is read, split and scored as by its development kit, whose own results are the golden file."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.files.nuscenes import CATEGORIES, draw_objects, nuscenes

from paddlevit_dist import UserError
from paddlevit_dist.points.nuscenes_submission import write_submission_labels
from paddlevit_dist.points.prepare.formats import detect_format
from paddlevit_dist.points.prepare.listing import SceneChoices
from paddlevit_dist.points.prepare.nuscenes import CLASS_NAMES, NuScenesReader
from paddlevit_dist.points.segmentation.metrics import SemanticMetrics

GOLDEN = json.loads((Path(__file__).resolve().parents[3] / "golden" / "nuscenes.json").read_text())
NUMBERS = GOLDEN["numbers"]  # of each class, from 1; 0 is ignored


def draw_predictions(written, seed=1):
    """A class of sixteen for each point, 0 to 15, by name of the scan; independent of the truth for every fifth."""
    generator = np.random.default_rng(seed)
    return {name: generator.integers(0, 16, len(cloud)) for name, (cloud, _) in sorted(written.items())}


def read_all(root, lists=None, **choices):
    reader = NuScenesReader(SceneChoices(**choices))
    sources = reader.sources(str(root), lists or {})
    reader = pickle.loads(pickle.dumps(reader))  # as in a worker process
    return {split: [reader.read(source) for source in scenes] for split, scenes in sources.items()}


def test_scans_have_the_kits_classes_and_score(tmp_path):
    written = nuscenes(tmp_path, points=400)
    splits = read_all(tmp_path)
    assert {split: {scene.name[:10] for scene in scenes} for split, scenes in splits.items()} == {
        "train": {"scene-0061"},
        "val": {"scene-0103"},
    }
    predictions, metrics = draw_predictions(written), SemanticMetrics(CLASS_NAMES)
    assert [NUMBERS[name] for name in CLASS_NAMES] == list(range(1, 17))
    for scene in (scene for scenes in splits.values() for scene in scenes):
        cloud, categories = written[scene.name]
        expected = [NUMBERS[GOLDEN["classes"][CATEGORIES[number]]] - 1 for number in categories.tolist()]
        assert scene.semantic.tolist() == [-100 if label < 0 else label for label in expected]
        assert np.array_equal(scene.xyz, cloud[:, :3]) and np.array_equal(scene.channels["intensity"], cloud[:, 3:4])
        assert (scene.instance == -100).all() and scene.offset == (0.0, 0.0, 0.0)
        predicted = np.maximum(scene.semantic, 0).astype(np.int64)
        predicted[::5] = predictions[scene.name][::5]
        metrics.update(paddle.to_tensor(predicted), paddle.to_tensor(scene.semantic.astype(np.int64)))
        write_submission_labels(tmp_path / "out", "val", scene.name, predicted)
        file = tmp_path / "out" / "lidarseg" / "val" / f"{scene.name[11:]}_lidarseg.bin"
        assert np.array_equal(np.fromfile(file, np.uint8), predicted + 1)
    values = metrics.compute({name: value.numpy() for name, value in metrics.state.items()})
    assert values["mIoU"] == pytest.approx(GOLDEN["evaluation"]["miou"], abs=1e-7)
    found = [values[f"IoU {name}"] for name in CLASS_NAMES]
    assert found == pytest.approx(GOLDEN["evaluation"]["iou_per_class"], abs=1e-7)


def test_panoptic_labels_have_objects(tmp_path):
    written = nuscenes(tmp_path, points=250)
    for scene in (scene for scenes in read_all(tmp_path, label="panoptic").values() for scene in scenes):
        cloud, categories = written[scene.name]
        expected = {}
        for number, row in enumerate(draw_objects(cloud, categories).tolist()):
            label = NUMBERS[GOLDEN["classes"][CATEGORIES[row // 1000]]] - 1
            assert scene.semantic[number] == (-100 if label < 0 else label)
            assert (scene.instance[number] >= 0) == (label >= 0 and row % 1000 > 0)
            if scene.instance[number] >= 0:
                assert expected.setdefault(row, scene.instance[number]) == scene.instance[number]
        assert len(set(expected.values())) == len(expected) > 5
    scan = next((tmp_path / "panoptic" / "v1.0-mini").iterdir())
    numbers = np.zeros(250, np.uint16)
    for arrays in ({"data": numbers.astype(np.int32)}, {"labels": numbers}, {"data": np.stack([numbers] * 2, axis=1)}):
        np.savez(scan, **arrays)
        with pytest.raises(UserError, match="panoptic.npz: expected an array 'data' of uint16, a number for each poi"):
            read_all(tmp_path, label="panoptic")
    with scan.open("wb") as file:
        np.save(file, numbers[:, None])  # no archive
    with pytest.raises(
        UserError, match="panoptic.npz: expected an array 'data' of uint16, a number for each point; ex"
    ):
        read_all(tmp_path, label="panoptic")
    np.savez(scan, data=np.full(250, 65_535, np.uint16))
    with pytest.raises(UserError, match="panoptic.npz: point 0 has the number 65, which is not in category.json"):
        read_all(tmp_path, label="panoptic")
    with pytest.raises(UserError, match="--label=boxes: expected lidarseg, panoptic or none"):
        read_all(tmp_path, label="boxes")
    (tmp_path / "v1.0-mini" / "lidarseg.json").unlink()
    assert {(scene.semantic == -100).all() for scene in read_all(tmp_path, label="none")["train"]} == {True}


def test_drives_are_split_as_by_the_kit(tmp_path):
    drives = [f"scene-{number:04d}" for number in (1, *range(3, 1111, 7), 103, 916, 553)]
    nuscenes(tmp_path, "v1.0-trainval", drives, scans=1, points=2)
    nuscenes(tmp_path, "v1.0-test", ("scene-0077",), scans=1, points=2)
    nuscenes(tmp_path, "v1.0-mini", ("scene-0553",), scans=1, points=2)  # not used if there is trainval
    splits = read_all(tmp_path)
    val = {scene.name[:10] for scene in splits["val"]}
    assert val == set(GOLDEN["val"]) & set(drives) and len(val) > 15
    assert {scene.name[:10] for scene in splits["train"]} == set(drives) - val
    assert [scene.name[:10] for scene in splits["test"]] == ["scene-0077"]
    assert (splits["test"][0].semantic == -100).all()
    assert NuScenesReader().splits("/", {}, {}).keys() == {"train", "val", "test"}


def test_mini_has_drives_of_its_own_for_validation(tmp_path):
    nuscenes(tmp_path, drives=("scene-0553", *GOLDEN["mini_val"]), scans=3, points=2)
    splits = read_all(tmp_path)
    assert [scene.name[:10] for scene in splits["val"]] == ["scene-0103"] * 3 + ["scene-0916"] * 3
    assert {scene.name[:10] for scene in splits["train"]} == {"scene-0553"}  # for validation in v1.0-trainval
    name = splits["val"][4].name
    (tmp_path / "own.txt").write_text(f"{name}\n")
    assert [scene.name for scene in read_all(tmp_path, {"train": str(tmp_path / "own.txt")})["train"]] == [name]


def test_a_data_set_is_recognized_by_its_tables(tmp_path):
    with pytest.raises(UserError, match="has no tables of nuScenes, such as v1.0-trainval/sample_data.json"):
        NuScenesReader().find(str(tmp_path))
    nuscenes(tmp_path, scans=1, points=2)
    assert detect_format(str(tmp_path)) == "nuscenes"
    shutil.rmtree(tmp_path / "v1.0-mini")
    assert detect_format(str(tmp_path)) == "nuscenes"  # by its scans
    for version in ("v1.0-mini", "v1.0-trainval", "v1.0-test"):
        (tmp_path / version / version).mkdir(parents=True)
        (tmp_path / version / version / "sample_data.json").write_text("[]")
        assert detect_format(str(tmp_path / version)) == "nuscenes"  # by its tables alone


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def renumber(path, index):
    """Give the last category a number that no point has."""
    rows = json.loads(path.read_text())
    rows[-1]["index"] = index
    path.write_text(json.dumps(rows))


def test_numbers_of_classes_reach_to_255(tmp_path):
    nuscenes(tmp_path, points=60)
    reader, tables = NuScenesReader(SceneChoices()), next(tmp_path.glob("v1.0-*"))
    for number in (254, 255):
        rows = json.loads((tables / "category.json").read_text())
        rows.append({**rows[-1], "index": number})
        (tables / "category.json").write_text(json.dumps(rows))
    reader.sources(str(tmp_path), {})
    assert len(reader.class_by_number) == 256 and reader.class_by_number[254:] == (reader.class_by_number[31],) * 2


@pytest.mark.parametrize(
    "damage, message",
    (
        (lambda tables: edit(tables / "scene.json", "scene-0061", "../scene-0061"), "has drive '../scene-0061' and"),
        (lambda tables: edit(tables / "category.json", "vehicle.car", "vehicle.cat"), "category 'vehicle.cat' with"),
        (lambda tables: renumber(tables / "category.json", 256), "category '.*' with index 256 is not one"),
        (lambda tables: renumber(tables / "category.json", -1), "category '.*' with index -1 is not one"),
        (
            lambda tables: edit(tables / "category.json", '"index"', '"number"'),
            "category.json cannot be read: .*`index`",
        ),
        (lambda tables: (tables / "lidarseg.json").unlink(), "lidarseg.json cannot be read: .*nuScenes-lidarseg"),
        (lambda tables: (tables / "lidarseg.json").write_text("[]"), "lidarseg.json has no labels of .*pcd.bin"),
        (lambda tables: edit(tables / "sample.json", "[", "{"), "sample.json cannot be read: .*archive of metadata"),
        (lambda tables: (tables / "sample.json").write_text("[" * 99_999), "sample.json cannot be read"),
    ),
)
def test_damaged_tables_are_told(tmp_path, damage, message):
    nuscenes(tmp_path, points=5)
    damage(tmp_path / "v1.0-mini")
    with pytest.raises(UserError, match=message) as raised:
        read_all(tmp_path)
    assert "\n" not in str(raised.value)


def test_damaged_scans_are_told(tmp_path):
    nuscenes(tmp_path, points=5)
    scan = next((tmp_path / "samples" / "LIDAR_TOP").iterdir())
    labels = sorted((tmp_path / "lidarseg" / "v1.0-mini").iterdir())
    whole = scan.read_bytes()
    scan.write_bytes(whole[:-1])
    with pytest.raises(UserError, match="pcd.bin has 99 bytes, not a multiple of 20"):
        read_all(tmp_path)
    scan.write_bytes(whole[:-20])
    with pytest.raises(UserError, match="lidarseg.bin has 5 labels, its scan 4 points"):
        read_all(tmp_path)
    scan.write_bytes(whole)
    for file in labels:
        file.write_bytes(bytes([0, 0, 0, 32, 0]))
    with pytest.raises(UserError, match="point 3 has the number 32, which is not in category.json"):
        read_all(tmp_path)
    labels[0].unlink()
    with pytest.raises(UserError, match="lidarseg.bin is missing, which the tables of nuScenes name"):
        read_all(tmp_path)
