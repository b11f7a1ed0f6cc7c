"""Large batches cross from loader processes through shared memory, intact, once, and without leaving anything there."""

import gc
import os
import re
import subprocess
import sys

import numpy as np
import paddle
import pytest
from support.shared_files import own_files

from paddlevit_dist.core.data import shared_arrays
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import EvaluationSampler


class Images:
    """Sample ``i`` is a large array made from ``i``."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self):
        return self.size

    def sample(self, index, generator):
        return np.random.default_rng(index).integers(0, 256, (3, 100, 100), dtype=np.uint8)

    def describe(self, index):
        return f"image {index}"


def collate(samples):
    return {"images": np.stack(samples), "none": np.zeros((0, 3), dtype=np.float32)}


def collate_floats(samples):
    return {"images": np.stack(samples).astype(np.float32)}


def make_loader(size: int, num_workers: int, collate=collate) -> DeviceLoader:
    samples = Images(size)
    sampler = EvaluationSampler(samples, 8, rank=0, world_size=1)
    return DeviceLoader(samples, sampler, collate, num_workers=num_workers, seed=0)


def test_batches_arrive_whole_and_nothing_stays():
    expected = [batch["images"].numpy() for batch in make_loader(50, 0)]
    received = [batch["images"].numpy() for batch in make_loader(50, 2)]
    assert len(received) == len(expected) == 7
    for left, right in zip(received, expected):
        np.testing.assert_array_equal(left, right)
    assert own_files() == []


def own_mappings() -> int:
    with open("/proc/self/maps", encoding="utf-8") as lines:
        return sum("/paddlevit_dist_" in line and f"_{os.getpid()}_" in line for line in lines)


def test_batches_outlive_their_loader_can_be_written_to_and_then_go():
    batches = [batch["images"] for batch in make_loader(48, 2, collate_floats)]
    gc.collect()
    expected = [batch["images"].numpy() for batch in make_loader(48, 0, collate_floats)]
    assert own_mappings() == len(batches) == 6, "tensors lie in what the loader processes wrote"
    batches[0].add_(paddle.ones_like(batches[0]))
    np.testing.assert_array_equal(batches[0].numpy(), expected[0] + 1)
    part = batches[1][2:].reshape([-1])
    for left, right in zip(batches[1:], expected[1:]):
        np.testing.assert_array_equal(left.numpy(), right)
    del batches[1:], left
    gc.collect()
    np.testing.assert_array_equal(part.numpy(), expected[1][2:].ravel())
    del part, batches
    gc.collect()
    assert own_mappings() <= 1, "only the last batch stays, for the seconds that Paddle's thread takes to end"


def test_a_loader_that_is_left_early_leaves_nothing_and_takes_nothing_from_another():
    outer = iter(make_loader(50, 2))
    first = next(outer)["images"].numpy()
    for _ in make_loader(50, 1):
        break
    rest = [batch["images"].numpy() for batch in outer]  # its files are still there
    assert len(rest) == 6 and first.shape == (8, 3, 100, 100)
    assert own_files() == []


def test_too_little_shared_memory_is_told_at_the_first_batch(tmp_path):
    """A run whose first batch fits, but not all that are on their way: on a real file system of 800 KiB."""
    small = tmp_path / "shm"
    small.mkdir()
    mount = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=800k tmpfs {small} && exec "$@"',
    ]
    if subprocess.run([*mount, "sh", "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system of their own")
    script = (
        "import pathlib; from paddlevit_dist.core.data import shared_arrays\n"
        f"shared_arrays.FOLDER = pathlib.Path({str(small)!r})\n"
        "from integration.core.data.test_shared_batches import make_loader\n"
        "for number, batch in enumerate(make_loader(50, 2)): print('batch', number)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run(
        [*mount, "sh", sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode != 0 and "batch" not in done.stdout
    assert re.search(r"UserError: .* has (room for|no room for a batch) .*: lower DATA.NUM_WORKERS", done.stderr)


def test_what_a_dead_run_left_behind_is_removed():
    script = (
        "import numpy, os; from paddlevit_dist.core.data.shared_arrays import *;"
        "share(numpy.zeros(2**20), new_prefix()); print(os.getpid())"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=600)
    left = list(shared_arrays.FOLDER.glob(f"paddlevit_dist_*_{int(done.stdout)}_*"))
    assert len(left) == 1
    shared_arrays.remove_leftovers(shared_arrays.new_prefix())
    assert not left[0].exists()
