"""What a checkpoint says of itself, and whether that fits the run that loads it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import paddle

from .. import __version__
from ..checkpoint import store as checkpoints
from ..checkpoint.content import checkpoint_in
from ..config import dump_yaml
from ..config.table import effects, leaves
from ..contracts.task import Task
from ..runtime.errors import UserError
from ..runtime.text_files import parse_yaml


class Change(NamedTuple):
    """A setting that differs between a checkpoint and this run; ``alters`` where it changes the course of training."""

    name: str
    before: Any
    now: Any
    alters: bool


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """The settings that differ, in the order in which ``now`` has them.

    A key that only one side knows comes from another version of this package and is not compared.

    Args:
        before, now: configurations as nested mappings.
    """
    earlier, effect_of, changes = _values(before), effects(), []
    for name, value in _values(now).items():
        effect = effect_of[name]
        if effect in ("start", "place") or name not in earlier or earlier[name] == value:
            continue
        if effect != "data" or None not in (earlier[name], value):
            changes.append(Change(name, earlier[name], value, effect not in ("neutral", "machine")))
    return changes


def table_of(changes: list[Change]) -> list[str]:
    """Lines that show old and new side by side."""
    rows = [("setting", "before", "now", "")]
    rows += [(c.name, shown(c.before), shown(c.now), "alters the run" if c.alters else "") for c in changes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  " + "  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0))).rstrip() for row in rows]


def _values(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted names, with lists for tuples, which YAML does not know."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in leaves(tree)}


def shown(value: Any) -> str:
    """A value on one line, not long, and without anything that moves a terminal's cursor."""
    text = str(value)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 60 else text[:57] + "..."


def as_event(changes: list[Change]) -> dict[str, list[Any]]:
    """The same for ``metrics.jsonl``: setting -> [before, now]."""
    return {change.name: [change.before, change.now] for change in changes}


def describe(config: Any, task: Task, datasets: dict[str, Any]) -> dict[str, Any]:
    """The content of ``about.yaml``: plain values."""
    return {
        "task": config.TASK,
        "model": config.MODEL.NAME,
        "input": task.about_input(),
        "data": {split: task.about_data(samples) for split, samples in datasets.items()},
        "versions": {"paddlevit_dist": __version__, "paddle": paddle.__version__},
        "settings": settings_of(config),
    }


def require_same_classes(source: str, config: Any, task: Task, samples: Any) -> list[str]:
    """Before an evaluation: the weights' classes have to be those of the data, in the same order.

    Names are compared where both sides have them, else their number; returns a line for the log if they differ and
    that is allowed, or if the weights do not name as many classes as the data do.

    Raises:
        UserError: they differ, and -allow_changes was not given.
    """
    said = differing_classes(source, task, samples)
    ours = task.about_data(samples).get("classes")
    if said is None and ours and not _known(source, "classes"):
        return [
            f"note: classes unknown: {source} does not name its {len(ours):,} classes; the score takes them for those "
            f"of the data in their order ({shown(', '.join(map(str, ours)))})"
        ]
    if said is not None and not config.ALLOW_CHANGES:
        raise UserError(f"{source} was trained on other classes: {said}; use the same names, or add -allow_changes")
    return [] if said is None else [f"note: {source} was trained on other classes: {said}"]


def differing_classes(source: str, task: Task, samples: Any) -> str | None:
    """How the classes that the weights were trained on differ from those of the data, in words.

    None where they do not, or where it cannot be known.
    """
    now = task.about_data(samples)
    theirs, ours = _known(source, "classes"), now.get("classes")
    if not (theirs and ours):
        there, here = _known(source, "number of classes"), now.get("number of classes")
        return None if None in (there, here) or there == here else f"{shown(there)} classes there, {shown(here)} here"
    pairs = enumerate(zip(theirs, ours))
    different = [f"{number}: {shown(a)} there, {shown(b)} here" for number, (a, b) in pairs if a != b]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        return f"class {'; '.join(different[:3])}{more}"
    return None if len(theirs) == len(ours) else f"{len(theirs)} classes there, {len(ours)} here"


def _known(source: str, name: str) -> Any:
    """What a checkpoint says of the first split of which it says it, else None."""
    data = (checkpoints.read_about(source) or {}).get("data") or {}
    return next((of_split[name] for of_split in data.values() if of_split.get(name)), None)


