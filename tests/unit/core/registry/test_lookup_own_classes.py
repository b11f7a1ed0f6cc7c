"""Classes of users: derived from our base classes, or refused with the line to write."""

from typing import Any

import numpy as np
import pytest
from paddle import nn
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.logging.callbacks import find_callbacks
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.dataset import Dataset, dataset_class
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.core.tasks.protocols import describe_samples
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.data.image_dataset import ImageDataset


class Squares(ImageDataset):
    """Images of one gray value each."""

    num_classes = 3

    def __init__(self, data_path: Any, split: str, cache_folder: Any) -> None:
        self.split = split

    def __len__(self) -> int:
        return 12

    def read(self, index: int) -> Any:
        return Image.new("RGB", (8, 8), (20 * index,) * 3), index % 3

    def describe(self, index: int) -> str:
        return f"square {index} of {self.split}"


class OfAnyTask(Dataset):
    pass


class Plain:
    """Of no base class."""


def test_a_task_trains_on_a_users_data_set(monkeypatch, tmp_path):
    monkeypatch.setitem(REGISTRY.datasets, "squares", Squares)
    task = make_task(settings.load(["-dataset=squares", "-image_size=8"]).values)
    samples = task.build_dataset("train", tmp_path)
    image, label = samples.sample(4, np.random.default_rng(0))
    assert image.shape == (3, 8, 8) and label == 1 and (image == 80).all()
    assert describe_samples(task, samples) == "12 images" and task.signature(samples) == {
        "samples": 12,
        "number of classes": 3,
    }


@pytest.mark.parametrize("target", [Plain, OfAnyTask, lambda path, split, folder: Squares(path, split, folder)])
def test_a_data_set_without_the_base_class_is_refused_in_a_line(monkeypatch, target):
    monkeypatch.setitem(REGISTRY.datasets, "squares", target)
    values = settings.load(["-dataset=squares", "-image_size=8"]).values
    wanted = r"not derived from ImageDataset: derive it \('from paddlevit_dist.images.data.image_dataset import Image"
    with pytest.raises(UserError, match=wanted):
        dataset_class(values, ImageDataset)


def test_so_are_tasks_models_and_callbacks(monkeypatch):
    for names in (REGISTRY.tasks, REGISTRY.models, REGISTRY.kinds["callback"]):
        monkeypatch.setitem(names, "plain", Plain)
    with pytest.raises(UserError, match=r"Plain is not derived from Task: .* paddlevit_dist.core.tasks.task import"):
        make_task(settings.load(["TASK", "plain"]).values)
    with pytest.raises(UserError, match=r"Plain is not derived from Model: .* paddlevit_dist.core.tasks.model import"):
        create_model("plain")
    monkeypatch.setitem(REGISTRY.models, "plain", lambda name, **options: nn.Linear(1, 1))
    with pytest.raises(UserError, match=r"<lambda> is not derived from Model"):
        create_model("plain")
    with pytest.raises(UserError, match=r"Plain is not derived from Callback"):
        find_callbacks(["plain"])


def test_a_data_set_of_other_samples_is_refused_with_those_that_fit():
    values = settings.load(["-dataset=synthetic_rooms"]).values
    with pytest.raises(
        UserError,
        match="synthetic_rooms holds scenes, but .* reads images; set DATA.DATASET to one of c",
    ):
        dataset_class(values, ImageDataset)
