"""Images per second from tar shards at an address and from the same shards in a folder.

A web server of this machine, in another process, serves the shards; it waits before each answer, as a network does.
Contenders, with 2 loader processes and random resized crop to 224 and flip:

- folder: the shards in a folder
- first epoch: over HTTP, with an empty cache
- first epoch, later: the same, and each answer waits for PAUSE_MS milliseconds
- later epochs: over HTTP, all images in the cache

In a round every contender reads all training images once; ratios are taken within a round.
"""

import argparse
import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from image_pipeline import BATCH, SIZE, prepare, restart_tuned
from PIL import Image
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import sized

PAUSE_MS = 20
WORKERS = 2


def write_folder(target: Path, number: int) -> None:
    """JPEG files of smooth noise, 426 x 320, of two classes; their size is that of photographs."""
    generator = np.random.default_rng(0)
    for index in range(number):
        file = target / "train" / "ab"[index % 2] / f"{index:05d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(generator.integers(0, 256, (80, 107, 3), np.uint8))
        coarse.resize((426, 320), Image.Resampling.BICUBIC).save(file, quality=90)


def serve(folder: str, pause_seconds: float, pipe: Any) -> None:
    """Serve a folder until the pipe is closed."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from support.hosts.range_server import RangeServer

    with RangeServer(Path(folder)) as server:
        server.pause_seconds = pause_seconds
        pipe.send(server.address())
        with contextlib.suppress(EOFError):
            pipe.recv()


@contextlib.contextmanager
def served(folder: Path, pause_seconds: float) -> Iterator[str]:
    """The address of a folder, served by another process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(str(folder), pause_seconds, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def build_round(path: str, cache: Path, is_cold: bool) -> Callable[[], float]:
    """Our loader on the shards at ``path``; a cold one with an index and without any image in its cache."""
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.data.loader import DeviceLoader
    from paddlevit_dist.core.data.sampler import TrainingSampler
    from paddlevit_dist.core.registry.lookup import resolve

    arguments = ["-dataset=tar", f"-data_path={path}", f"-image_size={SIZE}", f"-batch_size={BATCH}"]
    values = settings.load(arguments).values
    task = resolve("task", values.TASK)(values)
    task._inspection = None  # it would read images before the first epoch
    samples = task.build_dataset("train", cache)
    samples.transform.prepare()
    sampler = TrainingSampler(samples, BATCH, rank=0, world_size=1)
    loader = DeviceLoader(samples, sampler, task.collate, num_workers=WORKERS, seed=0)
    epochs = iter(range(1, 1_000_000))

    def measure() -> float:
        if is_cold:
            for file in cache.glob("remote-*/images/*/*"):
                file.unlink()
        epoch = next(epochs)
        started, count = time.perf_counter(), 0
        for batch in loader.epochs(epoch, epoch):
            count += batch["images"].shape[0]
        return count / (time.perf_counter() - started)

    return measure


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=sized(1000, 40))
    parser.add_argument("--rounds", type=int, default=sized(5, 1))
    options = parser.parse_args(arguments)
    restart_tuned()
    print_machine()
    with tempfile.TemporaryDirectory() as name:
        photos, shards = Path(name, "photos"), Path(name, "shards")
        write_folder(photos, options.images)
        prepare(photos, shards, "--shorter_side", "320")
        size = sum(file.stat().st_size for file in shards.glob("*.tar")) / options.images
        print(f"{options.images} images of {size / 1000:.0f} kB")
        caches = [Path(name, f"cache{number}") for number in range(4)]
        for cache in caches:
            cache.mkdir()
        with served(shards, 0.0) as near, served(shards, PAUSE_MS / 1000) as far:
            contenders = {
                "folder": build_round(str(shards), caches[0], is_cold=False),
                "first epoch": build_round(near, caches[1], is_cold=True),
                f"first epoch, {PAUSE_MS} ms": build_round(far, caches[2], is_cold=True),
                "later epochs": build_round(far, caches[3], is_cold=False),
            }
            values = interleave(contenders, options.rounds)
    rows = [(name, Spread.of(rates).text(digits=0)) for name, rates in values.items()]
    print_table(f"images per second, {WORKERS} loader processes, median [low, high]", ["way", "images/s"], rows)
    result = {name: ratios(rates, values["folder"]) for name, rates in values.items() if name != "folder"}
    print_table("over the folder", ["way", "ratio"], [(name, spread.text()) for name, spread in result.items()])
    print_result({name: spread.median for name, spread in result.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
