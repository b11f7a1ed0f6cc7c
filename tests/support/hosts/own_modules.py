"""Modules of a user: a dataset and a model."""

import sys
from pathlib import Path

import pytest

ENTRY = [sys.executable, "-m", "paddlevit_dist"]

STRIPES = """
from PIL import Image
import numpy as np
from paddlevit_dist import Key, register_dataset
from paddlevit_dist.images import ImageDataset
from .sizes import SIZE

class Stripes(ImageDataset):
    class_names = ["lying", "standing"]
    num_classes = 2
    keys = [Key("DATA.STRIPES.WIDTH", 2, "int", "pixels between stripes")]

    def __init__(self, width, split):
        self.width, self.size = width, {"train": 32, "val": 8}[split]

    @classmethod
    def open(cls, config, split, cache_folder):
        return cls(config.DATA.STRIPES.WIDTH, split)

    def __len__(self):
        return self.size

    def read(self, index):
        pixels = np.zeros((SIZE, SIZE, 3), np.uint8)
        pixels[:: self.width] = 255
        return Image.fromarray(pixels.swapaxes(0, 1) if index % 2 else pixels), index % 2

    def describe(self, index):
        return f"stripes {index}"
"""
MODEL = """
import paddle
from paddlevit_dist import register_model
from paddlevit_dist.core.tasks import Model

class Small(Model):
    def __init__(self, num_classes=2, image_size=16, in_channels=3):
        super().__init__()
        self.head = paddle.nn.Linear(in_channels * image_size * image_size, num_classes)

    def forward(self, images):
        return self.head(images.flatten(1))
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """A package of a user with a dataset, beside a file with a model."""
    package = tmp_path / "my_project"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sizes.py").write_text("SIZE = 16\n")
    (package / "data.py").write_text(STRIPES + '\nregister_dataset("stripes", Stripes)\n')
    (tmp_path / "my_model.py").write_text(MODEL + '\nregister_model("small", Small)\n')
    return tmp_path
