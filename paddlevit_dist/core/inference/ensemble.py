"""Prediction by several models: their weights must fit together, and one model at a time is on the device."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import paddle

from ..checkpoint.about_schema import ABOUT
from ..engine.precision import EvaluationPrecision
from ..runtime.errors import UserError
from ..tasks.aspects import has_aspect
from ..tasks.prediction import CheckpointMeta
from ..tasks.protocols import EnsembleMember, Ensembling
from ..tasks.task import Task
from .trained import TrainedWeights

_HOST = "cpu"


def split_runs(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the runs and checkpoints at the beginning of ``paths``, and the other paths."""
    number = next((place for place, path in enumerate(paths) if not _is_run(path)), len(paths))
    return list(paths[:number]), list(paths[number:])


def _is_run(path: str) -> bool:
    if os.path.isdir(path):
        return os.path.isdir(os.path.join(path, "checkpoints")) or os.path.isfile(os.path.join(path, ABOUT))
    return path.endswith(".pdparams")


def require_ensemble(task: Task, sources: Sequence[TrainedWeights]) -> None:
    """Raise UserError unless the task predicts with several models, and the weights have one input and classes."""
    first = sources[0]
    if len(sources) > 1 and not has_aspect(task, Ensembling):
        raise UserError(
            f"predict: task {first.config.TASK} cannot predict with several runs: its class is not Ensembling; name one"
        )
    expected = _list_facts(first.learned, first.config.TASK)
    for other in sources[1:]:
        found = _list_facts(other.learned, other.config.TASK)
        for name in expected | found:
            if expected.get(name) != found.get(name):
                raise UserError(
                    f"predict: {other.weights} does not fit {first.weights}: its {name} is {found.get(name)}, not "
                    f"{expected.get(name)}; name runs on the same data with the same input"
                )


def _list_facts(learned: CheckpointMeta, task: str) -> dict[str, Any]:
    own_names = learned.data.get("classes") or learned.class_names  # -class_names replaces the latter for all of them
    facts = {"task": task, "list of classes": list(map(str, own_names or ())) or None}
    return {**facts, "number of classes": learned.num_classes, **learned.input}


def join_digests(sources: Sequence[TrainedWeights]) -> dict[str, str]:
    """Return the digests of ``TrainedWeights.digests``, joined in the order of the weights."""
    digests = [source.digests() for source in sources]
    return {name: " + ".join(each[name] for each in digests) for name in digests[0]}


class ModelEnsemble:
    """Models, on the device at first, that take turns there; on a GPU, the others wait in host memory.

    ``device``: name of the device; None: this process's.
    """

    def __init__(self, members: Iterator[EnsembleMember], device: str | None = None) -> None:
        self._device = device or paddle.get_device()
        self._members = []
        for member in members:
            self._move(member, _HOST)
            self._members.append(member)

    def __iter__(self) -> Iterator[EnsembleMember]:
        for member in self._members:
            self._move(member, self._device)
            try:
                yield member
            finally:
                self._move(member, _HOST)

    def _move(self, member: EnsembleMember, device: str) -> None:
        if self._device != _HOST:
            member.model.to(device=device)

    @contextlib.contextmanager
    def patch_forward(self, precision: EvaluationPrecision) -> Iterator[None]:
        """Run the models' forward passes in a precision, see ``EvaluationPrecision``."""
        with contextlib.ExitStack() as stack:
            for member in self._members:
                stack.enter_context(precision.patch_forward(member.model))
            yield
