"""Images with much to recognize, and what people do to copies of them."""

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from paddlevit_dist.images.data.image_dataset import ImageDataset


def scene(generator: np.random.Generator, size: tuple[int, int] = (200, 150)) -> Image.Image:
    """An image of drawn clouds: noise whose amplitude falls with its frequency, as that of photographs does.

    Source: D. Field, "Relations between the statistics of natural images ...", JOSA A 4 (1987), section 3.
    """
    width, height = size
    rows, columns = np.fft.fftfreq(height)[:, None] * height, np.fft.fftfreq(width)[None] * width
    amplitude = 1 / np.maximum(np.hypot(rows, columns), 1) ** 1.3
    waves = generator.normal(size=(3, height, width)) + 1j * generator.normal(size=(3, height, width))
    common = generator.normal(size=(height, width)) + 1j * generator.normal(size=(height, width))
    planes = np.fft.ifft2((common + 0.4 * waves) * amplitude).real
    planes = (planes - planes.mean()) / planes.std() * 45 + generator.uniform(90, 150, size=(3, 1, 1))
    return Image.fromarray(np.clip(planes, 0, 255).astype(np.uint8).transpose(1, 2, 0))


def _stored(kind: str, quality: int) -> Callable[[Image.Image, np.random.Generator], Image.Image]:
    def store(image: Image.Image, _: np.random.Generator) -> Image.Image:
        file = io.BytesIO()
        image.save(file, kind, quality=quality)
        return Image.open(file).convert("RGB")

    return store


def _cropped(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    width, height = round(image.width * 0.95), round(image.height * 0.95)
    left = int(generator.integers(0, image.width - width, endpoint=True))
    top = int(generator.integers(0, image.height - height, endpoint=True))
    return image.crop((left, top, left + width, top + height))


CHANGES: dict[str, Callable[[Image.Image, np.random.Generator], Image.Image]] = {
    "half size": lambda image, _: image.resize((image.width // 2, image.height // 2), Image.Resampling.BICUBIC),
    "square": lambda image, _: image.resize((224, 224), Image.Resampling.BILINEAR),
    "jpeg": _stored("JPEG", 40),
    "webp": _stored("WEBP", 50),
    "brighter": lambda image, _: ImageEnhance.Brightness(image).enhance(1.25),
    "darker": lambda image, _: ImageEnhance.Brightness(image).enhance(0.75),
    "cropped": _cropped,
}


def write_leaking(root: Path, train: int = 20, val: int = 6, seed: int = 0) -> dict[str, str]:
    """``train`` and ``val`` with classes a and b; returns the files of val that are copies, with what was done."""
    generator = np.random.default_rng(seed)
    told = {}
    for split, number in (("train", train), ("val", val)):
        for index in range(number):
            folder = root / split / "ab"[index % 2]
            folder.mkdir(parents=True, exist_ok=True)
            scene(generator, (100, 75)).save(folder / f"{index:03d}.png", compress_level=1)
    for index, (name, change) in enumerate(_with_equals()):
        source = root / "train" / "ab"[index % 2] / f"{index:03d}.png"
        target = root / "val" / "ab"[index % 2] / f"copy_{index}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        if name == "same file":
            target.write_bytes(source.read_bytes())
        else:
            change(Image.open(source), generator).save(target, compress_level=9)
        told[str(target)] = name
    return told


def _with_equals() -> Iterator[tuple[str, Callable[[Image.Image, np.random.Generator], Image.Image]]]:
    yield "same file", lambda image, _: image
    yield "same content", lambda image, _: image
    yield from CHANGES.items()


class DrawnImages(ImageDataset):
    """Images in memory."""

    reading = None

    def __init__(self, images: Sequence[Image.Image]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> tuple[Image.Image, int]:
        return self.images[index], 0
