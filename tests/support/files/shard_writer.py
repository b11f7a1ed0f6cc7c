"""Tar shards of small random images with label files, as WebDataset has them."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def make_image(number: int, size: tuple[int, int] = (24, 20)) -> bytes:
    """A PNG file of noise of its own, ``size`` (width, height)."""
    out = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_shards(folder: Path, split: str, numbers: Sequence[int], per_shard: int = 4, classes: int = 3) -> None:
    """Write the images of ``numbers``, whose classes are their remainders, as ``split-00000.tar``, ..."""
    folder.mkdir(exist_ok=True, parents=True)
    for shard, first in enumerate(range(0, len(numbers), per_shard)):
        with tarfile.open(folder / f"{split}-{shard:05d}.tar", "w") as tar:
            for number in numbers[first : first + per_shard]:
                files = {f"{number:04d}.png": make_image(number), f"{number:04d}.cls": b"%d" % (number % classes)}
                for name, content in files.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
