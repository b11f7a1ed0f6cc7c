"""Checks whether a run fits its initial weights, the checkpoint it resumes or evaluates, and the other machines.

Each side is a table of facts by name: of a run from its configuration, task and data, of a checkpoint from its
``about.yaml`` and ``samples.npz``. ``USES`` lists the kinds of facts that must be equal.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..checkpoint import store as checkpoint_store
from ..checkpoint.model_record import read_facts
from ..registry.lookup import find_built_in
from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..runtime.version import __version__
from ..settings.every_run import RunSettings
from ..settings.table import comparable_leaves, effects, public_leaves
from ..tasks.aspects import get_aspect
from ..tasks.dataset import TransformedDataset
from ..tasks.protocols import SAME_SETTINGS, CheckpointMatching, count_samples
from ..tasks.task import Task
from ..tasks.task_factory import name_network
from .run_command import format_command

# use -> kinds of facts whose differences raise an error unless -allow_changes is given, and kinds whose differences are
# logged; the rest is not compared. "files": other samples; "seen": samples that the checkpoint was trained on and that
# this run holds out. The rest are the kinds of settings in ``settings.key.EFFECTS``: "course" combines "training" and
# "data", and "start" includes versions.
USES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "start": ((), ("network", "input", "classes", "seen")),
    "resume": (("network", "input", "classes", "files", "course", "score"), ("neutral", "machine")),
    "evaluate": (("network", "input", "classes", "seen"), ("score", "files")),
    "ranks": (("network", "classes", "files", "course", "score", "neutral", "start"), ()),
}

_TRAIN, _VAL = "train", "val"
_EARLIER = "trained on earlier"  # before a resume with other files or another seed
_NAMES = "val names"  # uint8, UTF-8 names separated by zeros
_NONE = np.empty(0, np.uint64)


class RunFact(NamedTuple):
    """A property of a run or a checkpoint: a kind of ``USES``, such as "files", and a plain YAML value or a digest."""

    kind: str
    value: object


class FactDifference(NamedTuple):
    """A fact, such as a key, that differs between a checkpoint, or a recorded run, and this run."""

    name: str
    before: object
    now: object
    kind: str

    @property
    def alters(self) -> bool:
        """Whether a resumed training would run differently."""
        return must_match("resume", self.kind)


def must_match(use: str, kind: str) -> bool:
    """Return whether a difference in facts of this kind is an error for ``use``."""
    return kind in USES[use][0]


def to_plain_settings(config: RunSettings) -> dict[str, Any]:
    """Convert the configuration to nested plain values, as its YAML has them: without BASE, and without passwords."""
    plain: dict[str, Any] = {}
    for name, value in public_leaves(config).items():
        *sections, last = name.split(".")
        section = plain
        for part in sections:
            section = section.setdefault(part, {})
        section[last] = value
    return plain


def describe(config: RunSettings, task: Task, datasets: dict[str, Any]) -> dict[str, Any]:
    """Return the content of ``about.yaml`` as plain values."""
    return {
        "task": config.TASK,
        "model": name_network(config, task),
        "input": task.signature(),
        "data": {split: task.signature(samples) for split, samples in datasets.items()},
        "published_as": {split: dict(each.published_as) for split, each in datasets.items() if each.published_as},
        "versions": {"paddlevit_dist": __version__, "paddle": paddle.__version__},
        "settings": to_plain_settings(config),
    }


def facts_from_settings(settings: Mapping[str, Any] | RunSettings) -> dict[str, RunFact]:
    """Return the facts in a configuration by key.

    Skipped are paths, data settings that are None (and so follow from the data) and keys of other versions.
    """
    effect_of, facts = effects(settings), {}
    for name, value in comparable_leaves(settings).items():
        effect = effect_of.get(name, "place")
        if effect != "place" and not (effect == "data" and value is None):
            facts[name] = RunFact("course" if effect in ("training", "data") else effect, value)
    return facts


def facts_from_data(data: Mapping[str, Mapping[str, Any]]) -> dict[str, RunFact]:
    """Return the facts in the ``Task.signature`` of each split's samples."""
    return {
        f"{split} {name}": RunFact("classes" if "classes" in name else "files", value)
        for split, signature in data.items()
        for name, value in (signature or {}).items()
    }