def changed_data(source: str, task: Task, datasets: dict[str, Any]) -> list[Change]:
    """What differs between the data that a checkpoint was trained on and this run's, whatever folder they are in."""
    data = (checkpoints.read_about(source) or {}).get("data")
    changes = []
    for split, samples in datasets.items():
        before, now = (data or {}).get(split) or {}, task.about_data(samples)
        changes += [
            Change(f"{split} {name}", before[name], now[name], alters=True)
            for name in now
            if name in before and before[name] != now[name]
        ]
    return changes


def settings_of(config: Any) -> dict[str, Any]:
    """The configuration as nested plain values."""
    return parse_yaml(dump_yaml(config))


def earlier_settings(source: str) -> dict[str, Any]:
    """The configuration of the run that wrote a checkpoint; empty for weights of others."""
    settings = (checkpoints.read_about(source) or {}).get("settings")
    return settings if isinstance(settings, dict) else {}


def epochs_by_size(config: Any) -> int | None:
    """The epochs that TRAIN.NUM_SAMPLES gave the training which -resume continues; None for a new or another one."""
    resume, train = config.MODEL.RESUME, config.TRAIN
    if not resume or train.NUM_SAMPLES is None:
        return None
    before = earlier_settings(str(checkpoint_in(config.SAVE if resume == "auto" else resume))).get("TRAIN")
    if not isinstance(before, dict) or before.get("NUM_SAMPLES") != train.NUM_SAMPLES:
        return None
    epochs = before.get("NUM_EPOCHS")
    same_limits = _plain(before.get("EPOCH_LIMITS")) == _plain(train.EPOCH_LIMITS)
    return epochs if isinstance(epochs, int) and epochs > 0 and same_limits else None


def compare(source: str, config: Any, task: Task, *, must_match: bool) -> list[str]:
    """Compare what the checkpoint at ``source`` says of its input with this run's; returns lines for the log.

    Weights other than our checkpoints say nothing, and nothing is compared; nor is a name that only one side has. A
    checkpoint whose ``about.yaml`` was lost or removed gets a line.

    Args:
        must_match: for an evaluation or a resumed training; weights to start a training from may differ, with a line.
    Raises:
        UserError: the two differ, they must not, and -allow_changes was not given.
    """
    about = checkpoints.read_about(source)
    if about is None:
        return []
    theirs, ours = about.get("input"), task.about_input()
    if not isinstance(theirs, dict) or (ours and not theirs):
        return [f"note: {source} does not say how it was trained (about.yaml): that cannot be checked against this run"]
    changes = [
        Change(name, theirs[name], value, alters=True)
        for name, value in ours.items()
        if name in theirs and _plain(value) != _plain(theirs[name])
    ]
    remedy = " and ".join(dict.fromkeys(task.remedy_for_input(change.name, change.before) for change in changes))
    return differing(source, "was trained on other input", changes, config, must_match, remedy)


def compare_settings(source: str, config: Any, *, must_match: bool) -> list[str]:
    """Compare the settings that a score depends on with those of the run that wrote the checkpoint at ``source``;
    returns lines for the log.

    Weights of another network may fit in all their shapes: of as many heads, of more layers. How an evaluation is done
    may be chosen for it, and is only told.

    Args:
        must_match: for an evaluation; a training that starts from these weights gets a line about the network.
    Raises:
        UserError: the network is another, it must not be, and -allow_changes was not given.
    """
    changes, effect_of = changed_settings(earlier_settings(source), settings_of(config)), effects()
    of_network = [change for change in changes if effect_of[change.name] == "network"]
    others = [change for change in changes if effect_of[change.name] == "score"] if must_match else []
    return [
        *differing(source, "is of another network", of_network, config, must_match),
        *differing(source, "was evaluated otherwise in its training", others, config, False),
    ]


def differing(
    source: str,
    what: str,
    changes: list[Change],
    config: Any,
    must_match: bool,
    remedy: str = "use the same settings",
) -> list[str]:
    """The line about what differs, or the error where nothing may.

    Args:
        what: in words between ``source`` and the changes.
        must_match: nothing may differ, unless -allow_changes was given.
    Raises:
        UserError: something does.
    """
    if not changes:
        return []
    said = f"{source} {what}: {'; '.join(f'{c.name} {shown(c.before)} there, {shown(c.now)} here' for c in changes)}"
    if must_match and not config.ALLOW_CHANGES:
        raise UserError(f"{said}; {remedy}, or add -allow_changes")
    return [f"note: {said}"]


def _plain(value: Any) -> Any:
    """Tuples as lists, which is what YAML gives back."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
