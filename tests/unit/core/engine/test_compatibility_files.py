"""What checkpoints list of the samples of each kind of data, wherever they are, tells others from the run's own."""

import os
from pathlib import Path

import numpy as np
import pytest
from support.files.coco_writer import annotation, write_coco, write_image
from support.files.voc_writer import write_voc
from support.files.volume_files import voxels, world, write_landmarks, write_volume
from support.files.yolo_writer import LABELS, write_yolo

from paddlevit_dist.core.engine.compatibility import compare_files, list_samples
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.dataset import Dataset, TransformedDataset
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scene_store import CLASSES_FILE, list_file, scene_file, write_lines, write_scene


def write_folders(root, **splits):
    for split, names in splits.items():
        for number, name in enumerate(names):
            file = root / split / ("ant", "bee")[number % 2] / f"{name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            write_image(file, 20, 20, number)
    return ["-cfg=vit_digits", "-dataset=folder"]


def write_coco_files(root, **splits):
    for split, names in splits.items():
        images = [{"id": n, "file_name": f"{name}.png", "height": 20, "width": 30} for n, name in enumerate(names)]
        for image in images:
            write_image(root / f"{split}2017" / image["file_name"], 20, 30, image["id"])
        write_coco(root, [annotation(1, 0, [1, 1, 5, 5])], f"{split}2017", images)
    return ["-cfg=detr_shapes", "-dataset=coco"]


def write_devkit(root, **splits):
    write_voc(root, splits)
    return ["-cfg=detr_shapes", "-dataset=voc"]


def write_yolo_files(root, **splits):
    for split, names in splits.items():
        write_yolo(root, f"images/{split}", dict.fromkeys(names, LABELS["1"]), train="images/train", val="images/val")
    return ["-cfg=detr_shapes", "-dataset=yolo"]


def write_scenes(root, **splits):
    (root / "scenes").mkdir(parents=True)
    write_lines(root / CLASSES_FILE, ["wall", "floor"])
    for split, names in splits.items():
        write_lines(Path(list_file(root, split)), names)
        for name in names:
            xyz, label = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), np.zeros(20, np.int16)
            scene = Scene(xyz, np.zeros((20, 3), np.uint8), label, label, name)
            write_scene(Path(scene_file(root, name)), scene)
    return ["-cfg=minkunet_tutorial", "-dataset=scenes"]


def write_volumes(root, **splits):
    for split, names in splits.items():
        for name in names:
            write_volume(root / split / f"{name}.npz", voxels())
            write_landmarks(root / split / f"{name}.json", {"a": world([5, 5, 5])})
    return ["-cfg=landmark_unet3d", "-dataset=landmarks", "VOLUMES.MIRROR_PAIRS", "none"]


TRAIN, VAL = ["000001", "000002", "000003", "000004"], ["000005", "000006", "000007"]
KINDS = {  # and whether a file that is in the other split has the same name there
    "folder": (write_folders, False),
    "coco": (write_coco_files, False),
    "voc": (write_devkit, True),
    "yolo": (write_yolo_files, False),
    "scenes": (write_scenes, True),
    "volumes": (write_volumes, False),
}


def opened(write, root, **splits):
    words = [*write(root / "data", **splits), f"-data_path={root / 'data'}", f"-output={root / 'out'}"]
    task = make_task(load(words).values)
    (root / "cache").mkdir()
    return {split: task.build_dataset(split, root / "cache") for split in ("train", "val")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_val_are_known_wherever_they_are(tmp_path, kind):
    write, is_named_alike = KINDS[kind]
    lists = list_samples(opened(write, tmp_path / "a", train=TRAIN, val=VAL), {})
    names = lists["val names"].tobytes().decode().split("\0")
    assert (
        len(names) == 3
        and all(name in given for name, given in zip(VAL, sorted(names, key=os.path.basename)))
        and len(lists["train"]) == 4
    )
    assert not any(name.startswith("/") for name in names)
    moved = opened(write, tmp_path / "b", train=TRAIN, val=VAL)
    assert [compare_files(lists, split, samples.identities())[1] for split, samples in moved.items()] == ["", ""]
    others = opened(write, tmp_path / "c", train=TRAIN[1:], val=["000001", "000006", "000008"])["val"]
    crossed, said = compare_files(lists, "val", others.identities())
    assert said == ("1 trained on, 1 new, 2 gone" if is_named_alike else "2 new, 2 gone")
    assert crossed.tolist() == [0] * is_named_alike


@pytest.mark.parametrize(
    "root, described, is_known", [(None, "/a/b.png", False), ("/a", "/a/b.png", True), (None, "val 3", True)]
)
def test_paths_are_known_elsewhere_where_their_folder_is_left_out(root, described, is_known):
    class Own(Dataset):
        def __init__(self):
            self.root = root

        def __len__(self):
            return 1

        def describe(self, index):
            return described

    samples = TransformedDataset()
    samples.dataset = Own()
    assert (samples.identities() is not None) == is_known
