"""What the writers of data share: files, and drawn images with their objects."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.data.synthetic_shapes import SyntheticShapes

if TYPE_CHECKING:
    from .materials import Materials

Maker = Callable[[Path, "Materials"], None]  # writes a data set to a folder, from others if it needs them
SHAPES = ("circle", "square", "triangle")
SIDES = (44, 72)  # of drawn images, px
COUNTS = {"train": 24, "val": 7}


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def list_images(split: str) -> Iterator[tuple[int, Image.Image, ImageAnnotations]]:
    drawn = SyntheticShapes(None, split, None, COUNTS["train"], COUNTS["val"], SIDES)
    for index in range(len(drawn)):
        yield index, *drawn.read(index)
