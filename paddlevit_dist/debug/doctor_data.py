"""Checks of ``doctor`` that look at the data as a training would read them, and try an update on each device."""

import contextlib
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from .doctor_machine import FAILURE, OK, WARNING, Check, Checkup, Finding
from .settings import change_settings

_OPENED = {"train": 100, "val": 20}
_SHOWN = 5
_MOST_CLASSES = 20
_UPDATES, _SECONDS = 20, 30.0
_STAYED = 0.97  # of the first loss
_NEAR = (0.7, 1.5)  # times what is expected: layers' initial weights prefer some classes a little
# Without these the first loss is that of the model and its batch.
_OFF: dict[str, Any] = {
    **{"TRAIN.WARMUP_EPOCHS": 0, "TRAIN.WARMUP_STEPS": None, "TRAIN.LAST_EPOCH": 0, "DATA.NUM_WORKERS": 0},
    **{"MODEL.PRETRAINED": None, "MODEL.RESUME": None, "PROFILE": None, "EVAL": False},
}


def task_of(checkup: Checkup) -> Any:
    """The task of a training whose output folder is the temporary one. It goes on where an image cannot be read, so
    that one does not hide the next; ``data`` tells."""
    from ..tasks.task import make_task

    values = {"SAVE": str(checkup.folder), "DATA.ON_BAD_SAMPLE": "skip", "EVAL": False, "MODEL.RESUME": None}
    return checkup.keep("task", lambda: make_task(change_settings(checkup.config, values)))


def samples_of(checkup: Checkup, split: str) -> Any:
    """The samples of a split. What a run has made of the data is read, and what it has not is thrown away."""
    own = Path(checkup.config.DATA.CACHE_FOLDER or Path(checkup.config.SAVE, "data"))
    cache = own if own.is_dir() else checkup.folder
    return checkup.keep(split, lambda: task_of(checkup).build_dataset(split, cache))


def data(checkup: Checkup) -> Finding:
    """Whether both splits can be opened, and some random samples of them read, transformed and looked at, as a loader
    process does."""
    from ..data.loader import describe_sample

    task, bad, opened, told, of_each = task_of(checkup), [], 0, [], {}
    counts = checkup.keep("classes", dict)  # of the samples that are opened, by split
    for split, number in _OPENED.items():
        samples, labels, started = samples_of(checkup, split), [], time.perf_counter()
        if not len(samples):
            return Finding(FAILURE, f"{split}: there is none", "look at -data_path and -dataset")
        chosen = np.random.default_rng(checkup.config.SEED).permutation(len(samples))[:number].tolist()
        for index in chosen:
            problem, found = _look(task, samples, index, checkup.config.SEED)
            bad += [f"{split} {index} ({describe_sample(samples, index)}): {problem}"] if problem else []
            labels += [] if found is None else [found]
        of_each[split] = 1000 * (time.perf_counter() - started) / len(chosen)
        told += [f"{split} {task.describe_samples(samples)}", *map(str, samples.notices)]
        opened += len(chosen)
        if labels:
            counts[split] = np.bincount(np.concatenate(labels))
    for line in task.finish_epoch():  # images that cannot be read were replaced by others, and are listed
        files = list(checkup.folder.glob("*.tsv"))
        rows = [row for file in files for row in file.read_text("utf-8", "surrogateescape").splitlines()[1:]]
        bad += [row.replace("\t", ": ") for row in rows] or [line]
    if bad:
        text = f"{len(bad)} of {opened} cannot be used: {'; '.join(bad[:_SHOWN])}{'; ...' if len(bad) > _SHOWN else ''}"
        if checkup.config.DATA.get("ON_BAD_SAMPLE") == "skip":
            return Finding(WARNING, text, "a training takes others in their place (DATA.ON_BAD_SAMPLE skip)")
        return Finding(FAILURE, text, "repair or remove them")
    text = f"{'; '.join(told)}; {opened} opened at random, {of_each['train']:.3g} ms for each of training"
    return Finding(OK, text)


def _look(task: Any, samples: Any, index: int, seed: int) -> Any:
    """What is wrong with a sample, and otherwise its classes, (n,)."""
    from ..data.loader import sample_generator
    from ..data.sampler import SampleKey

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
    known = {split: task.classes_of(samples_of(checkup, split)) for split in _OPENED}
    about = task.about_data(samples_of(checkup, "train"))
    names, number = about.get("classes"), about.get("number of classes") or len(about.get("classes") or ())
    if any(values is None for values in known.values()):
        counts = checkup.kept["classes"]
    else:
        counts = {split: np.bincount(values) for split, values in known.items()}
    if "train" not in counts:
        return Finding(OK, "no classes: every sample that was opened has what the task wants of it")
    number = max(number, *map(len, counts.values()))
    train, val = (np.pad(counts.get(split, [0]), (0, number - len(counts.get(split, [0])))) for split in _OPENED)

    def name_sample(classes: np.ndarray) -> str:
        shown = [str(names[c]) if names and c < len(names) else str(c) for c in classes[:_SHOWN].tolist()]
        return ", ".join(shown) + (", ..." if len(classes) > _SHOWN else "")

    shown = [f"{name_sample(np.array([c]))} {n:,} ({100 * n / train.sum():.0f}%)" for c, n in enumerate(train)]
    middle = f"{number:,} classes, {train.min():,} to {train.max():,} each, {np.median(train):,.0f} in the middle"
    histogram = ", ".join(shown) if number <= _MOST_CLASSES else middle
    if np.count_nonzero(train) <= 1:
        mend = "look at how labels are read: a model cannot learn from this"
        return Finding(FAILURE, f"all training labels are the same, {name_sample(np.flatnonzero(train))}", mend)
    for what, found, mend in (
        ("in val, but not in train", (train == 0) & (val > 0), "no model can predict them: look at the split"),
        ("without any in train", train == 0, "lower -num_classes, or look at the labels; rare ones may not be opened"),
        ("without any in val", (val == 0) & val.any(), "the score says nothing about them: look at the split"),
    ):
        if found.any():
            return Finding(WARNING, f"{what}: {name_sample(np.flatnonzero(found))} ({histogram})", mend)
    return Finding(OK, histogram)


