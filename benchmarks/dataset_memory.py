"""What a list dataset of ImageNet's size costs N processes: bytes pickled to each, seconds, private memory.

Ours is the memory-mapped index; the peer holds two Python lists, as PaddleViT's dataset does. Every receiver is a new
process that unpickles the dataset and looks up 10,000 random entries; its private memory (USS) is read from /proc
before and after. Paths need not exist.
"""

import argparse
import multiprocessing
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rounds import Spread, interleave, print_machine, print_result, print_table
from smallest import sized

IMAGES = sized(1_281_167, 20_000)


class TwoLists:
    """Paths and labels in Python lists."""

    def __init__(self, list_file: Path) -> None:
        self.paths, self.labels = [], []
        for line in list_file.read_text().splitlines():
            path, label = line.split()
            self.paths.append(str(list_file.parent / path))
            self.labels.append(int(label))

    def look_up(self, index: int) -> Any:
        return self.paths[index], self.labels[index]


class Mapped:
    """Our dataset object."""

    def __init__(self, list_file: Path) -> None:
        from paddlevit_dist.images.data.imagenet import ImageNet2012

        cache = list_file.parent / "cache"
        cache.mkdir(exist_ok=True)
        self.dataset = ImageNet2012(str(list_file.parent), "train", cache)

    def look_up(self, index: int) -> Any:
        return self.dataset.describe(index), self.dataset.labels[index]


def private_bytes() -> int:
    """This process's memory that it shares with no other."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def receive(content_file: str, start: Any, answers: Any) -> None:
    """A receiver: unpickle, look entries up, report bytes of private memory and seconds. Waits so that all overlap."""
    import paddlevit_dist.images.data.imagenet  # noqa: F401 - code is not what is measured

    numbers = np.random.default_rng(0).integers(0, IMAGES, 10_000).tolist()
    start.wait()
    before, started = private_bytes(), time.perf_counter()
    with open(content_file, "rb") as stream:
        dataset = pickle.load(stream)
    opened = time.perf_counter() - started
    busy = time.process_time()  # receivers outnumber the cores: seconds of the clock would count their turns
    for number in numbers:
        dataset.look_up(number)
    looked_up = (time.process_time() - busy) / len(numbers)
    start.wait()  # all hold their data now
    answers.put((private_bytes() - before, opened, looked_up))


def measure(kind: Callable[[Path], Any], list_file: Path, receivers: int) -> tuple[int, float, float, float]:
    """Pickled bytes, total private bytes, slowest opening and mean look-up in seconds."""
    content = pickle.dumps(kind(list_file), protocol=pickle.HIGHEST_PROTOCOL)
    content_file = list_file.parent / f"{kind.__name__}.pickle"
    content_file.write_bytes(content)
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(receivers), context.Queue()
    processes = [context.Process(target=receive, args=(str(content_file), start, answers)) for _ in range(receivers)]
    for process in processes:
        process.start()
    reports = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(30)
    memory, opened, looked_up = zip(*reports)
    return len(content), sum(memory), max(opened), sum(looked_up) / receivers


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receivers", type=int, default=sized(8, 2))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    print_machine()
    with tempfile.TemporaryDirectory() as name:
        list_file = Path(name, "train_list.txt")
        lines = (f"train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.JPEG {i % 1000}\n" for i in range(IMAGES))
        list_file.write_text("".join(lines))
        contenders = {
            kind.__name__: (lambda kind=kind: measure(kind, list_file, options.receivers))
            for kind in (TwoLists, Mapped)
        }
        values = interleave(contenders, options.rounds)
    rows, medians = [], {}
    for name, reports in values.items():
        pickled, memory, opened, looked_up = (Spread.of(column) for column in zip(*reports))
        medians[name] = (pickled.median, memory.median, opened.median, looked_up.median)
        rows.append((name, f"{pickled.median:,.0f}", memory.text(1e-6, 1), opened.text(1e3, 2), looked_up.text(1e6, 2)))
    header = ["dataset", "bytes pickled", f"private MB, {options.receivers} receivers", "open ms", "look-up us"]
    print_table(f"{IMAGES:,} images", header, rows)
    lists, mapped = medians["TwoLists"], medians["Mapped"]
    print_result(
        {
            "pickle_ratio": lists[0] / mapped[0],
            "lists_private_megabytes": lists[1] / 1e6,
            "mapped_private_megabytes": mapped[1] / 1e6,
            "open_seconds_ratio": lists[2] / mapped[2],
            "mapped_pickled_bytes": mapped[0],
            "mapped_lookup_microseconds": 1e6 * mapped[3],
        }
    )


if __name__ == "__main__":
    main(sys.argv[1:])
