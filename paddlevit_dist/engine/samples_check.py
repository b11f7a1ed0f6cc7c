"""Whether the samples of a run are those of the checkpoint that it loads."""

from typing import Any

import numpy as np

from ..checkpoint import store as checkpoints
from ..contracts.task import Task
from ..runtime.errors import UserError
from .about import Change

_TRAIN, _VAL = "train", "val"
_EARLIER = "trained on earlier"  # before resumes with other files or another seed
_NAMES = "val names"  # uint8, with zeros between them
_NONE = np.empty(0, np.uint64)


def listed(datasets: dict[str, Any], before: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """What a checkpoint keeps of its samples: their identities by split, and of those that only earlier sessions of its
    training were trained on; and what identifies those of val, in words. Nothing where an earlier session listed none.

    Args:
        before: the lists of the checkpoint that the training continues, None if it has none; empty for a new training.
    """
    if before is None:
        return {}
    found = {split: samples.identities() for split, samples in datasets.items()}
    lists = {split: identities for split, identities in found.items() if identities is not None}
    if _VAL in lists:
        val = datasets[_VAL]
        names = "\0".join(map(val.name, range(len(val)))).encode("utf-8", "surrogateescape")
        lists[_NAMES] = np.frombuffer(names, np.uint8)
    earlier = np.setdiff1d(_trained_on(before), lists.get(_TRAIN, _NONE))
    return {**lists, _EARLIER: earlier} if len(earlier) else lists


def _is_divided(datasets: dict[str, Any]) -> bool:
    return any(samples.is_share for samples in datasets.values())


def _trained_on(lists: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([lists.get(_TRAIN, _NONE), lists.get(_EARLIER, _NONE)])


def differing(
    lists: dict[str, np.ndarray], split: str, identities: np.ndarray, earlier: np.ndarray = _NONE
) -> tuple[np.ndarray, str]:
    """Compare the samples of a split with the lists of a checkpoint.

    Args:
        identities: uint64 (samples,).
        earlier: others that count as trained on.
    Returns:
        Indices of those that its run had on the other side alone (trained on and held out here, or the reverse), int64;
        and in words how many these are, how many are new, in no split there (renamed ones among them), and how many of
        that split are gone: empty where nothing differs. Of a split that it does not list only the first.
    """
    is_train = split == _TRAIN
    own = lists.get(split, _NONE)
    other = np.concatenate([np.setdiff1d(lists.get(_VAL if is_train else _TRAIN, _NONE), own), earlier])
    has_crossed = np.isin(identities, other)
    crossed = np.flatnonzero(has_crossed)
    said = {"held out there" if is_train else "trained on": len(crossed)}
    if split in lists:
        said["new"] = np.count_nonzero(~has_crossed & ~np.isin(identities, own))
        said["gone"] = np.count_nonzero(~np.isin(own, identities))
    return crossed, ", ".join(f"{number:,} {what}" for what, number in said.items() if number)


def changed_samples(source: str, datasets: dict[str, Any]) -> list[Change]:
    """The splits of which a resumed training would read other samples than the checkpoint's."""
    lists = checkpoints.read_samples(source)
    if lists is None:
        unknown = "divided anew: val may be what was trained on"
        return [Change("train and val files", "not listed", unknown, alters=True)] if _is_divided(datasets) else []
    changes = []
    for split, samples in datasets.items():
        identities = samples.identities()
        said = "" if identities is None else differing(lists, split, identities)[1]
        if said:
            changes.append(Change(f"{split} files", len(lists.get(split, _NONE)), said, alters=True))
    return changes


def require_held_out(
    source: str, config: Any, task: Task, split: str, samples: Any, *, must_match: bool = True
) -> list[str]:
    """Before an evaluation of ``samples``: none may be one that the run of the weights at ``source`` trained on.

    Args:
        split: "train" is there to be trained on, and not compared.
        must_match: for an evaluation of these weights; a training that starts from them gets a line where some were
            trained on.
    Returns:
        Lines for the log: which are not those that it held out, and what cannot be known.
    Raises:
        UserError: some were trained on, and -allow_changes was not given.
    """
    if split == _TRAIN:
        return []
    lists = checkpoints.read_samples(source)
    if lists is None:
        return tell_unlisted(source, task, samples) if must_match else []
    identities = samples.identities()
    if identities is None:
        return []
    trained_on, differs = differing(lists, split, identities, lists.get(_EARLIER, _NONE))
    if not differs or not (must_match or len(trained_on)):
        return []
    said = f"{len(samples):,} {task.sample_name} of {split}, against those that {source} held out: {differs}"
    if not len(trained_on):
        if "gone" in differs and _NAMES in lists:
            names = lists[_NAMES].tobytes().decode("utf-8", "surrogateescape").split("\0")
            said += f"; gone is {names[int(np.flatnonzero(~np.isin(lists[split], identities))[0])]}"
        return [f"note: {said}: the score is of other files"]
    said += f"; trained on is {samples.describe(int(trained_on[0]))}: the score counts what the model has seen"
    if must_match and not config.ALLOW_CHANGES:
        division = ", DATA.VAL_FRACTION and DATA.VAL_SEED" if samples.is_share else ""
        raise UserError(f"{said}; give the run's files{division}, or add -allow_changes")
    return [f"note: {said}"]


def tell_unlisted(source: str, task: Task, samples: Any) -> list[str]:
    """The line about held-out ``samples`` and weights that do not list what they were trained on."""
    if not samples.is_share or checkpoints.read_samples(source) is not None:
        return []
    return [
        f"note: {source} does not list what it was trained on: how many of these {len(samples):,} {task.sample_name} "
        "are among it is not known, and the score may be far too high"
    ]
