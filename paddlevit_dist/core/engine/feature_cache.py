"""Features of a frozen network, computed once per sample and kept in a memory-mapped file; used by probes."""

import contextlib
import hashlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import paddle

from ..data.checked_files import ChecksumWriter, DamagedCacheError, checked_file, map_verified
from ..data.loader import build_loader
from ..data.sampler import EvaluationSampler
from ..distributed import all_gather, barrier, broadcast_object, is_main, rank, world_size
from ..launch import gpu
from ..logging.progress import Heartbeat, ProgressBar
from ..logging.record import cache_folder
from ..runtime.errors import UserError
from ..runtime.transfers import is_on_gpu
from ..settings.every_run import RunSettings
from ..tasks.dataset import TransformedDataset
from ..tasks.prediction import stamps
from ..tasks.protocols import count_samples, get_sample_check
from ..tasks.task import Task
from . import gpu_memory
from .precision import EvaluationPrecision
from .source_digests import digest_layers

# Keys of MODEL that choose the weights, which the digest covers anyway, and not the network.
_WEIGHT_KEYS = ("PRETRAINED", "PRETRAINED_REQUIRED", "PRETRAINED_PART", "MIN_LOADED_FRACTION", "RESUME")
Compute: TypeAlias = Callable[[dict[str, Any]], paddle.Tensor]


class FeatureCache:
    """Computes features with a run's settings, or opens those computed earlier. Every rank has one."""

    def __init__(self, config: RunSettings, task: Task, log: Callable[[str], None], heartbeat: Heartbeat) -> None:
        self._config, self._task = config, task
        self._log, self._heartbeat = log, heartbeat

    @paddle.no_grad()
    def __call__(
        self, split: str, samples: TransformedDataset, network: paddle.nn.Layer, compute: Compute
    ) -> np.ndarray:
        """Compute the features of all samples, or open those computed earlier. Every rank must call this.

        The work is divided over ranks in batches that do not depend on their number. The file's name contains a digest
        of all that the features depend on: weights, settings and a user's files of the network, preprocessing, and the
        samples with size and time of their files. The file appears once complete, with a checksum; if changed or
        truncated since, it is computed again. Machines without a common cache folder each get a file. Returns float32
        (samples, channels), memory-mapped. Raises UserError if a sample cannot be read, its features are not finite, or
        the file cannot be written.

        Args:
            network: the network that the features depend on; it is put into evaluation mode.
            compute: maps a batch to its features, (batch, channels), by a call of ``network``.
        """
        network.eval()
        precision = EvaluationPrecision(self._config)
        key = broadcast_object(self._digest(samples, network, precision) if is_main() else None)
        path = cache_folder(self._config) / f"features-{split}-{key}.npy"
        message = f"features of {count_samples(self._task, samples)} of {split}: {path}"
        rows, is_damaged = open_rows(path, len(samples))
        states = all_gather((rows is not None, is_damaged))
        if rows is not None and all(is_intact for is_intact, _ in states):
            self._log(f"{message}, computed before")
            return rows
        if any(flag for _, flag in states):
            self._log(f"{path} is damaged: its features are computed again")
        is_first_on_machine = all_gather(socket.gethostname()).index(socket.gethostname()) == rank()
        opened = checked_file(path) if is_first_on_machine else contextlib.nullcontext()
        with opened as file, precision.patch_forward(network):
            self._compute(file, split, samples, compute)
        barrier()  # until the file has its final name
        rows, _ = open_rows(path, len(samples))
        if not all(all_gather(rows is not None)) or rows is None:
            raise UserError(f"{path} is not on each machine: give them different host names, or one DATA.CACHE_FOLDER")
        self._log(message)
        return rows

    def _digest(self, samples: TransformedDataset, network: paddle.nn.Layer, precision: EvaluationPrecision) -> str:
        digest = hashlib.sha256()
        for name, tensor in sorted(network.state_dict().items()):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(tensor.numpy()))
        config, task = self._config, self._task
        model = sorted((key, value) for key, value in config.MODEL.items() if key not in _WEIGHT_KEYS)
        files = stamps(map(samples.describe, range(len(samples))))
        facts = config.DATA.DATASET, model, task.signature(), samples.listed_digests(), files, samples.content_key
        rounded = is_on_gpu() and gpu.rounds_to_tf32()
        sources = digest_layers(network)
        digest.update(repr((*facts, precision.facts, rounded, *sources)).encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:16]

    def _compute(self, file: ChecksumWriter | None, split: str, samples: TransformedDataset, compute: Compute) -> None:
        """Compute one batch per rank at a time, and write the features to the ``.npy`` file in the samples' order."""
        config, task = self._config, self._task
        size = config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE
        sampler = EvaluationSampler(samples, size)
        loader = build_loader(config, samples, sampler, task.collate, check=get_sample_check(task))
        rounds = -(-len(samples) // (size * world_size()))
        bar = ProgressBar(rounds, f"features of {split}", is_main())
        gathered = 0
        explained = gpu_memory.explain_memory(gpu_memory.advise_evaluation(config))
        with explained, contextlib.closing(iter(loader)) as batches:
            for done in range(rounds):
                self._heartbeat.at(f"computing features of {split}, {done} of {rounds} batches done")
                batch = next(batches, None)
                for rows in all_gather(None if batch is None else compute(batch).astype("float32").numpy()):
                    if rows is None:
                        continue
                    _require_finite(rows, samples, gathered)
                    gathered += len(rows)
                    if file is None:
                        continue
                    if not file.tell():
                        head = {"descr": "<f4", "fortran_order": False, "shape": (len(samples), rows.shape[1])}
                        np.lib.format.write_array_header_1_0(file, head)
                    file.write(np.ascontiguousarray(rows, "<f4"))
                bar.step()
        bar.close()


def open_rows(path: Path, number: int) -> tuple[np.ndarray | None, bool]:
    """Map the features of ``number`` samples if their checksum is right; also return whether a damaged file exists."""
    try:
        rows = map_verified(path)
    except DamagedCacheError:
        return None, path.exists()
    return (rows, False) if rows.ndim == 2 and len(rows) == number else (None, True)


def _require_finite(rows: np.ndarray, samples: TransformedDataset, first: int) -> None:
    """Raise UserError, on every rank, if features of the samples from number ``first`` on are NaN or infinite."""
    bad_rows = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad_rows):
        raise UserError(
            f"the features of {samples.describe(first + int(bad_rows[0]))} are not finite: the weights are damaged, or "
            "overflow in half precision (set AMP False)"
        )
