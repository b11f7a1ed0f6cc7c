"""Whether a run fits what it uses: weights to start from, a training to resume, a checkpoint to evaluate, the other
machines.

Each side is a list of facts, names with values of some kind: those of a run follow from its configuration, task and
data, those of a checkpoint stand in its ``about.yaml`` and ``samples.npz``. ``USES`` says which of them must be alike.
"""

import functools
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from .. import __version__
from ..checkpoint import store as checkpoints
from ..checkpoint.content import checkpoint_in
from ..distributed import all_gather, world_size
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.text_files import parse_yaml
from ..settings import dump_yaml
from ..settings.every_run import RunSettings
from ..settings.table import effects, leaves
from ..tasks.task import Task
from .run_command import format_command
from .source_digests import list_source_digests

# use -> kinds of facts that stop it where they differ, unless -allow_changes was given, and kinds that are told; others
# are not compared. "files" are other samples, "seen" such as were trained on there and are held out here; the other
# kinds are those of settings (``settings.key.EFFECTS``): "course" is "training" and "data", "start" has versions.
USES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "start": ((), ("network", "input", "classes", "seen")),
    "resume": (("network", "input", "classes", "files", "course", "score"), ("neutral", "machine")),
    "evaluate": (("network", "input", "classes", "seen"), ("score", "files")),
    "join": (("network", "classes", "files", "course", "score", "neutral", "start"), ()),  # nothing else is allowed
}

_TRAIN, _VAL = "train", "val"
_EARLIER = "trained on earlier"  # before resumes with other files or another seed
_NAMES = "val names"  # uint8, with zeros between them
_NONE = np.empty(0, np.uint64)
_MOST_TOLD = 5


class RunFact(NamedTuple):
    """Statement of a run or a checkpoint under a name."""

    kind: str
    value: Any


class FactDifference(NamedTuple):
    """A fact that differs between a checkpoint, or a recorded run, and this run."""

    name: str
    before: Any
    now: Any
    kind: str

    @property
    def alters(self) -> bool:
        """Whether a training would run differently."""
        return _stops("resume", self.kind)


def _stops(use: str, kind: str) -> bool:
    return kind in USES[use][0]


def _matters(use: str, kind: str) -> bool:
    return any(kind in kinds for kinds in USES[use])


def to_plain_settings(config: RunSettings) -> dict[str, Any]:
    """The configuration as nested plain values."""
    return parse_yaml(dump_yaml(config))


def describe(config: RunSettings, task: Task, datasets: dict[str, Any]) -> dict[str, Any]:
    """The content of ``about.yaml``: plain values."""
    return {
        "task": config.TASK,
        "model": config.MODEL.NAME,
        "input": task.preprocess_signature(),
        "data": {split: task.dataset_signature(samples) for split, samples in datasets.items()},
        "versions": {"paddlevit_dist": __version__, "paddle": paddle.__version__},
        "settings": to_plain_settings(config),
    }


def facts_from_settings(settings: Mapping[str, Any] | RunSettings) -> dict[str, RunFact]:
    """The facts in a configuration, nested; without those of a place, of another version, and what None leaves to the
    data."""
    effect_of, found = effects(), {}
    for name, value in leaves(settings):
        effect = effect_of.get(name, "place")
        if effect != "place" and not (effect == "data" and value is None):
            found[name] = RunFact("course" if effect in ("training", "data") else effect, value)
    return found


def _facts_from_data(data: Mapping[str, Mapping[str, Any]]) -> dict[str, RunFact]:
    """The facts in what ``Task.dataset_signature`` says of each split."""
    return {
        f"{split} {name}": RunFact("classes" if "classes" in name else "files", value)
        for split, said in data.items()
        for name, value in (said or {}).items()
    }


