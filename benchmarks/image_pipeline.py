"""Images per second from JPEG files to batches in the training process.

Contenders, each through ``paddle.io.DataLoader`` with 0, 1 and 2 worker processes, random resized crop to 224 and flip:

- PaddleViT style: paddle.vision transforms (Pillow, bicubic), to tensor, normalize: float32 samples; the loader starts
  its processes again in each epoch, as PaddleViT's drivers do. With RandAugment as PaddleViT has it (Pillow, nearest
  neighbor for shears, shifts and rotations, where ours are bicubic as timm's)
- exact: ours with Pillow, uint8 samples, normalized on the device
- fast: ours with OpenCV
- prepared: exact on tar shards of JPEGs whose shorter side is 320
- pages: exact on tar shards of the same images as they are, decoded (``--store pages``)
- RandAugment (rand-m9-mstd0.5-inc1) added to exact, fast and pages

``timm`` with the torch loader joins if both are installed. Needs scikit-image, scikit-learn and OpenCV beside the
package. In a round every contender reads all training images EPOCHS times; ratios are taken within a round.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
from photographs import write_folder
from PIL import Image
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import sized

BATCH, SIZE, EPOCHS = sized(32, 4), 224, sized(3, 1)
RAND_AUGMENT = "rand-m9-mstd0.5-inc1"


class PaddleVitStyle:
    """One sample as PaddleViT's dataset makes it."""

    def __init__(self, dataset: Any, augment: bool) -> None:
        from paddle.vision import transforms

        self.dataset = dataset
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(size=(SIZE, SIZE), interpolation="bicubic"),
                transforms.RandomHorizontalFlip(),
                *([NearestRandAugment()] if augment else []),
                transforms.ToTensor(),
                transforms.Normalize(mean=[0.5] * 3, std=[0.5] * 3),
            ]
        )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.transform(Image.open(self.dataset.describe(index)).convert("RGB")), self.dataset.labels[index]


class NearestRandAugment:
    """RandAugment as PaddleViT does it: the same operations and magnitudes, geometry by the nearest neighbor."""

    def __init__(self) -> None:
        from paddlevit_dist.images.transforms.policies import parse_rand_augment

        self.generator = np.random.default_rng(0)
        self.chosen = parse_rand_augment(RAND_AUGMENT)

    def __call__(self, image: Any) -> Any:
        from paddlevit_dist.images.transforms.operations import OPERATIONS

        for name in self.chosen.choose(self.generator):
            if self.generator.random() < self.chosen.probability:
                magnitude = self.chosen.spread.draw(self.chosen.magnitude, self.generator)
                parameter = OPERATIONS[name].parameter(magnitude / 10, self.generator)
                image = self.nearest(name, image, parameter) or OPERATIONS[name].apply(image, parameter, (128,) * 3)
        return image

    def nearest(self, name: str, image: Any, amount: float) -> Any:
        """The shear, shift or rotation ``name`` without interpolation; None for other operations."""
        if name == "Rotate":
            return image.rotate(amount)
        rows = {
            "ShearX": lambda: (1, amount, 0, 0, 1, 0),
            "ShearY": lambda: (1, 0, 0, amount, 1, 0),
            "TranslateXRel": lambda: (1, 0, amount * image.width, 0, 1, 0),
            "TranslateYRel": lambda: (1, 0, 0, 0, 1, amount * image.height),
        }.get(name)
        return rows and image.transform(image.size, Image.Transform.AFFINE, rows(), fillcolor=(128,) * 3)


def paddlevit_round(dataset: Any, workers: int, augment: bool = False) -> Callable[[], float]:
    import paddle

    samples = PaddleVitStyle(dataset, augment)

    def measure() -> float:
        loader = paddle.io.DataLoader(
            samples, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers, return_list=True
        )
        started, count = time.perf_counter(), 0
        for _ in range(EPOCHS):
            for images, _ in loader:
                assert images.shape[1:] == [3, SIZE, SIZE]
                count += images.shape[0]
        return count / (time.perf_counter() - started)

    return measure


def our_round(folder: Path, cache: Path, workers: int, *overrides: str, dataset: str = "folder") -> Callable[[], float]:
    """Our loader on this folder, with the normalization that the task does on the device."""
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.data.loader import DeviceLoader
    from paddlevit_dist.core.data.sampler import TrainingSampler
    from paddlevit_dist.core.registry.lookup import resolve

    arguments = [f"-dataset={dataset}", f"-data_path={folder}", f"-image_size={SIZE}", f"-batch_size={BATCH}"]
    values = settings.load([*arguments, *overrides]).values
    task = resolve("task", values.TASK)(values)
    samples = task.build_dataset("train", cache)
    transform = samples.transform
    getattr(transform, "exact", transform).prepare()  # before loader processes are forked, as the task does
    sampler = TrainingSampler(samples, BATCH, rank=0, world_size=1)
    loader = DeviceLoader(samples, sampler, task.collate, num_workers=workers, seed=0)
    first_epochs = iter(range(1, 1_000_000, EPOCHS))

    def measure() -> float:
        first = next(first_epochs)
        started, count = time.perf_counter(), 0
        for batch in loader.epochs(first, first + EPOCHS - 1):
            images = task.normalize(batch["images"])
            count += images.shape[0]
        images[0, 0, 0, 0].item()
        return count / (time.perf_counter() - started)

    return measure


