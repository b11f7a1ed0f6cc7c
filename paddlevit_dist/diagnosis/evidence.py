"""What is kept of an update that was not finite, in ``not_finite/`` of the output folder, so that it can be run again.

``update_00000123.json`` says where the update was and which samples each rank read; ``update_00000121.pdparams`` holds
the weights from before update 121, which is what the later ones of the same row began with too, since none of them
changed anything; ``config.yaml`` holds the settings.
"""

import copy
import itertools
import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import paddle
from msgspec import Meta

from ..checkpoint.content import update_name
from ..config import dump_yaml
from ..contracts.task import Step
from ..engine.parts import TrainingParts
from ..loading.loader import described
from ..loading.sampler import SampleKey, TrainingSampler
from ..parallel import barrier, is_main
from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.printing import one_line

FOLDER, CONFIG = "not_finite", "config.yaml"
_KEPT, _KEPT_WEIGHTS = 20, 2
_MicroBatch = Annotated[list[tuple[int, int, str]], Meta(min_length=1)]  # index, repeat and description of each sample


class Skipped(msgspec.Struct):
    """An update that was skipped, as its file describes it.

    Attributes:
        format: of the file.
        update: from 1, over the whole training.
        epoch: from 1.
        first_of_row: the first update of those in a row that were skipped.
        seed: of the run.
        accumulation_steps: micro-batches of each rank.
        samples_per_update: over all ranks and micro-batches.
        scale: what the loss was multiplied by; None without a loss scaler.
        consumed: samples of the epoch before it, over all ranks.
        ranks: what each rank's micro-batches are made of, [rank][micro-batch].
    """

    format: Literal[1]
    update: int
    epoch: int
    total_updates: int
    first_of_row: int
    seed: int
    accumulation_steps: int
    samples_per_update: int
    scale: float | None
    consumed: int
    ranks: Annotated[list[Annotated[list[_MicroBatch], Meta(min_length=1)]], Meta(min_length=1)]

    @property
    def keys(self) -> list[list[list[SampleKey]]]:
        """Which readings each rank's micro-batches are of, [rank][micro-batch]."""
        return [[[SampleKey(self.epoch, *place[:2]) for place in micro] for micro in rank] for rank in self.ranks]


class EvidenceFolder:
    """Writes down the updates that are skipped: the newest 20, and the weights before the first since the start and
    before those that ended the run, 2 at most. Every rank has one; the main process writes, and the others wait for it.
    """

    def __init__(self, parts: TrainingParts) -> None:
        self.folder = Path(parts.config.SAVE) / FOLDER
        self._config, self._samples = parts.config, parts.datasets["train"]
        self._sampler, self._model, self._precision = parts.sampler, parts.model, parts.precision
        self._weights: Path | None = None  # the last that were written since the start

    def keep(self, step: Step, in_a_row: int, is_last: bool) -> str:
        """Write an update down while model and sampler are as they were before it.

        Returns:
            What to tell about it, beginning with ";".
        """
        file = self.folder / f"{update_name(step.update + 1)}.json"
        told = f"; -replay={file} shows where it begins"
        if is_main():
            try:
                self._write(file, step, in_a_row, is_last)
            except (OSError, UserError) as error:
                told = f"; it could not be written down: {error}"
        barrier()  # gloo's collectives would not wait longer than 30 s for a slow disk
        return told

    def _write(self, file: Path, step: Step, in_a_row: int, is_last: bool) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        first = step.update + 2 - in_a_row
        consumed = self._sampler.consumed
        skipped = Skipped(
            format=1,
            update=step.update + 1,
            epoch=step.epoch,
            total_updates=step.total_updates,
            first_of_row=first,
            seed=self._sampler.seed,
            accumulation_steps=self._sampler.accumulation_steps,
            samples_per_update=self._sampler.global_batch_size,
            scale=self._precision.scale if self._precision.scaler else None,
            consumed=consumed,
            ranks=[
                [[self._reading(key) for key in keys] for keys in batches]
                for batches in keys_of_update(self._sampler, step.epoch, consumed)
            ],
        )
        with atomic_file(file) as out:
            out.write(msgspec.json.encode(skipped))
        with atomic_file(self.folder / CONFIG) as out:
            out.write(dump_yaml(self._config).encode())
        weights = weights_file(self.folder, first)
        if self._weights is None or (is_last and weights != self._weights):
            temporary = weights.with_name(f"{weights.name}.{os.getpid()}.tmp")
            try:
                paddle.save(self._model.state_dict(), str(temporary))
                os.replace(temporary, weights)
                self._weights = weights
            finally:
                temporary.unlink(missing_ok=True)
        for pattern, number in (("update_*.json", _KEPT), ("update_*.pdparams", _KEPT_WEIGHTS)):
            by_age = sorted(self.folder.glob(pattern), key=lambda path: path.stat().st_mtime)
            for old in by_age[:-number]:
                old.unlink(missing_ok=True)

    def _reading(self, key: SampleKey) -> tuple[int, int, str]:
        return int(key.index), int(key.repeat), one_line(described(self._samples, key.index))


def weights_file(folder: Path, first_of_row: int) -> Path:
    """Where the weights from before that update are, if they were kept."""
    return folder / f"{update_name(first_of_row)}.pdparams"


def keys_of_update(sampler: TrainingSampler, epoch: int, consumed: int) -> list[list[list[SampleKey]]]:
    """Which readings the ranks' micro-batches of one update are of: [rank][micro-batch].

    Args:
        sampler: of any rank; it stays as it is.
        epoch: from 1.
        consumed: samples of the epoch before the update, over all ranks.
    """
    ranks = []
    for number in range(sampler.nranks):
        other = copy.copy(sampler)
        other.local_rank = number
        ranks.append(list(itertools.islice(other.batches(epoch, consumed), sampler.accumulation_steps)))
    return ranks


def read_skipped(file: Path) -> Skipped:
    """Read what ``EvidenceFolder`` wrote.

    Raises:
        UserError: the file is missing or is none of these.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=Skipped)
    except FileNotFoundError:
        raise UserError(
            f"-replay={file}: there is no such file; runs write them to {FOLDER}/ of their output folder"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(
            f"-replay={file} does not describe an update ({str(error)[:80]}); expected a file "
            f"{FOLDER}/update_*.json of an output folder"
        ) from None