def facts_from_machine(config: RunSettings, task: Task, datasets: dict[str, Any]) -> dict[str, Any]:
    """Collect what all ranks must have alike, values by name; data first, as much of the settings follows from them."""
    found: dict[str, RunFact] = {}
    for split, samples in datasets.items():
        for name, (kind, value) in _facts_from_data({split: task.dataset_signature(samples)}).items():
            items = enumerate(value) if isinstance(value, list) else [("", value)]
            found.update({f"{name} {number}".strip(): RunFact(kind, item) for number, item in items})
        found.update({f"{split} {name}": RunFact("files", value) for name, value in samples.listed_digests().items()})
    python = ".".join(platform.python_version_tuple()[:2])
    versions = {"paddlevit_dist": __version__, "paddle": paddle.__version__, "numpy": np.__version__, "Python": python}
    found.update({name: RunFact("start", value) for name, value in {**versions, **list_source_digests()}.items()})
    for name, (kind, value) in facts_from_settings(config).items():
        is_path = isinstance(value, str) and "/" in value  # which may be another on each machine
        found[name] = RunFact(kind, "a path" if is_path else value)
    return {name: value for name, (kind, value) in found.items() if _stops("join", kind)}


def epochs_by_size(config: RunSettings) -> int | None:
    """The epochs that TRAIN.NUM_SAMPLES gave the training which -resume continues; None for a new or another one."""
    resume, train = config.MODEL.RESUME, config.TRAIN
    if not resume or train.NUM_SAMPLES is None:
        return None
    about = checkpoints.read_about(str(checkpoint_in(config.SAVE if resume == "auto" else resume)))
    before = ((about or {}).get("settings") or {}).get("TRAIN")
    if not isinstance(before, dict) or before.get("NUM_SAMPLES") != train.NUM_SAMPLES:
        return None
    epochs = before.get("NUM_EPOCHS")
    same_limits = _plain(before.get("EPOCH_LIMITS")) == _plain(train.EPOCH_LIMITS)
    return epochs if isinstance(epochs, int) and epochs > 0 and same_limits else None


