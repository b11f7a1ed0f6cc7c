"""Rows of numbers, one for each sample, computed once with a network that does not change and kept in a memory-mapped
file: the features of a probe."""

import contextlib
import fcntl
import hashlib
import io
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import numpy as np
import paddle

from ..data.loader import loader_of
from ..data.sampler import EvaluationSampler
from ..distributed import all_gather, barrier, broadcast_object, is_main, rank, world_size
from ..launch import gpu
from ..logging.progress import Progress
from ..logging.record import cache_folder
from ..runtime.errors import UserError
from ..runtime.files import map_array, temporary_name, told_if_not_written
from ..runtime.transfers import is_on_gpu
from ..tasks.dataset import Samples
from ..tasks.prediction import stamps
from . import gpu_memory
from .precision import EvaluationPrecision

if TYPE_CHECKING:
    from .run import Run

_OF_START = ("PRETRAINED", "PRETRAINED_REQUIRED", "PRETRAINED_PART", "MINIMUM_LOADED", "RESUME")  # not of the network
Rows: TypeAlias = Callable[[dict[str, Any]], paddle.Tensor]


@paddle.no_grad()
def keep_rows(
    run: "Run", split: str, samples: Samples, network: paddle.nn.Layer, channels: int, compute: Rows
) -> np.ndarray:
    """The rows of samples, float32 (samples, channels), memory-mapped. Every rank must call this.

    Each is computed once over all ranks, in batches that do not depend on their number. The file is named by the digest
    of all that its rows follow from: weights and settings of the network, how images are prepared, and the samples with
    size and time of their files. It appears when it is complete. What an interrupted run has written is continued by
    the next one on that machine. Machines without a common cache folder each get the file.

    Args:
        network: what rows follow from; it is put into evaluation mode.
        compute: gives those of a batch, (batch, channels), by a call of ``network``.

    Raises:
        UserError: a sample cannot be read, or the file cannot be written.
    """
    network.eval()
    precision = EvaluationPrecision(run.config)
    key = broadcast_object(_digest(run, samples, network, precision) if is_main() else None)
    path = cache_folder(run.config) / f"features-{split}-{key}.npy"
    said = f"features of {len(samples):,} {run.task.sample_name} of {split}: {path}"
    if all(all_gather(path.exists())):
        run.record.say(f"{said}, computed before")
        return map_array(path)
    is_first_of_machine = all_gather(socket.gethostname()).index(socket.gethostname()) == rank()
    shape = len(samples), channels
    opened = _growing(path, shape) if is_first_of_machine else contextlib.nullcontext()
    with opened as file, precision.forward_of(network):
        _compute(run, file, split, samples, compute)
    barrier()  # until it has its name
    if not all(all_gather(path.exists())):
        raise UserError(f"{path} is not on each machine: give them different host names, or one DATA.CACHE_FOLDER")
    run.record.say(said)
    return map_array(path)


def _digest(run: "Run", samples: Samples, network: paddle.nn.Layer, precision: EvaluationPrecision) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.numpy()))
    model = sorted((name, value) for name, value in run.config.MODEL.items() if name not in _OF_START)
    files = stamps(map(samples.describe, range(len(samples))))
    facts = run.config.DATA.DATASET, model, run.task.about_input(), samples.listed_digests(), files
    rounded = is_on_gpu() and gpu.rounds_to_tf32()
    digest.update(repr((*facts, precision.facts, rounded)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:16]


def _compute(run: "Run", file: "_GrowingArray | None", split: str, samples: Samples, compute: Rows) -> None:
    """Compute what is missing, a batch on each rank at a time, whose rows go to the file in the samples' order."""
    config, task = run.config, run.task
    size = config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE
    first = min(number for number in all_gather(None if file is None else file.number()) if number is not None)
    first -= first % size
    if first:
        run.record.say(f"features of {split}: {first:,} of {len(samples):,} were computed before")
    if file is not None:
        file.cut(first)
    sampler = EvaluationSampler(samples, size, rank=rank(), world_size=world_size(), first=first)
    loader = loader_of(config, samples, sampler, task.collate, check=task.check_sample)
    rounds = -(-(len(samples) - first) // (size * world_size()))
    bar = Progress(rounds, f"features of {split}", is_main())
    explained = gpu_memory.explain_memory(gpu_memory.of_evaluation(config))
    with explained, contextlib.closing(iter(loader)) as batches:
        for done in range(rounds):
            run.heartbeat.at(f"computing features of {split}, {done} of {rounds} batches done")
            batch = next(batches, None)
            for rows in all_gather(None if batch is None else compute(batch).astype("float32").numpy()):
                if file is not None and rows is not None:
                    file.add(rows)
            bar.step()
    bar.close()


class _GrowingArray:
    """A ``.npy`` file of float32 (rows, channels) to which rows are added."""

    def __init__(self, file: BinaryIO, shape: tuple[int, int]) -> None:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": shape})
        self._file, self._head, self._row_bytes = file, head.getvalue(), 4 * shape[1]

    def number(self) -> int:
        """How many complete rows it has."""
        return max(0, (os.fstat(self._file.fileno()).st_size - len(self._head)) // self._row_bytes)

    def cut(self, number: int) -> None:
        """Leave so many rows."""
        with told_if_not_written(self._file.name):
            self._file.truncate(len(self._head) + number * self._row_bytes if number else 0)
            self._file.write(b"" if number else self._head)

    def add(self, rows: np.ndarray) -> None:
        with told_if_not_written(self._file.name):
            self._file.write(np.ascontiguousarray(rows, "<f4"))
            self._file.flush()  # whatever ends this process, the next goes on from here


@contextlib.contextmanager
def _growing(path: Path, shape: tuple[int, int]) -> Iterator[_GrowingArray]:
    """What becomes ``path`` once the block ends without an error, with what an earlier run has left of it unless a run
    that goes on is writing it."""
    part = path.with_name(f"{path.stem}.{socket.gethostname()}.part")
    with contextlib.ExitStack() as files:
        with told_if_not_written(part):
            file: Any = files.enter_context(open(part, "a+b"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.stat(part)  # it is still there, and has not become ``path`` meanwhile
            except OSError:  # or the file system knows no locks
                part = path.with_name(temporary_name(path.name))
                file = files.enter_context(open(part, "a+b"))
        yield _GrowingArray(file, shape)
        with told_if_not_written(path):
            os.fsync(file.fileno())
            os.replace(part, path)