def step(checkup: Checkup) -> Finding:
    """Some updates on all devices with one batch of the configuration: the loss of untrained weights, of a classifier
    near ln(classes), and whether it falls; time and memory."""
    from ..launch.spawn import launch_workers

    config, plan = change_settings(checkup.config, {**_OFF, "SAVE": str(checkup.folder)}), checkup.plan
    target = checkup.folder / "step.json"
    arguments = (config, task_of(checkup), samples_of(checkup, "train"), str(target))
    launch_workers(device_step, arguments, plan, config.WATCHDOG_SECONDS, apart=True)
    facts = json.loads(target.read_text(encoding="utf-8"))
    losses, memory = facts["losses"], facts["memory_mib"] / 1024
    expected = task_of(checkup).expected_losses()
    first = [f"{name} {value:.4g} at start" for name, value in facts["first"].items() if value is not None]
    first += [f"ln(classes) is {value:.4g}" for name, value in expected.items() if name in facts["first"]]
    text = (
        f"{plan.processes} x {'GPU' if plan.uses_gpu else 'CPU process'}, batch {config.DATA.BATCH_SIZE} x "
        f"{config.TRAIN.ACCUM_ITER}: {', '.join(first)}; after {len(losses) - 1} updates with this batch "
        f"{losses[-1]:.4g}; {facts['seconds']:.3g} s an update, {memory:.1f} GiB"
    )
    if not math.isfinite(losses[0]):
        mend = "look for values in the data that are huge, and at IMAGENET_MEAN and _STD or VOLUMES.INTENSITY_WINDOW"
        return Finding(FAILURE, text, mend)
    if not math.isfinite(losses[-1]):
        return Finding(FAILURE, text, "lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP, or use a warm-up")
    if losses[0] > 0 and min(losses[1:]) > _STAYED * losses[0]:
        mend = "it does not learn: TRAIN.BASE_LR may be far too low or too high; labels; TRAIN.FREEZE?"
        return Finding(FAILURE, text, mend)
    if any(
        not _NEAR[0] * value <= facts["first"].get(name, value) <= _NEAR[1] * value for name, value in expected.items()
    ):
        mend = "far from ln(classes): look at labels, class weights and the model's last layer"
        return Finding(WARNING, text, mend)
    return Finding(OK, text)


def device_step(config: RunSettings, task: Any, samples: Any, target: str) -> None:
    """Make updates with the first batch of the configuration, and write what they took. Every rank must call this."""
    from ..distributed import all_gather, is_main
    from ..engine import gpu_memory
    from ..engine.steps import accumulation_groups
    from ..logging.meters import memory_mib
    from ..tasks.task import Step
    from .selftest import silent_training

    training = silent_training(config, task, samples, Path(target).parent)
    training.model.train()
    with contextlib.closing(training.loader.epochs(1, 1)) as batches:
        group = next(accumulation_groups(batches, config.TRAIN.ACCUM_ITER, 1))
    losses: list[float] = []
    seconds, began = [], time.perf_counter()
    first: dict[str, float] = {}
    while len(losses) < 2 or (len(losses) <= _UPDATES and losses[-1] > losses[0] / 2):
        started = time.perf_counter()
        with gpu_memory.explain_memory(gpu_memory.of_training(config)):
            outputs = training.updater([dict(one) for one in group], Step(1, len(losses), 100), config.TRAIN.BASE_LR)
        means = {name: float(term.sum) / max(float(term.count), 1) for name, term in outputs[0].items() if term.weight}
        gathered = all_gather((means, sum(outputs[0][name].weight * mean for name, mean in means.items())))
        losses.append(float(np.mean([total for _, total in gathered])))
        first = first or {name: float(np.mean([of[name] for of, _ in gathered])) for name in means}
        seconds.append(time.perf_counter() - started)
        if max(all_gather(time.perf_counter() - began)) > _SECONDS and len(losses) > 1:
            break
    memory = max(all_gather(memory_mib() or 0.0))
    if is_main():
        facts = {"losses": losses, "first": first, "seconds": min(seconds), "memory_mib": memory}
        Path(target).write_text(json.dumps(facts), encoding="utf-8")


DATA = "data"
CHECKS = (Check(DATA, data), Check("labels", labels, (DATA,)), Check("a step", step, (DATA,)))
