"""Checks of ``doctor`` that look at the data as a training would read them."""

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import wings
from ..runtime.errors import UserError
from .doctor_checks import FAILURE, OK, SKIPPED, WARNING, Check, Checkup, Finding
from .settings import changed

_OPENED = {"train": 100, "val": 20}
_SHOWN = 5
_MOST_CLASSES = 20
_UNBALANCED = 20  # times as many samples in the largest class as in the smallest
TRAINING, VALIDATION, LABELS, SAMPLES, LEAKS = "training data", "validation data", "labels", "samples", "leaks"


def task_of(checkup: Checkup) -> Any:
    """The task of a training whose output folder is the temporary one. It goes on where a picture cannot be read, so
    that one does not hide the next; ``samples`` tells."""
    from ..contracts.task import make_task

    values = {"SAVE": str(checkup.folder), "DATA.ON_BAD_SAMPLE": "skip", "EVAL": False, "MODEL.RESUME": None}
    return checkup.keep("task", lambda: make_task(changed(checkup.config, values)))


def samples_of(checkup: Checkup, split: str) -> Any:
    """The samples of a split. What a run has made of the data is read, and what it has not is thrown away."""
    from ..contracts.adapter import adopt
    from ..contracts.dataset import Samples

    cache = _cache(checkup)
    return checkup.keep(split, lambda: adopt(task_of(checkup).build_dataset(split, cache), Samples))


def _cache(checkup: Checkup) -> Path:
    own = Path(checkup.config.DATA.CACHE_FOLDER or Path(checkup.config.SAVE, "data"))
    cache = own if own.is_dir() else checkup.folder / "data"
    cache.mkdir(exist_ok=True)
    return cache


def split_data(checkup: Checkup, split: str) -> Finding:
    """Whether the samples of a split can be opened, and how many there are."""
    started = time.perf_counter()
    task, samples = task_of(checkup), samples_of(checkup, split)
    facts = {"samples": len(samples), "seconds": round(time.perf_counter() - started, 2)}
    if not len(samples):
        return Finding(FAILURE, "there is none", "look at -data_path and -dataset", facts)
    return Finding(OK, "; ".join([task.describe_samples(samples), *map(str, samples.notices)]), facts=facts)


def samples(checkup: Checkup) -> Finding:
    """Some random samples of both splits: read, transformed and looked at, as a loader process does."""
    from ..loading.loader import described

    task = task_of(checkup)
    bad: list[str] = []
    counts: dict[str, np.ndarray] = {}
    facts: dict[str, Any] = {}
    usable: list[int] = []
    opened = 0
    for split, number in _OPENED.items():
        if split != "train" and checkup.found[VALIDATION].status == FAILURE:
            continue
        those, labels = samples_of(checkup, split), []
        generator = np.random.default_rng(checkup.config.SEED)
        chosen = generator.permutation(len(those))[:number].tolist()
        seconds = []
        for index in chosen:
            started = time.perf_counter()
            problem, found = _look(task, those, index, checkup.config.SEED)
            seconds.append(time.perf_counter() - started)
            if problem is not None:
                bad.append(f"{split} {index} ({described(those, index)}): {problem}")
                continue
            if split == "train":
                usable.append(index)
            if found is not None:
                labels.append(found)
        opened += len(chosen)
        facts[f"{split}_milliseconds"] = round(1000 * float(np.median(seconds)), 2)
        if labels:
            counts[split] = np.bincount(np.concatenate(labels))
    # Pictures that cannot be read were replaced by others, and are listed.
    for line in task.finish_epoch():
        listed = [row for file in checkup.folder.glob("*.tsv") for row in _rows(file)]
        bad += listed or [line]
    facts.update(
        opened=opened,
        usable=usable if bad else "all",
        unreadable=bad,
        classes={split: number.tolist() for split, number in counts.items()},
    )
    if bad:
        text = f"{len(bad)} of {opened} cannot be used: {'; '.join(bad[:_SHOWN])}{'; ...' if len(bad) > _SHOWN else ''}"
        if checkup.config.DATA.get("ON_BAD_SAMPLE") == "skip":
            return Finding(WARNING, text, "a training takes others in their place (DATA.ON_BAD_SAMPLE skip)", facts)
        mend = "repair or remove them" + (
            ", or let DATA.ON_BAD_SAMPLE skip take others" if "ON_BAD_SAMPLE" in checkup.config.DATA else ""
        )
        return Finding(FAILURE, text, mend, facts)
    text = f"{opened} opened at random, {facts['train_milliseconds']:.3g} ms for each of training in one process"
    return Finding(OK, text, facts=facts)


def _rows(file: Path) -> list[str]:
    """What a list of unreadable pictures says: path and reason of each."""
    rows = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:]
    return [row.replace("\t", ": ") for row in rows]


def _look(task: Any, samples: Any, index: int, seed: int) -> Any:
    """What is wrong with a sample, and otherwise its classes, (n,)."""
    from ..loading.loader import sample_generator
    from ..loading.sampler import SampleKey

    try:
        sample = samples.sample(index, sample_generator(seed, SampleKey(1, index, 0)))
        task.check_sample(sample)
        classes = task.classes_in(sample) if samples.labelled else None
    except UserError as error:
        return str(error), None
    except (Exception, SystemExit) as error:  # a data set may raise anything
        return f"{type(error).__name__}: {error}".partition("\n")[0], None
    return None, None if classes is None else np.asarray(classes, dtype=np.int64).reshape(-1)


