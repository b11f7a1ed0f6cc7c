"""``-eval -split=NAME``: held-out splits, and those without labels, which are predicted and not scored."""

import sys

import numpy as np
import paddle
import pytest
from support.files.raw_scenes import write_scannet
from support.processes import ROOT, run_command, run_main
from support.trainings.runs import last_line, read_events, refused, well

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.task_factory import make_task

SEMANTIC = [
    f"-cfg={ROOT}/configs/minkunet14_synthetic_rooms.yaml",
    "MODEL.NAME",
    "minkunet_tutorial",
    "DATA.VOXEL_SIZE_M",
    "0.2",
]
INSTANCES = [f"-cfg={ROOT}/configs/pointgroup_synthetic_rooms.yaml", "MODEL.OPTIONS.width", "4"]
INSTANCES += ["MODEL.OPTIONS.repeats", "1", "DATA.VOXEL_SIZE_M", "0.1"]
LANDMARKS = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "1"]
LANDMARKS += ["VOLUMES.CROP_SIZE", "[8,12,10]"]


def tool(*words):
    return run_command([sys.executable, "-m", "paddlevit_dist", *map(str, words)])


@pytest.fixture
def download(tmp_path):
    """ScanNet as downloaded: lists for training and validation, hidden scenes in a folder of their own."""
    root = tmp_path / "raw"
    for number, name in enumerate(("scene0000_00", "scene0001_00")):
        write_scannet(root / "scans" / name, name, seed=number)
    for number, name in enumerate(("scene0707_00", "scene0708_00", "scene0709_00")):
        write_scannet(root / "scans_test" / name, name, points=150 + number, seed=number, labeled=False)
    (root / "scannetv2_train.txt").write_text("scene0000_00\n")
    (root / "scannetv2_val.txt").write_text("scene0001_00\n")
    return root


def weights(tmp_path, *arguments):
    """A file of untrained weights."""
    task = make_task(settings.load([*arguments, f"-output={tmp_path / 'unused'}"]).values)
    task.build_dataset("val", tmp_path)
    path = tmp_path / "weights.pdparams"
    paddle.save(task.build_model().state_dict(), str(path))
    return f"-pretrained={path}"


def test_hidden_scenes_become_a_submission(download, tmp_path):
    store, output = tmp_path / "store", tmp_path / "out"
    prepared = well(tool("prepare", "scannet", download, store, "--workers=1"))
    assert "note: no list names the test scenes: the 3 in scans_test are used; the benchmark has 100" in prepared.out
    run = [*SEMANTIC, "-dataset=scannet", f"-data_path={store}", f"-output={output}", "-num_workers=0", "-batch_size=2"]
    known = weights(tmp_path, *run)
    ended = well(run_main("-eval", known, *run, "-split=test"))
    assert last_line(ended).endswith(
        f"no score: the 3 scenes of test have no labels; their predictions are in {output}/predictions"
    )
    (event,) = read_events(output)
    assert event["split"] == "test" and not {"mIoU", "accuracy", "loss"} & set(event)
    lines = {
        f"scene070{n}_00.txt": len((output / "predictions" / f"scene070{n}_00.txt").read_text().splitlines())
        for n in (7, 8, 9)
    }
    assert lines == {"scene0707_00.txt": 150, "scene0708_00.txt": 151, "scene0709_00.txt": 152}

    message = refused("-eval", known, *run, "-split=tset")
    assert "the list of the scenes of 'tset'" in message and "train, val, test" in message


def test_hidden_scenes_become_a_submission_of_instances(download, tmp_path):
    store, output = tmp_path / "store", tmp_path / "out"
    well(tool("prepare", "scannet", download, store, "--workers=1"))
    run = [
        *INSTANCES,
        "-dataset=scannet",
        f"-data_path={store}",
        f"-output={output}",
        "-num_workers=0",
        "-batch_size=2",
    ]
    known = weights(tmp_path, *run)
    ended = well(run_main("-eval", known, *run, "-split=test", "-ngpus=2"))
    assert "no score: the 3 scenes of test" in last_line(ended)
    assert len(list((output / "predictions").glob("scene07*_00.txt"))) == 3


def test_volumes_without_landmarks_are_predicted_in_the_split_of_any_name(tmp_path):
    generator = np.random.default_rng(0)
    for split, number in (("train", 1), ("val", 1), ("hidden", 2)):
        (tmp_path / "data" / split).mkdir(parents=True)
        for index in range(number):
            np.save(tmp_path / "data" / split / f"case{index}.npy", generator.normal(size=(8, 9, 10)).astype("float32"))
            if split != "hidden":
                (tmp_path / "data" / split / f"case{index}.csv").write_text("name,x,y,z\nnose,2,3,4\nchin,5,3,4\n")
    output = tmp_path / "out"
    run = [*LANDMARKS, "-dataset=landmarks", f"-data_path={tmp_path / 'data'}", f"-output={output}", "-num_workers=0"]
    known = weights(tmp_path, *run)
    ended = well(run_main("-eval", known, *run, "-split=hidden", "-batch_size=1"))
    assert "no score: the 2 volumes of hidden have no labels" in last_line(ended)
    rows = (output / "predictions" / "landmarks.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [
        ["case0", "chin"],
        ["case0", "nose"],
        ["case1", "chin"],
        ["case1", "nose"],
    ]
    assert {row.split(",")[6] for row in rows[1:]} == {""}  # no error is claimed
    assert "no split 'test' (-split): it has hidden, train, val" in refused("-eval", known, *run, "-split=test")
