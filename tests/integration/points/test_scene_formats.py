"""Scenes of other programs and data sets: every format prepared, read back point by point, trained on and evaluated."""

import json

import numpy as np
import pytest
from support.files.nuscenes import nuscenes
from support.files.other_scenes import las, pcd, pointcept, s3dis, semantic_kitti
from support.files.prepared_scenes import prepared
from support.files.raw_scenes import write_labeled_ply, write_pointgroup, write_scannet
from support.samples.small_scenes import tensors

from paddlevit_dist import UserError, settings
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, load_scannet200_classes
from paddlevit_dist.points.prepare import s3dis as s3dis_reader
from paddlevit_dist.points.prepare import semantic_kitti as kitti_reader
from paddlevit_dist.points.prepare.command import run_scannet, run_scenes
from paddlevit_dist.points.segmentation.task import SemanticSegmentation
from paddlevit_dist.tasks.step_types import EvaluationStep, StepPosition


def by_name(scenes):
    return {scene.name: scene for scene in map(scenes.read, range(len(scenes)))}


def test_s3dis_has_thirteen_classes_and_folds_by_area(tmp_path, capsys):
    written = s3dis(tmp_path / "raw", areas=(1, 2, 5))
    splits, said = prepared(tmp_path, capsys)
    assert "contains scenes of format s3dis" in said
    assert set(splits) == {"train", "val", "area_1", "area_2", "area_5"}
    assert set(by_name(splits["val"])) == {"Area_5_office_1", "Area_5_hallway_2"} == set(by_name(splits["area_5"]))
    assert len(splits["train"]) == 4 and splits["train"].num_classes == 13
    for area in (1, 5):
        scene = by_name(splits[f"area_{area}"])[f"Area_{area}_office_1"]
        rows = np.concatenate([written[area, "office_1", name] for name in ("chair_1", "stairs_1", "wall_2")])
        np.testing.assert_allclose(scene.xyz + scene.offset, rows[:, :3], atol=1e-5)
        assert np.array_equal(scene.rgb, rows[:, 3:])
        assert (
            np.array_equal(scene.semantic, np.repeat([8, 12, 2], [60, 67, 73]))
            and splits["val"].class_names[8] == "chair"
        )
        assert np.array_equal(scene.instance, np.repeat([0, 1, 2], [60, 67, 73]))  # in the order of the files
    again, said = prepared(tmp_path, capsys, "--format=s3dis", "--val_area=1")  # another fold, the same scenes
    assert "(6 were prepared before)" in said and set(by_name(again["val"])) == {"Area_1_office_1", "Area_1_hallway_2"}


def test_the_damaged_line_of_s3dis_is_read_and_others_are_told(tmp_path, capsys):
    s3dis(tmp_path / "raw")
    damaged = tmp_path / "raw" / "Area_5" / "hallway_2" / "Annotations" / "wall_2.txt"
    lines = damaged.read_text().splitlines()
    damaged.write_text("\n".join([*lines[:6], "1.5 2.5 3.0 184 185\x10187", *lines[7:]]) + "\n")
    splits, said = prepared(tmp_path, capsys)
    assert "wall_2.txt has control characters" in said
    assert by_name(splits["val"])["Area_5_hallway_2"].rgb[60 + 67 + 6].tolist() == [184, 185, 187]
    damaged.write_text("\n".join([*lines[:6], "1.5 2.5 3.0 184", *lines[7:]]))
    with pytest.raises(UserError, match=r"wall_2.txt is not a table of numbers: .*from 6 to 4 in line 7"):
        prepared(tmp_path, capsys)
    for path in damaged.parent.iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"hallway_2/Annotations has no file of an object, such as chair_1.txt"):
        prepared(tmp_path, capsys)
    damaged.write_text("1 2 3 4 5 6\n")
    with pytest.raises(UserError, match=r"only scenes of Area_1, Area_5, and --val_area=3 is for validation"):
        prepared(tmp_path, capsys, "--val_area=3")