def list_samples(datasets: dict[str, Any], before: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """List what a checkpoint keeps of its samples: their identities by split, and of those that only earlier sessions
    of its training were trained on; and what identifies those of val, in words. Nothing where one listed none.

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
    trained_on = np.concatenate([before.get(_TRAIN, _NONE), before.get(_EARLIER, _NONE)])
    earlier = np.setdiff1d(trained_on, lists.get(_TRAIN, _NONE))
    return {**lists, _EARLIER: earlier} if len(earlier) else lists


def compare(use: str, before: Mapping[str, RunFact], now: Mapping[str, RunFact]) -> list[FactDifference]:
    """List what differs and matters to ``use``, in the order of ``now``. A name that only one side has comes from
    another version of this package, and is not compared."""
    return [
        FactDifference(name, before[name].value, value, kind)
        for name, (kind, value) in now.items()
        if _matters(use, kind) and name in before and _plain(before[name].value) != _plain(value)
    ]


def compare_files(
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


def _other_names(theirs: list[Any], ours: list[Any]) -> str:
    """How the names of classes differ, in words; empty where they do not."""
    pairs = enumerate(zip(theirs, ours))
    different = [f"{number}: {show(a)} there, {show(b)} here" for number, (a, b) in pairs if a != b]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        return f"class {'; '.join(different[:3])}{more}"
    return "" if len(theirs) == len(ours) else f"{len(theirs)} classes there, {len(ours)} here"


def _plain(value: Any) -> Any:
    """Tuples as lists, which is what YAML gives back."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def report_or_raise(use: str, kind: str, said: str, config: RunSettings, remedy: str, command: str = "") -> list[str]:
    """The line about a difference, or the error where it stops the use.

    Args:
        command: that has no such difference; empty where none is known.

    Raises:
        UserError: it does, and -allow_changes was not given.
    """
    if _stops(use, kind) and not config.ALLOW_CHANGES:
        instead = f"; with the settings of its run: {command}" if command else ""
        raise UserError(f"{said}; {remedy}, or add -allow_changes{instead}")
    return [f"note: {said}"]


def judge_changes(
    use: str,
    source: str,
    what: str,
    changes: list[FactDifference],
    config: RunSettings,
    remedy: str = "use the same settings",
) -> list[str]:
    """The same for changes of one kind, with ``what`` in words before them; nothing if there are none."""
    if not changes:
        return []
    both = "; ".join(f"{c.name} {show(c.before)} there, {show(c.now)} here" for c in changes)
    command = format_command(use, source, config)
    return report_or_raise(use, changes[0].kind, f"{source} {what}: {both}", config, remedy, command)


def altering(changes: list[FactDifference]) -> str:
    """Those that alter a training, in words; empty if none does."""
    return "; ".join(f"{c.name} {show(c.before)} -> {show(c.now)}" for c in changes if c.alters)


def show(value: Any) -> str:
    """A value on one line, not long, and without anything that moves a terminal's cursor."""
    text = str(value)
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 60 else text[:57] + "..."


class CheckpointDiff:
    """A checkpoint's words against the run that loads it. Weights of others say nothing, and little is compared.

    ``settings``, ``input``, ``classes``, ``files`` and ``unlisted`` return lines for the log, and raise ``UserError``
    where a difference stops the use and -allow_changes was not given.

    Args:
        use: a key of ``USES``.
        source: the checkpoint's directory, or weights.
    Raises:
        UserError: what the checkpoint says is damaged.
    """

    def __init__(self, use: str, source: str | Path, config: RunSettings, task: Task) -> None:
        self.use, self.source, self.config, self.task = use, str(source), config, task
        self._about = checkpoints.read_about(self.source)

    @functools.cached_property
    def lists(self) -> dict[str, np.ndarray] | None:
        """The samples that its training had, see ``list_samples``; None where they are not known."""
        return checkpoints.read_samples(self.source)

    def _format_origin(self, part: str) -> dict[str, Any]:
        return (self._about or {}).get(part) or {}

    def settings(self) -> list[str]:
        """Compare the settings that a score depends on.

        Weights of another network may fit in all their shapes: of as many heads, of more layers. How an evaluation is
        done may be chosen for it, and is only told.
        """
        before = facts_from_settings(self._format_origin("settings"))
        if "TASK" in before and before["TASK"].value in self.task.compatible_tasks:
            del before["TASK"]
        changes = compare(self.use, before, facts_from_settings(to_plain_settings(self.config)))
        lines = []
        for kind, what in (("network", "is of another network"), ("score", "was evaluated otherwise in its training")):
            of_kind = [change for change in changes if change.kind == kind]
            lines += judge_changes(self.use, self.source, what, of_kind, self.config)
        return lines

    def input(self) -> list[str]:
        """Compare how samples are made. A checkpoint whose ``about.yaml`` was lost or removed gets a line."""
        if self._about is None:
            return []
        theirs, ours = self._about.get("input"), self.task.preprocess_signature()
        if theirs is None or (ours and not theirs):
            said = "does not say how it was trained (about.yaml): that cannot be checked against this run"
            return [f"note: {self.source} {said}"]
        before, now = ({name: RunFact("input", side[name]) for name in side} for side in (theirs, ours))
        changes = compare(self.use, before, now)
        remedy = " and ".join(dict.fromkeys(self.task.mismatch_hint(c.name, c.before) for c in changes))
        return judge_changes(self.use, self.source, "was trained on other input", changes, self.config, remedy)

    def classes(self, samples: Any) -> list[str]:
        """Compare the classes, which have to be the same in the same order.

        By names where both sides have them, else by their number. Weights to evaluate that do not name as many classes
        as the data do get a line.
        """
        now = self.task.dataset_signature(samples)
        theirs, ours = self._of_first_split("classes"), now.get("classes")
        if theirs and ours:
            said = _other_names(theirs, ours)
        else:
            there, here = self._of_first_split("number of classes"), now.get("number of classes")
            is_same = None in (there, here) or there == here
            said = "" if is_same else f"{show(there)} classes there, {show(here)} here"
        if said:
            start = ", whose classifier is where this one starts" if self.use == "start" else ""
            said = f"{self.source} was trained on other classes{start}: {said}"
            return report_or_raise(self.use, "classes", said, self.config, "use the same names")
        if theirs or not ours:
            return []
        if self.use == "start":
            return [
                f"note: {self.source} does not name its classes as the data do: the rows of its classifier keep their "
                f"places ({show(', '.join(map(str, ours)))})"
            ]
        return [
            f"note: classes unknown: {self.source} does not name its {len(ours):,} classes; the score takes them for "
            f"those of the data in their order ({show(', '.join(map(str, ours)))})"
        ]

    def _of_first_split(self, name: str) -> Any:
        """Return what it says of the first split of which it says it, else None."""
        return next((said[name] for said in self._format_origin("data").values() if said and said.get(name)), None)

    def files(self, split: str, samples: Any) -> list[str]:
        """Compare held-out ``samples`` with those that it was trained on and those that it held out."""
        if split == _TRAIN:  # which is there to be trained on
            return []
        if self.lists is None:
            return [] if self.use == "start" else self.log_unlisted(samples)
        identities = samples.identities()
        if identities is None:
            return []
        trained_on, differs = compare_files(self.lists, split, identities, self.lists.get(_EARLIER, _NONE))
        kind = "seen" if len(trained_on) else "files"
        if not differs or not _matters(self.use, kind):
            return []
        number = f"{len(samples):,} {self.task.sample_name} of {split}"
        said = f"{number}, against those that {self.source} held out: {differs}"
        if kind == "seen":
            said += f"; trained on is {samples.describe(int(trained_on[0]))}: the score counts what the model has seen"
        else:
            if "gone" in differs and _NAMES in self.lists:
                names = self.lists[_NAMES].tobytes().decode("utf-8", "surrogateescape").split("\0")
                said += f"; gone is {names[int(np.flatnonzero(~np.isin(self.lists[split], identities))[0])]}"
            said += ": the score is of other files"
        division = ", DATA.VAL_FRACTION and DATA.VAL_SEED" if samples.is_random_split else ""
        return report_or_raise(self.use, kind, said, self.config, f"give the run's files{division}")

    def log_unlisted(self, samples: Any) -> list[str]:
        """The line about held-out ``samples`` where it does not list what it was trained on."""
        if not samples.is_random_split or self.lists is not None:
            return []
        number = f"{len(samples):,} {self.task.sample_name}"
        return [
            f"note: {self.source} does not list what it was trained on: how many of these {number} are among it is not "
            "known, and the score may be far too high"
        ]

    def changes(self, datasets: dict[str, Any], batches: tuple[int, int]) -> list[FactDifference]:
        """List what this training does otherwise than the checkpoint's: settings, samples of an update (``batches``,
        there and here) and data, whatever folder these are in. How samples are made, ``input`` compares."""
        data = {split: self.task.dataset_signature(samples) for split, samples in datasets.items()}
        there, here = ({"effective batch": RunFact("course", batch)} for batch in batches)
        before = {
            **facts_from_settings(self._format_origin("settings")),
            **there,
            **_facts_from_data(self._format_origin("data")),
        }
        now = {**facts_from_settings(to_plain_settings(self.config)), **here, **_facts_from_data(data)}
        return compare(self.use, before, now) + self.changed_files(datasets)

    def changed_files(self, datasets: dict[str, Any]) -> list[FactDifference]:
        """The splits of which a resumed training would read other samples."""
        if self.lists is None:
            unknown = "divided anew: val may be what was trained on"
            is_divided = any(samples.is_random_split for samples in datasets.values())
            return [FactDifference("train and val files", "not listed", unknown, "files")] if is_divided else []
        changes = []
        for split, samples in datasets.items():
            identities = samples.identities()
            said = "" if identities is None else compare_files(self.lists, split, identities)[1]
            if said:
                changes.append(FactDifference(f"{split} files", len(self.lists.get(split, _NONE)), said, "files"))
        return changes


def assert_same_on_all_ranks(config: RunSettings, task: Task, datasets: dict[str, Any]) -> None:
    """Compare data, versions and settings of all ranks, before anything is computed. Every rank must call this.

    Each machine has its own command line, package and copy of the data; one without one of the classes would train
    along, and the score would be wrong. Ranks that one process has started have all of it from that process: nothing is
    compared then.

    Raises:
        UserError: on every rank alike; names a rank, its machine, and what differs from rank 0's.
    """
    if world_size() == 1 or signals.has_parent():
        return
    everybody = all_gather((socket.gethostname(), facts_from_machine(config, task, datasets)))
    first_host, expected = everybody[0]
    for rank, (host, found) in enumerate(everybody):
        names = [name for name in dict.fromkeys([*expected, *found]) if expected.get(name) != found.get(name)]
        if names:
            said = "; ".join(_log_difference(name, found.get(name), expected.get(name)) for name in names[:_MOST_TOLD])
            more = f"; and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
            raise UserError(
                f"rank {rank} on {host} differs from rank 0 on {first_host}: {said}{more}; give all machines the same "
                "data, code and settings"
            )


def _log_difference(name: str, found: Any, expected: Any) -> str:
    if isinstance(found, bytes) or isinstance(expected, bytes):  # digests
        return f"its {name} are others"
    return f"{name} {show(found)} instead of {show(expected)}"
