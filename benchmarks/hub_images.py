"""Images a second from Parquet and Arrow files to batches, against tar files of the same JPEGs.

    python benchmarks/hub_images.py [--rounds 7] [--workers 0] [--clock wall|processor]

All contenders read the same JPEGs through the same decoder, transforms and loader: shards of a tar, Parquet as it is
published (unpacked before the first round; the seconds are told), and Arrow as ``save_to_disk`` writes it. The library
``datasets`` joins, with its own reading of the Arrow files below our transforms, if the interpreter has it. On a
machine that others use, ``--clock processor`` counts the process's own time (without loader processes).
"""

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import need, sized

IMAGES, SIDES, CLASSES, SHARD = sized(800, 24), sized((500, 375), (40, 30)), 10, sized(200, 12)
BATCH, SIZE = sized(32, 4), sized(224, 32)


def draw_jpegs() -> Iterator[tuple[bytes, int]]:
    """Draw blurred noise, which is compressed about as photographs are, with labels."""
    generator = np.random.default_rng(0)
    for number in range(IMAGES):
        pixels = generator.integers(0, 256, (SIDES[1], SIDES[0], 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(1.5)).save(out, "JPEG", quality=90)
        yield out.getvalue(), number % CLASSES


def write_all(folder: Path) -> None:
    """Write the images as tar files, Parquet and Arrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [str(number) for number in range(CLASSES)]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
    jpegs = list(draw_jpegs())
    for form in ("tar", "parquet", "arrow/train"):
        (folder / form).mkdir(parents=True)
    files, shards = [], -(-IMAGES // SHARD)
    for number, first in enumerate(range(0, IMAGES, SHARD)):
        rows = jpegs[first : first + SHARD]
        with tarfile.open(folder / "tar" / f"train-{number:05d}.tar", "w") as tar:
            for position, (content, label) in enumerate(rows):
                for suffix, member in ((".jpg", content), (".cls", str(label).encode())):
                    info = tarfile.TarInfo(f"{first + position:06d}{suffix}")
                    info.size = len(member)
                    tar.addfile(info, io.BytesIO(member))
        images = pa.array(
            [{"bytes": content, "path": None} for content, _ in rows],
            pa.struct({"bytes": pa.binary(), "path": pa.string()}),
        )
        table = pa.table({"image": images, "label": pa.array([label for _, label in rows])})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, folder / "parquet" / f"train-{number:05d}-of-{shards:05d}.parquet", row_group_size=100)
        files.append({"filename": f"data-{number:05d}-of-{shards:05d}.arrow"})
        with pa.ipc.new_stream(str(folder / "arrow" / "train" / files[-1]["filename"]), table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    unset = dict.fromkeys(("_format_columns", "_format_type", "_split"))
    state = {
        "_data_files": files,
        "_fingerprint": "0" * 16,
        "_format_kwargs": {},
        "_output_all_columns": False,
        **unset,
    }
    (folder / "arrow" / "train" / "state.json").write_text(json.dumps(state))
    (folder / "arrow" / "train" / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "arrow" / "dataset_dict.json").write_text('{"splits": ["train"]}')


class _LibraryImages:
    """Wraps our dataset of Arrow files: an image is read by the library ``datasets``."""

    def __init__(self, ours: Any, folder: Path) -> None:
        import datasets

        self._ours, self._rows = ours, datasets.load_from_disk(str(folder))["train"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_ours", "_rows"):
            raise AttributeError(name)
        return getattr(self._ours, name)

    def read(self, index: int) -> tuple[Image.Image, int]:
        row = self._rows[index]
        return row["image"].convert("RGB"), row["label"]


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def make_round(
    folder: Path, cache: Path, workers: int, dataset: str, clock: Callable[[], float], is_library: bool = False
) -> Callable[[], float]:
    """Return a measurement of an epoch of our loader: images a second."""
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.data.loader import DeviceLoader
    from paddlevit_dist.core.data.sampler import TrainingSampler
    from paddlevit_dist.core.registry.lookup import resolve

    arguments = [f"-dataset={dataset}", f"-data_path={folder}", f"-image_size={SIZE}", f"-batch_size={BATCH}"]
    values = settings.load([*arguments, "DATA.CACHE_FOLDER", str(cache)]).values
    task = resolve("task", values.TASK)(values)
    samples = task.build_dataset("train", cache)
    if is_library:
        samples.reader = _LibraryImages(samples.dataset, folder).read
    transform = samples.transform
    getattr(transform, "exact", transform).prepare()  # before loader processes are forked, as the task does
    loader = DeviceLoader(
        samples, TrainingSampler(samples, BATCH, rank=0, world_size=1), task.collate, num_workers=workers, seed=0
    )
    epochs = iter(range(1, 1_000_000))

    def measure() -> float:
        epoch, count = next(epochs), 0
        started = clock()
        for batch in loader.epochs(epoch, epoch):
            count += task.normalize(batch["images"]).shape[0]
        return count / (clock() - started)

    return measure


def main() -> None:
    need("pyarrow")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    clock, workers = CLOCKS[options.clock], options.workers
    if workers and options.clock == "processor":
        parser.error("--clock processor does not count loader processes: use --workers 0")
    print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name, "cache")
        cache.mkdir()
        write_all(folder)
        rounds = {"tar": make_round(folder / "tar", cache, workers, "tar", clock)}
        started = time.perf_counter()
        rounds["Parquet"] = make_round(folder / "parquet", cache, workers, "hub", clock)
        unpacking = time.perf_counter() - started
        rounds["Arrow"] = make_round(folder / "arrow", cache, workers, "hub", clock)
        try:
            rounds["datasets"] = make_round(folder / "arrow", cache, workers, "hub", clock, is_library=True)
        except ImportError:
            print("without the library datasets, which this interpreter does not have")
        values = interleave(rounds, options.rounds)
    rows = [
        [name, Spread.of(found).text(digits=1), ratios(found, values["tar"]).text()] for name, found in values.items()
    ]
    print_table(
        f"images a second ({options.clock}), {workers} loader processes", ["contender", "images/s", "of tar"], rows
    )
    result = {f"{name} of tar": ratios(found, values["tar"]).median for name, found in values.items() if name != "tar"}
    if "datasets" in values:
        result["Arrow of datasets"] = ratios(values["Arrow"], values["datasets"]).median
    print_result({**result, "seconds to unpack and open": unpacking})


if __name__ == "__main__":
    main()