def test_semantic_kitti_has_nineteen_classes_and_standard_sequences(tmp_path, capsys):
    written = semantic_kitti(tmp_path / "raw", sequences=("00", "08", "11"))
    splits, said = prepared(tmp_path, capsys)
    assert {split: len(scenes) for split, scenes in splits.items()} == {"train": 2, "val": 2, "test": 2}
    assert splits["train"].class_names == list(kitti_reader.CLASS_NAMES) and not splits["test"].labeled
    # The configuration of its authors: number in the files -> class from 1, 0 for none.
    learning_map = {0: 0, 1: 0, 10: 1, 11: 2, 13: 5, 15: 3, 16: 5, 18: 4, 20: 5, 30: 6, 31: 7, 32: 8, 40: 9, 44: 10}
    learning_map |= {48: 11, 49: 12, 50: 13, 51: 14, 52: 0, 60: 9, 70: 15, 71: 16, 72: 17, 80: 18, 81: 19, 99: 0}
    learning_map |= {252: 1, 253: 7, 254: 6, 255: 8, 256: 5, 257: 5, 258: 4, 259: 5}
    for split, sequence in (("train", "00"), ("val", "08")):
        for scan in ("000000", "000001"):
            cloud, labels = written[sequence, scan]
            scene = by_name(splits[split])[f"{sequence}_{scan}"]
            np.testing.assert_allclose(scene.xyz + scene.offset, cloud[:, :3], atol=1e-5)
            assert np.array_equal(scene.channels["intensity"][:, 0], cloud[:, 3]) and (scene.rgb == 128).all()
            expected = [
                learning_map[number] - 1 if learning_map[number] else -100 for number in (labels & 0xFFFF).tolist()
            ]
            assert scene.semantic.tolist() == expected
            ids = {}
            for own, number, found in zip(expected, labels.tolist(), scene.instance.tolist()):
                assert (found >= 0) == (own >= 0 and number >> 16 > 0)
                assert found < 0 or ids.setdefault(number, found) == found
            assert len(set(ids.values())) == len(ids)


def test_damaged_scans_are_told(tmp_path, capsys):
    semantic_kitti(tmp_path / "raw")
    labels = tmp_path / "raw" / "sequences" / "08" / "labels" / "000000.label"
    whole = labels.read_bytes()
    for content, message in (
        (whole[:-4], "000000.label has 79 labels, its scan 80 points"),
        (whole[:-1], "000000.label has 319 bytes, not a multiple of 4"),
        (whole[:-4] + b"\x05\0\0\0", "point 79 has the number 5, which is not a class of SemanticKITTI"),
    ):
        labels.write_bytes(content)
        with pytest.raises(UserError, match=message):
            prepared(tmp_path, capsys)
    labels.unlink()
    (tmp_path / "own").mkdir()
    semantic_kitti(tmp_path / "own" / "raw", sequences=("100",))
    with pytest.raises(UserError, match=r"no split has any of the 2 scenes of .*, such as 100_000000: .*--train_list"):
        prepared(tmp_path / "own", capsys)
    with pytest.raises(UserError, match=r"000000.label is missing, the labels of .*000000.bin"):
        prepared(tmp_path, capsys)


def test_pointcepts_folders_keep_normals_and_scannets_classes(tmp_path, capsys):
    written = pointcept(tmp_path / "raw")
    splits, said = prepared(tmp_path, capsys)
    assert "-dataset=scannet -data_path=" in said and splits["train"].class_names == list(CLASS_NAMES)
    for number, split in enumerate(("train", "val")):
        scene, arrays = by_name(splits[split])[f"scene000{number}_00"], written[split]
        np.testing.assert_allclose(scene.xyz + scene.offset, arrays["coord"], atol=1e-5)
        assert np.array_equal(scene.rgb, arrays["color"]) and np.array_equal(scene.channels["normal"], arrays["normal"])
        assert np.array_equal(scene.semantic, np.where(arrays["segment20"] < 0, -100, arrays["segment20"]))
        known = (arrays["instance"] >= 0) & (arrays["segment20"] >= 0)
        assert np.array_equal(scene.instance >= 0, known)


