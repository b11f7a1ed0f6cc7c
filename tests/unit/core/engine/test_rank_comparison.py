"""What a run says of itself before its first update, and what machines compare: the same data in another place
agree, and whatever differs is named."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from paddle import nn
from support.files import volume_files
from support.files.yolo_writer import write_yolo
from support.refusals import refusal_of
from support.samples.small_scenes import make_scene
from support.thread_ranks import ThreadRanks
from support.trainings.runs import write_single_folder

from paddlevit_dist import UserError, all_gather
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import rank_comparison
from paddlevit_dist.core.engine.startup_log import describe_training
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.tasks.step_types import TaskTraits
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.points.data.scene_store import write_scene


def images(root):
    for split in ("train", "val"):
        write_single_folder(root / split, {"ant": 3, "bee": 3})


def boxes(root):
    for split in ("train", "val"):
        write_yolo(root, f"images/{split}", names=None)
    (root / "data.yaml").write_text("names: [cat, dog, cow]\ntrain: images/train\nval: images/val\n")


def scenes(root):
    (root / "scenes").mkdir(parents=True)
    for number, name in enumerate("ab"):
        write_scene(root / "scenes" / f"{name}.scene", make_scene(seed=number, name=name))
        (root / f"{('train', 'val')[number]}.txt").write_text(f"{name}\n")
    (root / "classes.txt").write_text("wall\nfloor\ndoor\nbed\nbox\n")


def volumes(root):
    for split in ("train", "val"):
        volume_files.write_volume(root / split / "head.npz")
        volume_files.write_landmarks(root / split / "head.csv", {"nose": volume_files.world((3, 4, 5))})


OPTIONS = {
    images: ["-dataset=folder"],
    boxes: ["TASK=detection", "-dataset=yolo", "MODEL.NAME=detr_resnet50"],
    scenes: ["TASK=semantic_segmentation", "-dataset=scenes", "MODEL.NAME=minkunet14"],
    volumes: ["TASK=landmarks", "-dataset=landmarks", "MODEL.NAME=unet3d"],
}
OTHER_CLASSES = make_scene(seed=0, name="a")
OTHER_CLASSES = OTHER_CLASSES._replace(semantic=np.roll(OTHER_CLASSES.semantic, 1))


def unchanged(root):
    pass


def machine(folder, write, change, *options):
    """Configuration, task and data of a machine that has its data in ``folder``."""
    write(folder / "data")
    change(folder / "data")
    (folder / "cache").mkdir()
    (folder / "out").mkdir()
    values = settings.load([*OPTIONS[write], f"-output={folder}/out", f"-data_path={folder}/data", *options]).values
    task = make_task(values)
    return values, task, {split: task.build_dataset(split, folder / "cache") for split in ("train", "val")}


def compare_with(function, *others):
    """Call a function in rank 0 while the other ranks show their machine and its facts."""
    return ThreadRanks(1 + len(others)).run(lambda rank: all_gather(others[rank - 1]) if rank else function())[0]


@pytest.fixture
def compare(tmp_path):
    """Compares a machine, as rank 0, with another whose data ``change`` has altered and which has more options."""

    def compare(write, change, *options, common=(), **facts):
        for folder in ("here", "far/away"):
            (tmp_path / folder).mkdir(parents=True)
        ours = machine(tmp_path / "here", write, unchanged, *common)
        theirs = machine(tmp_path / "far" / "away", write, change, *common, *options)
        other = {**rank_comparison.facts_from_machine(*theirs), **facts}
        contents = rank_comparison.peek_contents(theirs[-1])
        return compare_with(lambda: rank_comparison.assert_same_on_all_ranks(*ours), ("node2", other, contents))

    return compare


@pytest.mark.parametrize("write, samples", [(images, 12), (boxes, 6), (scenes, 2), (volumes, 2)])
def test_the_same_data_in_another_folder_are_the_same(compare, write, samples):
    told = f"data: {samples} drawn samples have the same size and begin alike on 2 machines (first MiB of each file)"
    assert compare(write, unchanged, "-num_workers=3") == [told]


def test_what_was_held_out_of_the_same_images_is_the_same(compare):
    compare(images, unchanged, common=["DATA.VAL_FRACTION", "0.4"])


def change_last_byte(file):
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def rename_class(root):
    for split in ("train", "val"):
        (root / split / "bee").rename(root / split / "wasp")


@pytest.mark.parametrize(
    "write, change, told",
    [
        (images, lambda root: (root / "train/ant/1.png").unlink(), "train samples 5 instead of 6"),
        (images, lambda root: (root / "val/ant/1.png").rename(root / "val/ant/4.png"), "its val names are different"),
        (images, rename_class, "train classes 1 wasp instead of bee"),
        (images, lambda root: change_last_byte(root / "val/ant/1.png"), r"its bytes of val sample 1 \(1.png\) are"),
        (volumes, lambda root: change_last_byte(root / "train/head.npz"), r"its bytes of train sample 0 \(head.npz\)"),
        (images, lambda root: (root / "train/ant/2.png").rename(root / "train/bee/3.png"), "its train labels are"),
        (boxes, lambda root: (root / "labels/train/1.txt").write_text("0 0.5 0.5 0.4 0.5\n"), "its train boxes are"),
        (scenes, lambda root: write_scene(root / "scenes/a.scene", OTHER_CLASSES), "its train points are different"),
        (
            volumes,
            lambda root: volume_files.write_landmarks(root / "val/head.csv", {"nose": volume_files.world((3, 4, 6))}),
            "its val landmarks are different",
        ),
    ],
)
def test_data_that_differ_are_named(compare, write, change, told):
    with pytest.raises(UserError, match=f"rank 1 on node2 differs from rank 0 on .*{told}"):
        compare(write, change)


def test_machines_compare_what_both_have_read_in_five_seconds(tmp_path, monkeypatch, simulated_time):
    *_, datasets = machine(tmp_path, images, unchanged)
    everything = rank_comparison.peek_contents(datasets)
    dataset = datasets["train"].dataset
    vars(dataset)["peek"] = lambda *at: simulated_time.sleep(4.0) or dataset.wrapped_dataset.peek(*at)
    first = rank_comparison.peek_contents(datasets)  # train and val in turns
    assert list(first) == list(everything)[:6] and len(everything) == 24  # two values of each sample
    monkeypatch.setenv("PADDLE_LOCAL_RANK", "1")
    assert rank_comparison.peek_contents(datasets) == {}


def test_settings_and_versions_that_differ_are_named(compare):
    told = r"0 on .*: paddle 9.9 instead of \S+; SEED 3 instead of 0; give all machines the same data"
    with pytest.raises(UserError, match=told):
        compare(images, unchanged, "SEED", "3", paddle="9.9")


@pytest.mark.parametrize("number, more", [(5, ""), (6, "; and 1 more"), (1205, "; and 1,200 more")])
def test_five_differences_are_named(number, more):
    ours, theirs = ({f"k{n}": n + offset for n in range(number)} for offset in (0, 1))
    same = {"same": 1}
    machines = [("node0", {**ours, **same}), ("node1", {**ours, **same}), ("node2", {**theirs, **same})]
    message = refusal_of(rank_comparison.require_same_facts, machines)
    named = "; ".join(f"k{n} {n + 1} instead of {n}" for n in range(5))
    assert message == (
        f"rank 2 on node2 differs from rank 0 on node0: {named}{more}; "
        "give all machines the same data, code and settings"
    )


@pytest.mark.parametrize("sides", [({}, {"val names": b"1"}), ({"val names": b"1"}, {})])
def test_digests_are_not_shown_even_if_one_rank_has_none(sides):
    with pytest.raises(UserError, match="rank 1 on node1 differs from rank 0 on .*: its val names are different; give"):
        rank_comparison.require_same_facts([("node0", sides[0]), ("node1", sides[1])])


def test_ranks_of_one_parent_are_not_compared(own_handlers):
    signals.forward_to_parent(os.getppid(), False, lambda number, again: None)
    assert rank_comparison.assert_same_on_all_ranks(None, None, {}) == []


def make_said(model):
    config = SimpleNamespace(DATA={"CLASS_BALANCED": False})
    sampler = SimpleNamespace(dataset=range(8), updates_per_epoch=4, global_batch_size=2, repeats=1)
    return describe_training(config, SimpleNamespace(traits=TaskTraits(sample_name="images")), model, sampler)


def test_only_parameters_that_learn_are_counted():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm2D(4), nn.Linear(4, 2))
    assert make_said(model) == "training 34 parameters, 4 updates per epoch"  # 12 + 4, 4 + 4 without statistics, 8 + 2
    for parameter in model[0].parameters():
        parameter.stop_gradient = True
    assert make_said(model) == "training 18 parameters (16 more are fixed), 4 updates per epoch"
