"""Samples that must not be computed with are named where they are read, in training and in evaluation."""

import re
from collections import namedtuple

import numpy as np
import pytest
from support.processes import ROOT
from support.samples.bad_samples import Changed
from support.samples.remembered_rooms import remembered_rooms  # noqa: F401
from support.trainings.small_runs import build

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import EvaluationSampler
from paddlevit_dist.core.registry import register
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.class_labels import require_label
from paddlevit_dist.core.tasks.protocols import get_sample_check
from paddlevit_dist.core.tasks.sample_checks import BadSample, require_finite, require_labels
from paddlevit_dist.core.tasks.task import Task
from paddlevit_dist.images.data.image_dataset import ImageDataset

ROOMS = ["-dataset=remembered_rooms", "POINTS.ROOMS.TRAIN", "3", "POINTS.ROOMS.VAL", "3"]
ROOMS += ["POINTS.ROOMS.SPACING_M", "0.2", "DATA.VOXEL_SIZE_M", "0.3", "-num_workers=0"]
SEMANTIC = ["TASK", "semantic_segmentation", "MODEL.NAME", "minkunet_tutorial", *ROOMS]
INSTANCES = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", *ROOMS]
VOLUMES = [f"-cfg={ROOT / 'configs' / 'landmark_unet3d.yaml'}"]
LARGEST = 2**63 - 1


class ChangedDataset:
    """The same for what a dataset reads, before it is augmented and cut."""

    def __init__(self, dataset, change):
        self.dataset, self.change = dataset, change

    def __len__(self):
        return 3

    def read(self, index):
        sample = self.dataset.read(index)
        return self.dataset.make_sample(self.change(sample)) if index == 2 else sample

    def describe(self, index):
        return self.dataset.describe(index)


def labeled(label):
    return lambda sample: (sample[0], label, *sample[2:])


def with_value(value):
    def change(sample):
        image = sample[0].astype(np.float32)
        image[0, 3, 4] = value
        return (image, *sample[1:])

    return change


@pytest.mark.parametrize("label", [-1, 10, LARGEST, float("nan")])
@pytest.mark.parametrize("split", ["train", "val"])
def test_a_label_that_is_no_class_names_sample_and_rank(tmp_path, split, label):
    message = refused_by_run(tmp_path, split, labeled(label))
    shown = "expected the whole number" if label != label else f"label {int(label)} is out of range"
    assert shown in message


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("split", ["train", "val"])
def test_an_image_that_is_not_finite_names_sample_and_rank(tmp_path, split, value):
    message = refused_by_run(tmp_path, split, with_value(value))
    assert f"image[0, 3, 4] is {value}" in message


def refused_by_run(tmp_path, split, change):
    """The message of a training or an evaluation with one changed sample."""
    trainer = build(str(tmp_path / "out"), "-epochs=1", "-batch_size=8", train_size=16, val_size=16)
    sampler = EvaluationSampler(trainer.datasets[split], 8, rank=0, world_size=1)
    samples = Changed(trainer.datasets[split], 16, change)
    with pytest.raises(UserError) as caught:
        if split == "val":
            task = trainer.task
            loader = DeviceLoader(samples, sampler, task.collate, check=task.check_sample, num_workers=0, seed=0)
            trainer.evaluator.loader = loader
            trainer.evaluator("evaluation")
        else:
            trainer.datasets["train"] = samples
            trainer.train()
    message = str(caught.value)
    assert re.match(r"sample 5 \(sample \d+ of .*digits\.npz\), read by rank 0: ", message), message
    return message


def read_all(words, split, change, num_workers=0):
    """Read all samples of a split of which one is changed, and return the message."""
    values = settings.load(words).values
    task = resolve("task", values.TASK)(values)
    samples = task.build_dataset(split, None)
    object.__setattr__(samples, "dataset", ChangedDataset(samples.dataset, change))
    sampler = EvaluationSampler(samples, 1, rank=0, world_size=1)
    loader = DeviceLoader(samples, sampler, task.collate, check=task.check_sample, num_workers=num_workers, seed=0)
    with pytest.raises(UserError) as caught:
        list(loader)
    assert re.match("sample 2(, read by rank 0)?: ", str(caught.value)), caught.value
    return str(caught.value)


class Exposing(ImageDataset):
    """Images of three classes with the labels 0, 1 and -1."""

    num_classes, class_names, labels = 3, ["a", "b", "c"], np.array([0, 1, -1])
    read = None

    def __init__(self, data_path, split, cache_folder):
        self.split = split

    def __len__(self):
        return 3

    def describe(self, index):
        return f"{self.split} photo {index}"


def test_labels_that_a_dataset_exposes_are_checked_when_it_is_opened(tmp_path):
    register.register_dataset("exposing", Exposing)
    try:
        values = settings.load(["-dataset=exposing", "-num_classes=3"]).values
        with pytest.raises(UserError, match="^val photo 2 has label -1, but dataset exposing has 3 classes"):
            resolve("task", values.TASK)(values).build_dataset("val", tmp_path)
    finally:
        del REGISTRY.datasets["exposing"]


def in_scene(field, value, row=7):
    def change(scene):
        array = np.array(getattr(scene, field), np.int64 if isinstance(value, int) else np.float32)
        array[row] = value
        return scene._replace(**{field: array})

    return change


