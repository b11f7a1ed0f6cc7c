"""Classes registered without our base classes: their own attributes first, then our defaults, in every process."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import config, registry
from paddlevit_dist.contracts.adapter import adopt, adopt_class
from paddlevit_dist.contracts.dataset import Dataset, Samples, dataset_class
from paddlevit_dist.contracts.task import Task, make_task
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.runtime.errors import UserError


class Squares:
    """Pictures of one grey value each, as a user writes them who knows ``read`` and ``num_classes`` only."""

    num_classes = 3

    def __init__(self, data_path: Any, split: str, cache_folder: Any) -> None:
        self.split = split
        self.opened = object()  # cannot be pickled to another process and found there

    def __getstate__(self) -> Any:
        return {"split": self.split}

    def __len__(self) -> int:
        return 12

    def read(self, index: int) -> Any:
        return Image.new("RGB", (8, 8), (20 * index,) * 3), index % 3

    def describe(self, index: int) -> str:
        return f"square {index} of {self.split}"


class Plain:
    """A task without the base class."""

    sample_name = "squares"

    def __init__(self, values: Any) -> None:
        self.values = values

    def collate(self, samples: Any) -> Any:
        return {"sum": np.array(samples).sum()}


@pytest.fixture(params=["class", "function"])
def squares(request, monkeypatch):
    target = Squares if request.param == "class" else (lambda path, split, folder: Squares(path, split, folder))
    monkeypatch.setitem(registry.DATASETS, "squares", target)
    return config.load(["-dataset=squares", "-image_size=8"]).values


def test_a_users_data_set_has_its_own_attributes_and_our_defaults(squares):
    dataset = dataset_class(squares, ImageDataset).open(squares, "val", Path("unused"))
    assert isinstance(dataset, ImageDataset) and dataset.describe(2) == "square 2 of val" and len(dataset) == 12
    assert (dataset.holds, dataset.class_names, dataset.num_classes, dataset.labels) == ("pictures", None, 3, None)
    assert (dataset.kind, dataset.reading, dataset.left_out, list(dataset.notices)) == ("photo", None, None, [])


def test_it_travels_to_other_processes_by_its_own_pickle(squares):
    dataset = dataset_class(squares, ImageDataset).open(squares, "train", Path("unused"))
    there = pickle.loads(pickle.dumps(dataset))
    assert isinstance(there, ImageDataset) and there.describe(1) == "square 1 of train" and there.kind == "photo"
    assert not hasattr(there, "opened")


def test_a_task_trains_on_it(squares, tmp_path):
    task = make_task(squares)
    samples = task.build_dataset("train", tmp_path)
    image, label = samples.sample(4, np.random.default_rng(0))
    assert image.shape == (3, 8, 8) and label == 1 and (image == 80).all()
    assert task.describe_samples(samples) == "12 images" and task.about_data(samples) == {
        "samples": 12,
        "number of classes": 3,
    }


def test_a_task_without_the_base_class_gets_its_defaults(monkeypatch):
    monkeypatch.setitem(registry.TASKS, "plain", Plain)
    values = config.load(["TASK", "plain"]).values
    task = make_task(values)
    assert isinstance(task, Task) and task.values is values and task.describe_samples([1, 2]) == "2 squares"
    assert list(task.notices) == []
    assert pickle.loads(pickle.dumps(task)).collate([1, 2, 3]) == {"sum": 6}


def test_what_has_the_base_class_stays_what_it_is():
    assert adopt_class(ImageDataset, Dataset) is ImageDataset

    class Own(Samples):
        pass

    own = Own()
    assert adopt(own, Samples) is own and type(own) is Own


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str


class Slotted:
    __slots__ = ("name",)


def test_instances_of_frozen_classes_and_classes_with_slots_are_adopted():
    assert adopt(Frozen("one"), Samples).name == "one"
    slotted: Any = adopt_class(Slotted, Samples)()
    slotted.name = "two"
    assert isinstance(slotted, Samples) and slotted.name == "two"
    with pytest.raises(UserError, match="Slotted cannot serve as Samples: derive it from that class"):
        adopt(Slotted(), Samples)


def test_a_data_set_of_other_samples_is_refused_with_those_that_fit():
    values = config.load(["-dataset=synthetic_rooms"]).values
    with pytest.raises(UserError, match="synthetic_rooms holds scenes, but TASK classification reads pictures: take c"):
        dataset_class(values, ImageDataset)