def timm_round(folder: Path, workers: int) -> Callable[[], float]:
    """timm's transform with torch's loader."""
    import timm.data
    import torch

    torch.set_num_threads(1)
    samples = timm.data.ImageDataset(
        str(folder / "train"), transform=timm.data.create_transform(SIZE, is_training=True, color_jitter=None)
    )

    def measure() -> float:
        loader = torch.utils.data.DataLoader(samples, BATCH, shuffle=True, drop_last=True, num_workers=workers)
        started, count = time.perf_counter(), 0
        for _ in range(EPOCHS):
            for images, _ in loader:
                count += images.shape[0]
        return count / (time.perf_counter() - started)

    return measure


def decode_only(dataset: Any) -> Callable[[], float]:
    """Decoding alone in this process: what one core cannot exceed with Pillow."""

    def measure() -> float:
        started = time.perf_counter()
        for index in range(len(dataset)):
            Image.open(dataset.describe(index)).convert("RGB")
        return len(dataset) / (time.perf_counter() - started)

    return measure


def contenders(
    folder: Path, shards: Path, pages: Path, cache: Path, all_workers: bool
) -> dict[str, Callable[[], float]]:
    from paddlevit_dist.images.data.class_folders import ClassFolders

    dataset = ClassFolders(str(folder), "train", cache)
    augment = ["TRAIN.RAND_AUGMENT", RAND_AUGMENT]
    made: dict[str, Callable[[], float]] = {"decode only, one core": decode_only(dataset)}
    for workers in (0, 1, 2) if all_workers else (2,):
        made[f"PaddleViT style, {workers} workers"] = paddlevit_round(dataset, workers)
        made[f"PaddleViT style + RandAugment, {workers} workers"] = paddlevit_round(dataset, workers, augment=True)
        for name, overrides in (
            ("exact", []),
            ("fast", ["DATA.DECODER", "fast"]),
            ("exact + RandAugment", augment),
            ("fast + RandAugment", ["DATA.DECODER", "fast", *augment]),
        ):
            made[f"{name}, {workers} workers"] = our_round(folder, cache, workers, *overrides)
        made[f"prepared, {workers} workers"] = our_round(shards, cache, workers, dataset="tar")
        made[f"pages, {workers} workers"] = our_round(pages, cache, workers, dataset="tar")
        made[f"pages + RandAugment, {workers} workers"] = our_round(pages, cache, workers, *augment, dataset="tar")
        try:
            made[f"timm, {workers} workers"] = timm_round(folder, workers)
        except ImportError:
            continue
    return made


def prepare(folder: Path, shards: Path, *options: str) -> None:
    import subprocess

    command = [sys.executable, "-m", "paddlevit_dist", "prepare", "images", str(folder), str(shards)]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=sized(500, 20))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--two_workers", action="store_true", default=sized(False, True), help="not with 0 and 1 loader processes"
    )
    options = parser.parse_args(arguments)
    restart_tuned()
    print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder, shards, pages, cache = (Path(name, folder) for folder in ("photos", "shards", "pages", "cache"))
        cache.mkdir()
        write_folder(folder, options.images)
        prepare(folder, shards, "--shorter_side", "320")
        prepare(folder, pages, "--shorter_side", "10000", "--store", "pages")
        values = interleave(contenders(folder, shards, pages, cache, not options.two_workers), options.rounds)
    rows = [(name, Spread.of(rates).text(digits=0)) for name, rates in values.items()]
    print_table("images per second, median [low, high]", ["way", "images/s"], rows)
    peer, augmented_peer = (values[f"PaddleViT style{more}, 2 workers"] for more in ("", " + RandAugment"))
    result = {
        "exact": ratios(values["exact, 2 workers"], peer),
        "fast": ratios(values["fast, 2 workers"], peer),
        "exact_randaugment": ratios(values["exact + RandAugment, 2 workers"], augmented_peer),
        "fast_randaugment": ratios(values["fast + RandAugment, 2 workers"], augmented_peer),
        "prepared": ratios(values["prepared, 2 workers"], peer),
        "pages": ratios(values["pages, 2 workers"], peer),
        "pages_randaugment": ratios(values["pages + RandAugment, 2 workers"], augmented_peer),
        "exact_of_decode_bound": Spread.of(
            [ours / (2 * bound) for ours, bound in zip(values["exact, 2 workers"], values["decode only, one core"])]
        ),
    }
    print_table(
        "2 workers against PaddleViT style, with RandAugment both or neither; last: share of twice one core's decoding",
        ["way", "ratio"],
        [(name, spread.text()) for name, spread in result.items()],
    )
    print_result({name: spread.median for name, spread in result.items()})


def restart_tuned() -> None:
    """Start this script again, once, in the environment of a tuned run with one thread per process."""
    import os

    if os.environ.get("PADDLEVIT_DIST_ENVIRONMENT") != "benchmark":
        os.execve(sys.executable, [sys.executable, *sys.argv], children.tuned_environment(2))


if __name__ == "__main__":
    main(sys.argv[1:])