@pytest.mark.parametrize("words", [SEMANTIC, INSTANCES], ids=["semantic", "instances"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_bad_points_are_named(words, split):
    assert "xyz[7, 0] is nan" in read_all(words, split, in_scene("xyz", np.nan))
    assert "rgb[7, 0] is inf" in read_all(words, split, in_scene("rgb", np.inf))
    for label in (-1, 20, LARGEST):
        assert f"semantic[0] is {label:.6g}, which is out of range" in read_all(
            words, split, in_scene("semantic", label, ...)
        )
    message = read_all(words, split, in_scene("instance", LARGEST))
    assert re.search(r"instance \d+ is out of range, expected 0 to \d+$", message)


def test_a_bad_volume_is_named():
    def not_finite(read):
        decoded, points = read
        return decoded._replace(array=np.full(decoded.array.shape, np.nan, np.float32)), points

    def infinite(read):
        return read[0], np.where(np.arange(3) == 1, np.inf, read[1])

    for split in ("train", "val"):
        assert "volume[0, 0, 0, 0] is nan" in read_all(VOLUMES, split, not_finite)
        assert "has an infinite coordinate" in read_all(VOLUMES, split, infinite)


def test_the_default_check_looks_into_what_users_return():
    check = get_sample_check(Task(None))
    check({"a": [1.0, (2, "text", None)], "b": np.arange(3), "c": np.zeros((0, 2))})
    for sample, named in (
        ({"a": [1.0, float("nan")]}, "a.part 1 is nan"),
        ((np.ones(3), {"x": np.array([1.0, np.inf])}), r"part 1.x\[1\] is inf"),
        (np.float16("-inf"), "a number is -inf"),
    ):
        with pytest.raises(BadSample, match=named):
            check(sample)


def test_numbers_that_are_fine_pass():
    require_finite(np.array([np.finfo(np.float32).max, -np.finfo(np.float32).max] * 2, np.float32))
    for label in (0, 9, np.uint8(9), True, 3.0, np.array(4), np.array([4]), "4"):
        require_label(label, 10)
    require_label(np.full(10, 0.1), 10)  # shares of the classes
    require_label(LARGEST, None)
    require_labels(np.array([0, 4, -100]), 5, -100, "class")


NESTED: list = [float("nan")]
for _ in range(7):
    NESTED = [NESTED]
SCENE = namedtuple("SCENE", "xyz label")


@pytest.mark.parametrize(
    "value, name, said",
    [
        (np.array([[1.0, np.nan], [np.inf, 2.0]]), "xyz", "xyz[0, 1] is nan; 2 of its 4 numbers are not finite"),
        (np.array(-np.inf), "", "an array is -inf; 1 of its 1 numbers are not finite"),
        (np.array([1, complex(2, np.inf)]), "k", "k[1] is (2+infj); 1 of its 2 numbers are not finite"),
        (np.array([1.0, -np.inf], np.float16), "", "an array[1] is -inf; 1 of its 2 numbers are not finite"),
        (np.full(1200, np.nan), "", "an array[0] is nan; 1,200 of its 1,200 numbers are not finite"),
        (np.float32("inf"), "", "a number is inf, expected a finite number"),
        (SCENE(np.ones(2), float("inf")), "", "label is inf, expected a finite number"),
        ({"a": (1.0, {3: float("nan")})}, "sample", "sample.a.part 1.3 is nan, expected a finite number"),
        (NESTED, "", ".".join(["part 0"] * 8) + " is nan, expected a finite number"),
    ],
)
def test_the_first_number_that_is_not_finite_is_named(value, name, said):
    with pytest.raises(BadSample) as told:
        require_finite(value, name)
    assert str(told.value) == f"{said}; repair or remove the sample"


def test_finite_numbers_and_other_values_pass():
    require_finite([NESTED])  # deeper than is looked
    require_finite((np.zeros((0, 3)), np.arange(3), np.array(["nan"]), "nan", None, 10**400, np.array([1j, 2.0])))
    require_finite({"a": [[], {}, ()], "b": {float("nan")}})


@pytest.mark.parametrize(
    "label, classes, said",
    [
        (3, 3, "label 3 is out of range: with 3 classes labels go from 0 to 2"),
        (np.array([-1]), None, "label -1 is out of range: classes count from 0"),
        ("7", 5, "label 7 is out of range: with 5 classes labels go from 0 to 4"),
        (0, 0, "label 0 is out of range: with 0 classes labels go from 0 to -1"),
        (1.5, 3, "label is 1.5, expected the whole number of a class; repair or remove the sample"),
        ("cat", 3, "label is 'cat', expected the whole number of a class; repair or remove the sample"),
        (None, 3, "label is None, expected the whole number of a class; repair or remove the sample"),
        ([], 3, "label is [], expected the whole number of a class; repair or remove the sample"),
        (float("inf"), 3, "label is inf, expected the whole number of a class; repair or remove the sample"),
        ([0.5, np.nan], 3, "label[1] is nan; 1 of its 2 numbers are not finite; repair or remove the sample"),
    ],
)
def test_a_label_that_is_no_class_is_refused(label, classes, said):
    with pytest.raises(BadSample) as told:
        require_label(label, classes)
    assert str(told.value) == said


@pytest.mark.parametrize(
    "labels, classes, element, said",
    [
        (
            [0, 9, 2, 3],
            3,
            "point",
            "point 3 has class 3, which is out of range, as 1 of 4 points are: with 3 classes "
            "labels go from 0 to 2, and 9 means no class",
        ),
        (
            [0, -1, 9, -2],
            None,
            "voxel",
            "voxel 1 has class -1, which is out of range, as 2 of 4 voxels are: classes "
            "count from 0, and 9 means no class",
        ),
    ],
)
def test_the_first_of_bad_labels_is_named(labels, classes, element, said):
    with pytest.raises(BadSample) as told:
        require_labels(np.array(labels), classes, 9, "class", element)
    assert str(told.value) == said
    require_labels(np.array([0, 9, 9**9]), None, 9, "class")