def test_pointcepts_scannet200_and_s3dis(tmp_path, capsys):
    pointcept(tmp_path / "raw", label="segment200", classes=200)
    splits, said = prepared(tmp_path, capsys)
    assert "-dataset=scenes" in said and splits["train"].class_names == list(load_scannet200_classes())
    names = splits["train"].class_names
    assert (
        len(names) == 200
        and names[:4] == ["wall", "chair", "floor", "table"]
        and load_scannet200_classes()["mattress"] == 1191
    )
    (tmp_path / "of_s3dis").mkdir()
    pointcept(tmp_path / "of_s3dis" / "raw", splits=("Area_1", "Area_5"), label="segment", classes=13)
    splits, _ = prepared(tmp_path / "of_s3dis", capsys)
    assert splits["val"].class_names == list(s3dis_reader.CLASS_NAMES)
    assert list(by_name(splits["val"])) == ["Area_5_scene0001_00"]


@pytest.mark.parametrize("suffix, point_format, version", ((".las", 3, "1.2"), (".las", 7, "1.4"), (".laz", 7, "1.4")))
def test_laser_scans_keep_their_place_and_channels(tmp_path, capsys, suffix, point_format, version):
    extra = np.arange(90, dtype=np.float32)
    options = {"point_format": point_format, "version": version}
    written = {
        split: las(tmp_path / "raw" / split / f"{split}{suffix}", seed=seed, curvature=extra, **options)
        for seed, split in enumerate(("train", "val"))
    }
    splits, said = prepared(tmp_path, capsys, "--channels=intensity,curvature")
    assert "of format las" in said and splits["train"].class_names == list("01234")
    for split, expected in written.items():
        scene = splits[split].read(0)
        assert np.abs(scene.xyz).max() < 10 and np.allclose(scene.xyz + scene.offset, expected["xyz"], atol=2e-6)
        assert np.array_equal(scene.rgb, expected["rgb"]) and np.array_equal(scene.semantic, expected["label"])
        assert np.array_equal(scene.channels["intensity"][:, 0], expected["intensity"])
        assert np.array_equal(scene.channels["curvature"][:, 0], extra)


@pytest.mark.parametrize("kind", ("ascii", "binary", "binary_compressed"))
def test_pcd_files_of_three_kinds(tmp_path, capsys, kind):
    written = {split: pcd(tmp_path / "raw" / split / f"{split}.pcd", kind) for split in ("train", "val")}
    splits, said = prepared(tmp_path, capsys)
    assert "of format pcd" in said
    for split, expected in written.items():
        scene = splits[split].read(0)
        np.testing.assert_allclose(scene.xyz + scene.offset, expected["xyz"], atol=1e-6)
        assert np.array_equal(scene.rgb, expected["rgb"]) and np.array_equal(scene.semantic, expected["label"])
        assert np.array_equal(scene.channels["intensity"][:, 0], expected["intensity"])


def test_channels_that_a_file_does_not_have_are_told_with_those_it_has(tmp_path, capsys):
    for split in ("train", "val"):
        pcd(tmp_path / "raw" / split / f"{split}.pcd", "binary")
    with pytest.raises(UserError, match=r"has no normal for its points, only intensity; add it to the file"):
        prepared(tmp_path, capsys, "--channels=intensity,normal")
    splits, _ = prepared(tmp_path, capsys, "--channels=none")
    assert splits["train"].channels == ()


def of_splits(write, suffix):
    """Writes a scene of each split, by its path and a seed."""
    return lambda root: [write(root / split / f"{split}{suffix}", seed) for seed, split in enumerate(("train", "val"))]


def rows_of_five(path, seed):
    generator = np.random.default_rng(seed)
    path.parent.mkdir(parents=True)
    rows = np.c_[generator.uniform(0, 3, (40, 4)).round(3), generator.integers(0, 3, 40)]
    np.save(path, rows) if path.suffix == ".npy" else np.savetxt(path, rows, "%g")


def arrays(path, seed):
    generator = np.random.default_rng(seed)
    path.parent.mkdir(parents=True)
    points, colors, labels = generator.normal(size=(40, 3)), generator.random((40, 3)), generator.integers(0, 3, 40)
    np.savez(path, points=points, colors=colors, normals=points, label=labels)