def list_samples(datasets: dict[str, Any], before: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Return the sample lists that a checkpoint stores, as arrays by name; empty if the resumed checkpoint has none.

    They are the identities, uint64 (samples,), of each split and of samples that only earlier sessions trained on, and
    the names of the validation samples. ``before``: lists of the resumed checkpoint; None if it has none, empty for a
    new run.
    """
    if before is None:
        return {}
    identities_by_split = {split: samples.identities() for split, samples in datasets.items()}
    lists = {split: identities for split, identities in identities_by_split.items() if identities is not None}
    if _VAL in lists:
        val = datasets[_VAL]
        names = "\0".join(map(val.name, range(len(val)))).encode("utf-8", "surrogateescape")
        lists[_NAMES] = np.frombuffer(names, np.uint8)
    trained_on = np.concatenate([before.get(_TRAIN, _NONE), before.get(_EARLIER, _NONE)])
    earlier = np.setdiff1d(trained_on, lists.get(_TRAIN, _NONE))
    return {**lists, _EARLIER: earlier} if len(earlier) else lists


def compare(use: str, before: Mapping[str, RunFact], now: Mapping[str, RunFact]) -> list[FactDifference]:
    """Return the differences that matter to ``use`` in the order of ``now``, skipping names that only one side has."""
    refused, logged = USES[use]
    return [
        FactDifference(name, before[name].value, value, kind)
        for name, (kind, value) in now.items()
        if kind in (*refused, *logged) and name in before and _plain(before[name].value) != _plain(value)
    ]


def compare_files(
    lists: dict[str, np.ndarray], split: str, identities: np.ndarray, earlier: np.ndarray = _NONE
) -> tuple[np.ndarray, str]:
    """Compare the samples of a split, uint64 (samples,), with the lists of a checkpoint (see ``list_samples``).

    ``earlier`` are further samples, uint64 (n,), that count as trained on.

    Returns:
        First, the indices, int64 (n,), of samples that the checkpoint's run had only on the other side: trained on
        there and held out here, or the reverse. Second, a text with the number of these, of new samples (in neither
        split there; renamed files are new) and of missing ones; empty if nothing differs. For a split that the
        checkpoint does not list, the text counts the first kind only.
    """
    is_train = split == _TRAIN
    same_split = lists.get(split, _NONE)
    other = np.concatenate([np.setdiff1d(lists.get(_VAL if is_train else _TRAIN, _NONE), same_split), earlier])
    has_crossed = np.isin(identities, other)
    crossed = np.flatnonzero(has_crossed)
    counts = {"held out there" if is_train else "trained on": len(crossed)}
    if split in lists:
        counts["new"] = np.count_nonzero(~has_crossed & ~np.isin(identities, same_split))
        counts["gone"] = np.count_nonzero(~np.isin(same_split, identities))
    return crossed, ", ".join(f"{number:,} {what}" for what, number in counts.items() if number)


def list_other_names(theirs: list[Any], ours: list[Any]) -> str:
    """Format how two lists of class names differ; empty if they are equal."""
    pairs = enumerate(zip(theirs, ours))
    different = [f"{number}: {show(a)} there, {show(b)} here" for number, (a, b) in pairs if a != b]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        return f"class {'; '.join(different[:3])}{more}"
    return "" if len(theirs) == len(ours) else f"{len(theirs)} classes there, {len(ours)} here"


def _plain(value: object) -> object:
    """Convert tuples to lists, as a round trip through YAML does."""
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def report_or_raise(
    use: str, kind: str, message: str, config: RunSettings, remedy: str, command: str = ""
) -> list[str]:
    """Return the log line about a difference, or raise UserError if ``use`` rules it out and -allow_changes is not set.

    ``command`` is a command without such a difference; empty if there is none.
    """
    if must_match(use, kind) and not config.ALLOW_CHANGES:
        instead = f"; with the settings of its run: {command}" if command else ""
        raise UserError(f"{message}; {remedy}, or add -allow_changes{instead}")
    return [f"note: {message}"]


def judge_changes(
    use: str,
    source: str,
    what: str,
    changes: list[FactDifference],
    config: RunSettings,
    remedy: str = "use the same settings",
    is_of_settings: bool = True,
) -> list[str]:
    """Return the log lines about differences of one kind, or raise UserError as ``report_or_raise`` does.

    ``what``: text between the path and the list of ``changes``; without changes, there is no line. ``is_of_settings``:
    whether settings differ; if not, no command with the run's own is offered, as it would end the same.
    """
    if not changes:
        return []
    both = "; ".join(f"{c.name} {show(c.before)} there, {show(c.now)} here" for c in changes)
    command = format_command(use, source, config) if is_of_settings else ""
    return report_or_raise(use, changes[0].kind, f"{source} {what}: {both}", config, remedy, command)


def altering(changes: list[FactDifference]) -> str:
    """Format the differences that alter a training run; empty if there are none."""
    return "; ".join(f"{c.name} {show(c.before)} -> {show(c.now)}" for c in changes if c.alters)


def show(value: object) -> str:
    """Format a value as at most 60 printable characters on one line."""
    return shorten(value, 60)


class CheckpointDiff:
    """Compares a checkpoint's metadata with the current run.

    Third-party weights have none, so few checks apply to them. ``settings``, ``input``, ``classes``, ``files`` and
    ``log_unlisted`` return log lines. They raise ``UserError`` for a difference that is an error for this use, unless
    -allow_changes is set. Raises UserError if the metadata are damaged.
    """

    def __init__(self, use: str, source: str | Path, config: RunSettings, task: Task) -> None:
        self.use, self.source, self.config, self.task = use, str(source), config, task
        self._about = read_facts(self.source)

    @functools.cached_property
    def lists(self) -> dict[str, np.ndarray] | None:
        """The checkpoint's sample lists, see ``list_samples``; None if it has none."""
        return checkpoint_store.read_samples(self.source)

    def _get_section(self, part: str) -> dict[str, Any]:
        return (self._about or {}).get(part) or {}

    def settings(self) -> list[str]:
        """Compare the settings that a score depends on; differences of evaluation settings are only logged.

        Weights of another network may fit in every shape, for example with another number of heads, or of layers.
        """
        theirs = facts_from_settings(self._get_section("settings"))
        matching = get_aspect(self.task, CheckpointMatching)
        fitting = (find_built_in(self.config.TASK), *(matching.compatible_tasks if matching else ()))
        if "TASK" in theirs and (task := find_built_in(str(theirs["TASK"].value))) and task in fitting:
            del theirs["TASK"]  # a user's task has the network of the task that it is derived from
        changes = compare(self.use, theirs, facts_from_settings(to_plain_settings(self.config)))
        lines = []
        for kind, what in (
            ("network", "is of another network"),
            ("score", "was evaluated with different settings during training"),
        ):
            same_kind = [change for change in changes if change.kind == kind]
            lines += judge_changes(self.use, self.source, what, same_kind, self.config)
        return lines

    def input(self) -> list[str]:
        """Compare the preprocessing. A checkpoint without ``about.yaml`` gets a line."""
        if self._about is None:
            return []
        theirs, ours = self._about.get("input"), self.task.signature()
        if theirs is None or (ours and not theirs):
            problem = "does not store its preprocessing (mean, deviation, ...): it cannot be compared with this run's"
            return [f"note: {self.source} {problem}"]
        before, now = ({name: RunFact("input", side[name]) for name in side} for side in (theirs, ours))
        changes = compare(self.use, before, now)
        matching = get_aspect(self.task, CheckpointMatching)
        hints = (matching.mismatch_hint(each.name, each.before) if matching else SAME_SETTINGS for each in changes)
        remedy = " and ".join(dict.fromkeys(hints))
        what, differs = "was trained with different preprocessing", bool(changes) and self._has_other_settings()
        return judge_changes(self.use, self.source, what, changes, self.config, remedy, differs)

    def _has_other_settings(self) -> bool:
        """Return whether a setting differs that results depend on; if not, the data do, such as in their EXIF."""
        effect_of, theirs = effects(self.config), comparable_leaves(self._get_section("settings"))
        ours = comparable_leaves(to_plain_settings(self.config)).items()
        differing = [name for name, value in ours if name in theirs and _plain(theirs[name]) != _plain(value)]
        return any(effect_of.get(name) in ("network", "score", "training", "data") for name in differing)

    def classes(self, samples: TransformedDataset) -> list[str]:
        """Compare the classes, which must be equal and in the same order, by names, or else by their number.

        Weights to evaluate that name fewer or more classes than the data get a line.
        """
        now = self.task.signature(samples)
        theirs, ours = self._get_first("classes"), now.get("classes")
        if theirs and ours:
            difference = list_other_names(theirs, ours)
        else:
            there, here = self._get_first("number of classes"), now.get("number of classes")
            is_same = None in (there, here) or there == here
            difference = "" if is_same else f"{show(there)} classes there, {show(here)} here"
        if difference:
            start = ", and this classifier starts from its rows" if self.use == "start" else ""
            difference = f"{self.source} was trained on other classes{start}: {difference}"
            return report_or_raise(self.use, "classes", difference, self.config, "use the same names")
        if theirs and not ours and self.use == "evaluate":
            return [
                f"note: classes unknown: the data do not name theirs; the score assumes the classes of "
                f"{self.source} in order ({show(', '.join(map(str, theirs)))})"
            ]
        if theirs or not ours:
            return []
        if self.use == "start":
            return [
                f"note: {self.source} has no class names to match with the data: its classifier's rows keep their "
                f"places ({show(', '.join(map(str, ours)))})"
            ]
        return [
            f"note: classes unknown: {self.source} does not name its {len(ours):,} classes; the score assumes the "
            f"classes of the data in their order ({show(', '.join(map(str, ours)))})"
        ]

    def _get_first(self, name: str) -> Any:
        """Return the first value of this name in the checkpoint's dataset signatures; None if no split has it."""
        signatures = self._get_section("data").values()
        return next((signature[name] for signature in signatures if signature and signature.get(name)), None)

    def files(self, split: str, samples: TransformedDataset) -> list[str]:
        """Compare held-out samples with the samples that the checkpoint was trained on and those it held out."""
        if split == _TRAIN:
            return []
        if self.lists is None:
            return [] if self.use == "start" else self.log_unlisted(samples)
        identities = samples.identities()
        if identities is None:
            return []
        trained_on, differs = compare_files(self.lists, split, identities, self.lists.get(_EARLIER, _NONE))
        kind = "seen" if len(trained_on) else "files"
        if not differs or not any(kind in kinds for kinds in USES[self.use]):
            return []
        number = f"{count_samples(self.task, samples)} of {split}"
        message = f"{number}, compared with the samples that {self.source} held out: {differs}"
        if kind == "seen":
            name = samples.describe(int(trained_on[0]))
            message += f"; for example, {name} was trained on: the score counts samples that the model has seen"
        else:
            if "gone" in differs and _NAMES in self.lists:
                names = self.lists[_NAMES].tobytes().decode("utf-8", "surrogateescape").split("\0")
                index = int(np.flatnonzero(~np.isin(self.lists[split], identities))[0])
                message += f"; for example, {names[index]} is gone"
            message += ": the score is for different files"
        division = ", DATA.VAL_FRACTION and DATA.VAL_SEED" if samples.is_random_split else ""
        return report_or_raise(self.use, kind, message, self.config, f"give the run's files{division}")

    def log_unlisted(self, samples: TransformedDataset) -> list[str]:
        """Return a line if the checkpoint does not list its training samples and the split was drawn at random."""
        if not samples.is_random_split or self.lists is not None:
            return []
        number = count_samples(self.task, samples)
        return [
            f"note: {self.source} does not list its training samples: some of these {number} may be among them, and "
            "the score may be far too high"
        ]

    def changes(self, datasets: dict[str, Any], batches: tuple[int, int]) -> list[FactDifference]:
        """Return the differences of settings, data (not their folder) and effective batch from the checkpoint's run.

        ``batches``: effective batch of the checkpoint's run and of this one, in samples.
        """
        data = {split: self.task.signature(samples) for split, samples in datasets.items()}
        there, here = ({"effective batch": RunFact("course", batch)} for batch in batches)
        before = {
            **facts_from_settings(self._get_section("settings")),
            **there,
            **facts_from_data(self._get_section("data")),
        }
        now = {**facts_from_settings(to_plain_settings(self.config)), **here, **facts_from_data(data)}
        return compare(self.use, before, now) + self.changed_files(datasets)

    def changed_files(self, datasets: dict[str, Any]) -> list[FactDifference]:
        """Return the splits for which a resumed training would read different samples."""
        if self.lists is None:
            unknown = "split again: val may contain training samples"
            is_divided = any(opened.is_random_split for opened in datasets.values())
            return [FactDifference("train and val files", "not listed", unknown, "files")] if is_divided else []
        changes = []
        for split, samples in datasets.items():
            identities = samples.identities()
            counts = "" if identities is None else compare_files(self.lists, split, identities)[1]
            if counts:
                changes.append(FactDifference(f"{split} files", len(self.lists.get(split, _NONE)), counts, "files"))
        return changes
