"""What is kept of an update that was not finite, in ``not_finite/`` of the output folder, so that it can be run again.

``update_00000123.json`` says where the update was and which samples each rank read; ``update_00000121.pdparams`` holds
the weights from before update 121, which is what the later ones of the same row began with too, since none of them
changed anything; ``config.yaml`` holds the settings.
"""

import copy
import itertools
import json
import os
from pathlib import Path
from typing import NamedTuple

import paddle

from ..checkpoint.content import update_name
from ..config import dump_yaml
from ..contracts.task import Step
from ..engine.parts import TrainingParts
from ..loading.sampler import SampleKey, TrainingSampler
from ..parallel import barrier, is_main
from ..runtime.errors import UserError
from ..runtime.files import atomic_file

FOLDER, CONFIG = "not_finite", "config.yaml"
_KEPT, _KEPT_WEIGHTS = 20, 2
_FORMAT = 1
_NUMBERS = "update epoch total_updates first_of_row seed accumulation_steps samples_per_update".split()


class Skipped(NamedTuple):
    """An update that was skipped, as its file describes it.

    Attributes:
        update: from 1, over the whole training.
        epoch: from 1.
        first_of_row: the first update of those in a row that were skipped.
        seed: of the run.
        accumulation_steps: micro-batches of each rank.
        samples_per_update: over all ranks and micro-batches.
        scale: what the loss was multiplied by; None without a loss scaler.
        keys: which readings each rank's micro-batches are of, [rank][micro-batch].
    """

    update: int
    epoch: int
    total_updates: int
    first_of_row: int
    seed: int
    accumulation_steps: int
    samples_per_update: int
    scale: float | None
    keys: list[list[list[SampleKey]]]


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
        values = {
            "format": _FORMAT,
            "update": step.update + 1,
            "epoch": step.epoch,
            "total_updates": step.total_updates,
            "first_of_row": first,
            "seed": self._sampler.seed,
            "accumulation_steps": self._sampler.accumulation_steps,
            "samples_per_update": self._sampler.global_batch_size,
            "scale": self._precision.scale if self._precision.scaler else None,
            "consumed": consumed,
            "ranks": [
                [[[key.index, key.repeat, self._description(key.index)] for key in keys] for keys in micro_batches]
                for micro_batches in keys_of_update(self._sampler, step.epoch, consumed)
            ],
        }
        with atomic_file(file) as out:
            out.write(json.dumps(values, indent=None).encode())
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

    def _description(self, index: int) -> str:
        try:
            return str(self._samples.describe(index))
        except Exception as error:  # of a user's class: the update is worth more than a name
            return f"no description: {error}"


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
        values = json.loads(file.read_text(encoding="utf-8"))
        if values["format"] != _FORMAT:
            raise ValueError(f"format {values['format']}, expected {_FORMAT}")
        epoch = int(values["epoch"])
        keys = [
            [[SampleKey(epoch, int(index), int(repeat)) for index, repeat, _ in micro] for micro in rank]
            for rank in values["ranks"]
        ]
        if not keys or not all(rank and all(rank) for rank in keys):
            raise ValueError("it names no samples")
        numbers = {name: int(values[name]) for name in _NUMBERS}
        scale = None if values["scale"] is None else float(values["scale"])
        return Skipped(scale=scale, keys=keys, **numbers)
    except FileNotFoundError:
        raise UserError(
            f"-replay={file}: there is no such file; runs write them to {FOLDER}/ of their output folder"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"-replay={file} does not describe an update ({type(error).__name__}: {str(error)[:80]}); expected a file "
            f"{FOLDER}/update_*.json of an output folder"
        ) from None