def scannet(root):
    for split, name in (("train", "scene0000_00"), ("val", "scene0001_00")):
        write_scannet(root / "scans" / name, name, points=80)
        (root / f"scannetv2_{split}.txt").write_text(f"{name}\n")
    (root / "scannetv2-labels.combined.tsv").write_text("id\traw_category\n1\twall\n3\tfloor\n28\tlamp\n")


_NAMED = ("--columns=x,y,z,intensity,label", "--missing_colors=gray")


# Of each layout: what writes it, what the network sees of it, options of `prepare scenes`, and another command for it.
LAYOUTS = {
    "s3dis": (s3dis, "[rgb, xyz]", (), run_scenes),
    "semantic_kitti": (semantic_kitti, "[xyz, intensity]", (), run_scenes),
    "nuscenes": (nuscenes, "[xyz, intensity/255]", (), run_scenes),
    "pointcept": (pointcept, "[rgb, normal]", (), run_scenes),
    "scannet": (scannet, "[rgb]", (), run_scenes),
    "scannet of 200 classes": (scannet, "[rgb, height]", ("--classes=200",), run_scannet),
    "pth": (of_splits(lambda path, seed: write_pointgroup(path.parent, path.name, seed), ""), "[rgb]", (), run_scenes),
    "ply": (of_splits(lambda path, seed: write_labeled_ply(path, 80, seed), ".ply"), "[rgb]", (), run_scenes),
    "las": (of_splits(lambda path, seed: las(path, seed=seed), ".laz"), "[rgb, intensity/65535]", (), run_scenes),
    "pcd": (of_splits(lambda path, seed: pcd(path, "binary", seed=seed), ".pcd"), "[rgb, intensity]", (), run_scenes),
    "numpy": (of_splits(arrays, ".npz"), "[rgb, normal]", (), run_scenes),
    "numpy without names": (of_splits(rows_of_five, ".npy"), "[ones, intensity]", _NAMED, run_scenes),
    "text": (of_splits(rows_of_five, ".txt"), "[ones, intensity]", _NAMED, run_scenes),
}


BY_DAY = ("s3dis", "nuscenes", "scannet", "ply", "numpy")


@pytest.mark.parametrize("layout", BY_DAY)
def test_layouts_are_trained_on_and_evaluated(tmp_path, layout):
    """The others at night."""
    require_training_and_evaluation(tmp_path, layout)


def require_training_and_evaluation(tmp_path, layout):
    import paddle

    make, features, options, prepare = LAYOUTS[layout]
    (tmp_path / "raw").mkdir()
    make(tmp_path / "raw")
    prepare([str(tmp_path / "raw"), str(tmp_path / "store"), "--workers=1", *options])
    words = ["-dataset=scenes", f"-data_path={tmp_path / 'store'}", "DATA.VOXEL_SIZE_M", "0.4", "MODEL.NAME"]
    words += ["minkunet_tutorial", "TASK", "semantic_segmentation", "POINTS.FEATURES", features]
    task = SemanticSegmentation(settings.load(words).values)
    train, val = (task.build_dataset(split, tmp_path) for split in ("train", "val"))
    model = task.build_model()
    optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
    before = [parameter.numpy().copy() for parameter in model.parameters()]
    for update in range(2):
        batch = tensors(task.collate([train.sample(0, np.random.default_rng(update))]))
        loss = task.train_step(model, batch, StepPosition(1, update, 2))["loss"]
        (loss.sum / loss.count).backward()
        optimizer.step()
        optimizer.clear_grad()
    assert any((now.numpy() != then).any() for now, then in zip(model.parameters(), before))
    model.eval()
    metrics = task.build_metrics()
    task.eval_step(model, tensors(task.collate([val.sample(0, None)])), EvaluationStep(metrics))
    values = metrics.compute(metrics.state)
    assert values["points"] == (val.dataset.read(0).semantic >= 0).sum() > 0 and 0 <= values["mIoU"] <= 1
    assert json.loads((tmp_path / "store" / "prepared.json").read_text())["kind"] == layout.split()[0]