def labels(checkup: Checkup) -> Finding:
    """Whether all classes are there, in both splits: of all samples where the data set knows, else of those opened."""
    task = task_of(checkup)
    splits = ["train"] + (["val"] if checkup.found[VALIDATION].status != FAILURE else [])
    known = {split: task.classes_of(samples_of(checkup, split)) for split in splits}
    about = task.about_data(samples_of(checkup, "train"))
    names, number = about.get("classes"), about.get("number of classes") or len(about.get("classes") or ())
    opened = checkup.found[SAMPLES].facts.get("classes", {})
    if all(values is not None for values in known.values()):
        wrong = _out_of_range(known, number)
        if wrong:
            return Finding(FAILURE, wrong, f"labels go from 0 to {number - 1}: repair them, or set -num_classes")
        counts = {split: np.bincount(values, minlength=number) for split, values in known.items()}
        of = "samples"
    elif opened.get("train"):
        counts = {
            split: np.bincount(np.arange(len(n)), weights=n, minlength=number).astype(int)
            for split, n in opened.items()
        }
        of = "labels in the samples that were opened"
    elif checkup.found[SAMPLES].status == FAILURE:
        return Finding(SKIPPED, "not looked at: they are only known of samples that can be used")
    else:
        return Finding(OK, "no classes: every sample that was opened has what the task wants of it")
    facts = {"classes": names, **{split: values.tolist() for split, values in counts.items()}}
    return _judge(counts, names, of, facts)


def _out_of_range(known: dict[str, Any], number: int) -> str | None:
    for split, values in known.items():
        wrong = values[(values < 0) | (values >= number)] if number else values[values < 0]
        if len(wrong):
            return f"{len(wrong):,} labels of {split} are out of range, such as {wrong[0]}"
    return None


def _judge(counts: dict[str, np.ndarray], names: Sequence[str] | None, of: str, facts: dict[str, Any]) -> Finding:
    train, val = counts["train"], counts.get("val")

    def named(classes: np.ndarray) -> str:
        shown = [str(names[c]) if names and c < len(names) else str(c) for c in classes[:_SHOWN].tolist()]
        return ", ".join(shown) + (", ..." if len(classes) > _SHOWN else "")

    present = np.flatnonzero(train)
    histogram = f"{of}: {_histogram(train, names)}"
    if len(present) <= 1:
        one = named(present) or "none"
        mend = "look at how labels are read: a model cannot learn from this"
        return Finding(FAILURE, f"all training labels are the same, {one}", mend, facts)
    unseen = np.setdiff1d(np.flatnonzero(val), present) if val is not None else present[:0]
    if len(unseen):
        mend = "no model can predict them: look at the split"
        return Finding(WARNING, f"in val, but not in train: {named(unseen)} ({histogram})", mend, facts)
    absent = np.flatnonzero(train == 0)
    if len(absent):
        mend = "rare classes need more samples opened than these; else lower -num_classes, or look at the labels"
        return Finding(WARNING, f"without any in train: {named(absent)} ({histogram})", mend, facts)
    missing = np.flatnonzero(val == 0) if val is not None and val.any() else absent
    if len(missing):
        mend = "the score says nothing about them: look at the split"
        return Finding(WARNING, f"without any in val: {named(missing)} ({histogram})", mend, facts)
    if of == "samples" and train.max() > _UNBALANCED * train.min():
        text = f"{train.max():,} in the largest class, {train.min():,} in the smallest ({histogram})"
        return Finding(WARNING, text, "DATA.CLASS_BALANCED true, or TRAIN.CLASS_WEIGHTS balanced", facts)
    return Finding(OK, histogram, facts=facts)


def _histogram(counts: np.ndarray, names: Sequence[str] | None) -> str:
    if len(counts) > _MOST_CLASSES:
        middle = np.median(counts)
        return f"{len(counts):,} classes, {counts.min():,} to {counts.max():,} each, {middle:,.0f} in the middle"
    shown = [str(names[c]) if names and c < len(names) else str(c) for c in range(len(counts))]
    share = 100 * counts / max(counts.sum(), 1)
    return ", ".join(f"{name} {number:,} ({part:.0f}%)" for name, number, part in zip(shown, counts, share))


def leaks(checkup: Checkup) -> Finding:
    """Whether samples of the evaluation stand among those of the training, as far as a few seconds tell."""
    train, val, task = samples_of(checkup, "train"), samples_of(checkup, "val"), task_of(checkup)
    for look in wings.hooks("find_leaks"):
        try:
            number, text, facts = look(val, train, _cache(checkup), task.sample_name)
        except UserError as error:
            return Finding(SKIPPED, f"not looked for: {error}")
        if number:
            mend = "a score of them says little: inspect leaks shows them, evaluate -without_leaks leaves them out"
            return Finding(WARNING, text, mend, facts)
        return Finding(OK, text, facts=facts)
    return Finding(SKIPPED, "not looked for")


CHECKS = (
    Check(TRAINING, functools.partial(split_data, split="train")),
    Check(VALIDATION, functools.partial(split_data, split="val")),
    Check(SAMPLES, samples, (TRAINING,)),
    Check(LABELS, labels, (TRAINING,)),
    *((Check(LEAKS, leaks, (TRAINING, VALIDATION)),) if any("find_leaks" in h for h in wings.offered("HOOKS")) else ()),
)
