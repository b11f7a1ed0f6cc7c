"""Rows of numbers, one for each sample, computed once with a network that does not change and kept in a memory-mapped
file: the features of a probe."""

import contextlib
import fcntl
import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import paddle

from ..data.loader import loader_of
from ..data.sampler import EvaluationSampler
from ..distributed import all_gather, barrier, broadcast_object, is_main, rank, world_size
from ..launch import gpu
from ..logging.heartbeat import Heartbeat
from ..logging.progress import Progress
from ..logging.record import cache_folder
from ..runtime.errors import UserError
from ..runtime.files import map_array, temporary_name, told_if_not_written
from ..runtime.transfers import is_on_gpu
from ..settings.every_run import RunSettings
from ..tasks.dataset import Samples
from ..tasks.prediction import stamps
from ..tasks.task import Task
from . import gpu_memory
from .precision import EvaluationPrecision

_OF_START = ("PRETRAINED", "PRETRAINED_REQUIRED", "PRETRAINED_PART", "MINIMUM_LOADED", "RESUME")  # not of the network
Rows: TypeAlias = Callable[[dict[str, Any]], paddle.Tensor]


class KeptRows:
    """Computes the rows of samples, each once over all ranks, in batches that do not depend on the number of ranks.

    A file is named by the digest of all that its rows follow from: weights and settings of the network, how images are
    prepared, and the samples with size and time of their files. It appears when it is complete. What an interrupted run
    has written is continued by the next one on that machine. Machines without a common cache folder each get the file.
    """

    def __init__(self, config: RunSettings, task: Task, heartbeat: Heartbeat, say: Callable[[str], None]) -> None:
        self._config, self._task, self._heartbeat, self._say = config, task, heartbeat, say
        self._precision = EvaluationPrecision(config)

    @paddle.no_grad()
    def __call__(self, split: str, samples: Samples, network: paddle.nn.Layer, compute: Rows) -> np.ndarray:
        """float32 (samples, channels), memory-mapped. Every rank must call this.

        Args:
            network: what rows follow from; it is put into evaluation mode.
            compute: gives those of a batch, (batch, channels), by a call of ``network``.

        Raises:
            UserError: a sample cannot be read, or the file cannot be written.
        """
        network.eval()
        key = broadcast_object(self._key(samples, network) if is_main() else None)
        path = cache_folder(self._config) / f"features-{split}-{key}.npy"
        said = f"features of {len(samples):,} {self._task.sample_name} of {split}"
        if all(all_gather(path.exists())):
            self._say(f"{said}: {path}, computed before")
            return map_array(path)
        with _growing(path) if _is_first_of_machine() else contextlib.nullcontext() as file:
            self._compute(file, split, samples, network, compute)
        barrier()  # until it has its name
        if not all(all_gather(path.exists())):
            raise UserError(f"{path} is not on each machine: give them different host names, or one DATA.CACHE_FOLDER")
        self._say(f"{said}: {path}")
        return map_array(path)

    def _key(self, samples: Samples, network: paddle.nn.Layer) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(network.state_dict().items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.numpy()))
        model = sorted((name, value) for name, value in self._config.MODEL.items() if name not in _OF_START)
        files = stamps(map(samples.describe, range(len(samples))))
        facts = self._config.DATA.DATASET, model, self._task.about_input(), samples.listed_digests(), files
        rounded = is_on_gpu() and gpu.rounds_to_tf32()
        digest.update(repr((*facts, self._precision.facts, rounded)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:16]

    def _compute(
        self, file: "_GrowingArray | None", split: str, samples: Samples, network: paddle.nn.Layer, compute: Rows
    ) -> None:
        """Compute what is missing, a batch on each rank at a time, whose rows go to the file in the samples' order."""
        config, size = self._config, self._config.DATA.BATCH_SIZE_EVAL or self._config.DATA.BATCH_SIZE
        first = min(number for number in all_gather(None if file is None else file.number) if number is not None)
        first -= first % size
        if first:
            self._say(f"features of {split}: {first:,} of {len(samples):,} were computed before")
        sampler = EvaluationSampler(samples, size, rank=rank(), world_size=world_size(), first=first)
        loader = loader_of(config, samples, sampler, self._task.collate, check=self._task.check_sample)
        rounds = -(-(len(samples) - first) // (size * world_size()))
        bar = Progress(rounds, f"features of {split}", is_main())
        explained = gpu_memory.explain_memory(gpu_memory.of_evaluation(config))
        with explained, self._precision.forward_of(network), contextlib.closing(iter(loader)) as batches:
            for done in range(rounds):
                self._heartbeat.at(f"computing features of {split}, {done} of {rounds} batches done")
                batch = next(batches, None)
                for rows in all_gather(None if batch is None else compute(batch).astype("float32").numpy()):
                    if file is not None and rows is not None:
                        file.add(rows, first, len(samples))
                bar.step()
        bar.close()


class _GrowingArray:
    """A ``.npy`` file to which rows are added.

    Attributes:
        number: of complete rows that it had when it was opened.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.number, self._is_cut = file, 0, False
        with contextlib.suppress(ValueError):  # it is new, or was cut off in its head
            file.seek(0)
            np.lib.format.read_magic(file)
            shape, _, _ = np.lib.format.read_array_header_1_0(file)
            self._start, self._row_bytes = file.tell(), 4 * shape[1]
            self.number = (file.seek(0, os.SEEK_END) - self._start) // self._row_bytes

    def add(self, rows: np.ndarray, first: int, number: int) -> None:
        """Add rows float32 (rows, channels); those of the first call follow the ``first`` that are there, of
        ``number``."""
        with told_if_not_written(self._file.name):
            if not self._is_cut:
                self._is_cut = True
                self._file.truncate(self._start + first * self._row_bytes if first else 0)
                if not first:
                    head = {"descr": "<f4", "fortran_order": False, "shape": (number, rows.shape[1])}
                    np.lib.format.write_array_header_1_0(self._file, head)
            self._file.write(np.ascontiguousarray(rows, "<f4"))
            self._file.flush()  # whatever ends this process, the next goes on from here


@contextlib.contextmanager
def _growing(path: Path) -> Iterator[_GrowingArray]:
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
        yield _GrowingArray(file)
        with told_if_not_written(path):
            os.fsync(file.fileno())
            os.replace(part, path)


def _is_first_of_machine() -> bool:
    """Whether no rank before this one is on its machine. Every rank must call this."""
    return all_gather(socket.gethostname()).index(socket.gethostname()) == rank()
