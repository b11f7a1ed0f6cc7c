"""Recipes for point clouds on tiny stores that our own commands prepare, from files as data sets are published."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.prepare.command import run_pth, run_scannet, run_scenes
from support.files.nuscenes import nuscenes
from support.files.other_scenes import pcd, pointcept, s3dis, semantic_kitti
from support.files.raw_scenes import make_points, write_pointgroup, write_scannet
from support.processes import ROOT
from support.trainings.scene_recipes import CLUSTERS, narrow

COARSE = "DATA.VOXEL_SIZE_M 0.5 POINTS.MAX_POINTS 60".split()  # each scene has more points, so that it is cropped
FEW_POINTS = "POINTS.INSTANCES.AP_MIN_POINTS 1".split()  # its instances are smaller than those that ScanNet scores
PAGE = "docs/tutorials/point_clouds.md"


def scannet(root: Path) -> dict[str, list[np.ndarray]]:
    """Four training scenes and two of validation; returns NYU's numbers of the points of each, by split."""
    written: dict[str, list[np.ndarray]] = {}
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        names = [f"scene{number:04}_00" for number in numbers]
        for number, name in zip(numbers, names):
            labels = write_scannet(root / "scans" / name, name, points=120 + 9 * number, seed=number)
            written.setdefault(split, []).append(labels)
        (root / f"scannetv2_{split}.txt").write_text("\n".join(names) + "\n")
    return written


def pointgroup(root: Path) -> None:
    """The files of PointGroup's preparation."""
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        for number in numbers:
            write_pointgroup(root / split, f"scene{number:04}_00", seed=number)


def clouds(root: Path, suffix: str = ".pcd") -> dict[str, list[np.ndarray]]:
    """Clouds, of PLY with points that the sensor did not measure, which a store skips; and names of their classes.

    Returns:
        The class of each measured point of each cloud, by split.
    """
    written: dict[str, list[np.ndarray]] = {"train": [], "val": []}
    root.mkdir(exist_ok=True)
    (root / "classes.txt").write_text("tree\nground\ncar\nroof\n")
    for split, numbers in (("train", range(4)), ("val", range(4, 6))):
        for number in numbers:
            path = root / split / f"{split}{number}{suffix}"
            if suffix == ".pcd":
                written[split].append(pcd(path, "binary", points=120, seed=number)["label"])
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            columns = make_points(120, number)
            columns["x"][::7] = np.nan
            labels = (columns["z"] > 0).astype(np.uint8)
            write_points(path, {**columns, "label": labels})
            written[split].append(labels[np.isfinite(columns["x"])])
    return written


def shapes(root: Path) -> None:
    """ModelNet as resampled: points and normals of three classes."""
    kinds = {"plant": (2, 1), "bed": (1, 4), "night_stand": (1, 2)}
    for place, split in enumerate(("train", "test")):
        names = [f"{kind}_{place}{number:03}" for kind, numbers in kinds.items() for number in range(numbers[place])]
        for seed, name in enumerate(names):
            folder = root / name.rpartition("_")[0]
            folder.mkdir(exist_ok=True)
            rows = np.random.default_rng(seed).normal(size=(60, 6))
            np.savetxt(folder / f"{name}.txt", rows, "%.5f", delimiter=",")
        (root / f"modelnet40_{split}.txt").write_text("\n".join(names) + "\n")
    (root / "modelnet40_shape_names.txt").write_text("\n".join(kinds) + "\n")


def of_large_scenes() -> list[str]:
    """The words of the page's command, with a smaller crop and without its own folders."""
    lines = (ROOT / PAGE).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    (command,) = [line.split() for line in lines if "POINTS.CROP block POINTS.CROP_SIZE_M" in line]
    assert command[:2] == ["./run_train_multi.sh", "-cfg=minkunet34c_scannet"]
    words = [word for word in command[2:] if not word.startswith(("-output", "-data_path"))]
    return [*words, "POINTS.CROP_SIZE_M", "1.5", "POINTS.MAX_POINTS", "60"]


Layout = tuple[Callable[[Path], Any], Callable[[list[str]], None] | None]
LAYOUTS: dict[str, Layout] = {
    "scannet": (scannet, run_scannet),
    "pth": (pointgroup, run_pth),
    "nuscenes": (lambda root: nuscenes(root, scans=4), run_scenes),
    "s3dis": (lambda root: s3dis(root, areas=(1, 2, 5), points=40), run_scenes),
    "semantic_kitti": (lambda root: semantic_kitti(root, ("00", "01", "08"), points=120), run_scenes),
    "pcd": (clouds, run_scenes),
    "pointcept": (lambda root: pointcept(root, ("train",) * 4 + ("val",) * 2), run_scenes),
    "areas of pointcept": (
        lambda root: pointcept(root, ("Area_1", "Area_1", "Area_2", "Area_2", "Area_5"), label="segment", classes=13),
        run_scenes,
    ),
    "ply": (lambda root: clouds(root, ".ply"), run_scenes),
    "modelnet40": (shapes, None),
}
SCENES = "-dataset=scenes"
#: recipe, layout, and what the command says besides the recipe
STORES: dict[str, tuple[str, str, list[str]]] = {
    "tutorial": ("minkunet_tutorial", "s3dis", [SCENES, *COARSE, "POINTS.MIX_PROB", "1"]),
    "skipped points": ("minkunet_tutorial", "ply", [SCENES, *COARSE, "POINTS.AUGMENT.DROPOUT", "0.5"]),
    "spheres": ("minkunet_tutorial_original", "pcd", [SCENES, *COARSE, "POINTS.CROP", "sphere"]),
    "instances": ("pointgroup_synthetic_rooms", "pth", [SCENES, *COARSE, *CLUSTERS, *FEW_POINTS]),
    "shapes": ("mink_classifier_solids", "modelnet40", ["-dataset=modelnet40", "SHAPES.VOXEL_SIZE", "0.25"]),
    "scannet": ("minkunet34c_scannet", "scannet", COARSE),
    "large scenes": ("minkunet34c_scannet", "scannet", of_large_scenes()),
    "nuscenes": ("minkunet34c_nuscenes", "nuscenes", ["DATA.VOXEL_SIZE_M", "2"]),
    "instances of scannet": ("pointgroup_scannet", "scannet", [*COARSE, *CLUSTERS, *FEW_POINTS]),
    "sorted scannet": ("ptv3_scannet", "pointcept", [*COARSE, *narrow("ptv3_scannet")]),
    "sonata": ("ptv3_scannet_sonata", "pointcept", [*COARSE, *narrow("ptv3_scannet_sonata")]),
    "sorted rooms": ("ptv3_s3dis", "areas of pointcept", [*COARSE, *narrow("ptv3_s3dis")]),
    "sorted scans": ("ptv3_nuscenes", "nuscenes", ["DATA.VOXEL_SIZE_M", "2", *narrow("ptv3_nuscenes")]),
    "sorted points": ("ptv3_synthetic_rooms", "pcd", [SCENES, *COARSE, *narrow("ptv3_synthetic_rooms")]),
    "rooms": ("minkunet14_synthetic_rooms", "s3dis", [SCENES, *COARSE]),
    "scans": ("minkunet14_synthetic_rooms", "semantic_kitti", [SCENES, *COARSE, "POINTS.FEATURES", "[xyz, intensity]"]),
}
