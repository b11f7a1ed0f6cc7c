"""Scenes of other programs and data sets: prepared, trained on and evaluated."""

import json

import numpy as np
import pytest
from support.files.nuscenes import nuscenes
from support.files.other_scenes import las, pcd, pointcept, s3dis, semantic_kitti
from support.files.raw_scenes import write_labeled_ply, write_pointgroup, write_scannet
from support.samples.small_scenes import tensors

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.points.prepare.command import run_scannet, run_scenes
from paddlevit_dist.points.segmentation.task import SemanticSegmentation


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
