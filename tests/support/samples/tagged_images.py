"""Images with several labels, some of which are not known, and a task that reads them."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core import settings
from paddlevit_dist.images import ImageDataset
from paddlevit_dist.images.multi_label.task import MultiLabel
from support.registrations import forgotten

NAMES = ["wing", "hull", "antenna"]
WORDS = (
    "-cfg=multi_digits -dataset=tagged_images DATA.IMAGE_SIZE 16 MODEL.NAME vit MODEL.PATCH_SIZE 8 MODEL.EMBED_DIM 16 "
    "MODEL.DEPTH 1 MODEL.NUM_HEADS 2 MODEL.MLP_RATIO 2.0 DATA.IMAGE_CHANNELS 3 MODEL.DEPTHS None MODEL.DIMS None"
).split()


class TaggedImages(ImageDataset):
    """Random images of 20 x 24 pixels; a third of the labels is not known, and nobody has a label of image 2."""

    class_names = NAMES
    num_classes = len(NAMES)
    lost: int | None = None  # an image that cannot be read

    def __init__(self, data_path: str | None, split: str, cache_folder: Path | None) -> None:
        self.seed = 1 if split == "train" else 2
        random = np.random.default_rng(self.seed)
        self.label_matrix = random.integers(-1, 2, (23 if split == "train" else 11, len(NAMES)), np.int8)
        self.label_matrix[2] = -1

    def __len__(self) -> int:
        return len(self.label_matrix)

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        if index == self.lost:
            raise UserError(f"{self.describe(index)} is gone")
        pixels = np.random.default_rng([self.seed, index]).integers(0, 256, (20, 24, 3), np.uint8)
        return Image.fromarray(pixels), self.label_matrix[index]

    def describe(self, index: int) -> str:
        return f"image {index} of {self.seed}"


def make_task(*words: str, folder: Path) -> tuple[MultiLabel, dict[str, Any]]:
    """The task of small networks with its opened splits."""
    with forgotten():
        register_dataset("tagged_images", TaggedImages)
        task = MultiLabel(settings.load([*WORDS, f"-output={folder}", *words]).values)
        return task, {split: task.build_dataset(split, folder) for split in ("train", "val")}
