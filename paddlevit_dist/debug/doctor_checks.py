"""Checks of ``doctor``: versions, devices, memory; data as a training would read them, and updates on each device."""

import contextlib
import functools
import importlib
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..launch import devices, failures, gpu, tuning
from ..logging.heartbeat import Heartbeat
from ..logging.progress import ProgressBar, write_line
from ..runtime import device_kinds, limits, paddle_versions
from ..runtime.compiled import has_numba
from ..runtime.errors import UserError, WorkerFailure
from ..runtime.printing import block, one_line
from ..settings.every_run import RunSettings
from ..tasks.task import StepPosition, make_task
from .settings import change_settings

OK, WARNING, FAILURE, SKIPPED = "ok", "warning", "failure", "skipped"
GIB = 1 << 30
_OPENED = {"train": 100, "val": 20}
_SHOWN = 5
_MOST_CLASSES = 20
_UPDATES, _SECONDS = 20, 30.0
_STAYED = 0.97  # of the first loss
_NEAR = (0.7, 1.5)  # times what is expected: layers' initial weights prefer some classes a little
_INDEX = "https://www.paddlepaddle.org.cn/packages/stable"  # Paddle's own
# Compute capabilities: 2.6.2 has code for 6.1 to 8.6, which 8.9 runs too; code for what is newer than 9.0 (Blackwell)
# needs CUDA 12.8.
_NEWEST_OF_2, _OLDEST_OF_3, _NEWEST_OF_CU126 = (8, 9), (7, 0), (9, 0)
# Without these the first loss is that of the model and its batch.
_OFF: dict[str, Any] = {
    **{"TRAIN.WARMUP_EPOCHS": 0, "TRAIN.WARMUP_STEPS": None, "TRAIN.LAST_EPOCH": 0, "DATA.NUM_WORKERS": 0},
    **{"MODEL.PRETRAINED": None, "MODEL.RESUME": None, "PROFILE": None, "EVAL": False},
}


class CheckResult(NamedTuple):
    """Outcome of a check.

    Attributes:
        status: "ok", "warning", "failure", or "skipped" where something before it failed.
        text: what was seen.
        mend: what to do about it; empty where nothing is to be done.
    """

    status: str
    text: str
    mend: str = ""


@dataclass
class CheckContext:
    """Everything that the checks work with.

    Attributes:
        config: the frozen configuration.
        folder: a temporary one.
        plan: the processes that a training with this configuration would have on this machine.
        found: what earlier checks have found, by their names.
        classes: of each split how many of the samples that were opened have each class.
    """

    config: RunSettings
    folder: Path
    plan: devices.ProcessPlan
    found: dict[str, CheckResult] = field(default_factory=dict)
    classes: dict[str, np.ndarray] = field(default_factory=dict)

    @functools.cached_property
    def task(self) -> Any:
        """The task of a training whose output folder is the temporary one. It goes on where an image cannot be read, so
        that one does not hide the next; ``data`` tells."""
        values = {"SAVE": str(self.folder), "DATA.ON_INVALID_SAMPLE": "skip", "EVAL": False, "MODEL.RESUME": None}
        return make_task(change_settings(self.config, values))

    @functools.cached_property
    def samples(self) -> dict[str, Any]:
        """Of each split. What a run has made of the data is read, and what it has not is thrown away."""
        own = Path(self.config.DATA.CACHE_FOLDER or Path(self.config.SAVE, "data"))
        return {split: self.task.build_dataset(split, own if own.is_dir() else self.folder) for split in _OPENED}


class DoctorCheck(NamedTuple):
    """Something to look at: its name, what does it, and the checks without whose success it cannot be done."""

    name: str
    function: Callable[[CheckContext], CheckResult]
    needs: tuple[str, ...] = ()


def carry_out(checkup: CheckContext, checks: Sequence[DoctorCheck]) -> None:
    """Make these checks, one after another, each a line; ``checkup.found`` has them."""
    bar = ProgressBar(len(checks), "doctor", shown=True)
    with contextlib.closing(bar), Heartbeat(write_line) as heartbeat:
        for check in checks:
            bar.note(check.name, at_once=True)
            heartbeat.at(f"at the check '{check.name}'")
            finding = checkup.found[check.name] = try_check(check, checkup)
            bar.step()
            mend = f" -> {finding.mend}" if finding.mend else ""
            write_line(one_line(f"{finding.status:8} {check.name:15} {finding.text}{mend}"))


def try_check(check: DoctorCheck, checkup: CheckContext) -> CheckResult:
    """Make a check: what it raises is a failure."""
    lacking = [name for name in check.needs if checkup.found[name].status in (FAILURE, SKIPPED)]
    if lacking:
        return CheckResult(SKIPPED, f"not looked at: '{lacking[0]}' has to be right first")
    try:
        return check.function(checkup)
    except UserError as error:
        return CheckResult(FAILURE, str(error))
    except WorkerFailure as error:
        trace, text = error.traceback, str(error)
    except Exception as error:  # code of a user's may raise anything
        trace, text = traceback.format_exc(), f"{type(error).__name__}: {error}".strip()
    print(block(trace), end="", file=sys.stderr)
    return CheckResult(FAILURE, text.partition("\n")[0])


def versions(checkup: CheckContext) -> CheckResult:
    """Whether Paddle, NumPy and Numba fit together."""
    from ..logging.record import versions as recorded

    wheels = [name for name in ("paddlepaddle", "paddlepaddle-gpu") if any(metadata.distributions(name=name))]
    if len(wheels) > 1:
        mend = "python -m pip uninstall paddlepaddle paddlepaddle-gpu, then install the one that you want"
        return CheckResult(FAILURE, f"{' and '.join(wheels)} are both installed, one over the other", mend)
    if paddle_versions.needs_older_numpy():
        text = f"Paddle {paddle.__version__} was built for NumPy 1, and this is {np.__version__}"
        return CheckResult(FAILURE, text, "python -m pip install 'numpy<2'")
    try:
        numba = importlib.import_module("numba").__version__ if has_numba() else "not installed, so slower on CPUs"
    except Exception as error:  # whatever it does not like about the others
        return CheckResult(FAILURE, f"numba cannot be imported: {error}", "python -m pip install -U numba")
    found = {**recorded(), "numba": numba}
    if device_kinds.is_built_for_cuda():
        found.update(cuda=paddle.version.cuda(), cudnn=paddle.version.cudnn())
    known = ", ".join(f"{name} {value}" for name, value in found.items() if value)
    newer = paddle_versions.notes()
    return CheckResult(WARNING if newer else OK, "; ".join([known, *newer]))


def gpus(checkup: CheckContext) -> CheckResult:
    """Whether Paddle can use the GPUs that there are."""
    driver, usable = devices.expected_gpus(), devices.count_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "not set")
    card = devices.find_newest_card() if driver else None
    known = "" if card is None else f", compute capability {card.capability[0]}.{card.capability[1]}"
    if usable:
        text = f"{usable} usable (CUDA_VISIBLE_DEVICES={visible}){known}"
        if card is not None and card.capability > _NEWEST_OF_2 and paddle_versions.is_built_for_cuda_11():
            text += f"; Paddle {paddle.__version__} for CUDA 11 has code for 6.1 to 8.9"
            return CheckResult(WARNING, text, f"unless this Paddle was built for it: {installation(card)}")
        return CheckResult(OK, text)
    if others := device_kinds.count_others():
        text = ", ".join(f"{number} {device_kinds.get_kind(name).noun}(s)" for name, number in others.items())
        return CheckResult(OK, f"none of CUDA's; {text} usable through Paddle's plug-in (docs/guides/devices.md)")
    if not driver:
        return CheckResult(OK, "none: training on the CPU")
    if not device_kinds.is_built_for_cuda():
        mend = f"{installation(card)}; or go on with the CPU"
        return CheckResult(WARNING, f"{driver} GPU(s){known}, but this is Paddle's CPU build", mend)
    mend = "look at `nvidia-smi` (is its CUDA as new as Paddle's?), CUDA's libraries, and CUDA_VISIBLE_DEVICES"
    return CheckResult(FAILURE, f"{driver} GPU(s){known}, none usable by Paddle; CUDA_VISIBLE_DEVICES={visible}", mend)


def installation(card: devices.GpuCard | None) -> str:
    """Write the commands that replace this Paddle by the build for a card, as ``docs/guides/installation.md``."""
    remove = "python -m pip uninstall -y paddlepaddle paddlepaddle-gpu"
    if card is None:
        return f"{remove}, then install Paddle's GPU build (docs/guides/installation.md)"
    if card.capability < _OLDEST_OF_3:
        return f"{remove}; python -m pip install paddlepaddle-gpu==2.6.2 'numpy<2'"
    build = "cu129" if card.capability > _NEWEST_OF_CU126 else "cu126" if card.cuda >= (12, 0) else "cu118"
    return f"{remove}; python -m pip install paddlepaddle-gpu==3.3.1 -i {_INDEX}/{build}/"


def memory(checkup: CheckContext) -> CheckResult:
    """Memory of the machine, or of the container if that is less."""
    if (found := memory_of_machine()) is None:
        return CheckResult(OK, "unknown: this system does not tell")
    total, available = found
    text = f"{available / GIB:.1f} of {total / GIB:.1f} GiB available"
    needed = checkup.plan.processes * 1.5 * GIB  # as measured: a process of Paddle with a small model
    if available < needed:
        mend = "end other programs, give the container more memory, or lower -ngpus and -num_workers"
        return CheckResult(WARNING, f"{text}: {checkup.plan.processes} process(es) take 1.5 GiB each and more", mend)
    return CheckResult(OK, text)


def memory_of_machine() -> tuple[int, int] | None:
    """Bytes in all and bytes available: the machine's, or its control group's where that has fewer; None: not known."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        values = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.split()[-1] == "kB"}
        total, available = values["MemTotal"], values["MemAvailable"]
    except (OSError, KeyError, ValueError, IndexError):
        return None
    for folder, limit, used in (
        (limits.CONTROL_GROUPS, "memory.max", "memory.current"),
        (limits.CONTROL_GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            allowed = int((folder / limit).read_text(encoding="ascii"))
            left = allowed - int((folder / used).read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such group, or no limit
            continue
        total, available = min(total, allowed), min(available, max(left, 0))
    return total, available


def each_device(checkup: CheckContext) -> CheckResult:
    """Processes as a training has them: each starts, computes a product of matrices that is right and the same each
    time, and they add and agree."""
    from ..launch.spawn import launch_workers

    plan, target = checkup.plan, checkup.folder / "devices.json"
    arguments = (checkup.config.TRAIN.TF32, checkup.config.DETERMINISTIC, str(target))
    # Children that end: the GPUs are free for those of the step, also where one is one process's alone.
    launch_workers(try_device, arguments, plan, checkup.config.WATCHDOG_SECONDS, in_child=True)
    ranks = json.loads(target.read_text(encoding="utf-8"))
    told = "; ".join(f"{one['name']}, {one['gigaflops']:.0f} GFLOP/s" for one in ranks)
    noun = device_kinds.get_kind(plan.device).noun
    kind = f"CPU, {devices.cpu_cores()} core(s)" if plan.device == device_kinds.CPU else noun
    return CheckResult(OK, f"{len(ranks)} process(es) ({kind}) compute right and agree: {told}")


def try_device(tf32: bool, deterministic: bool, target: str) -> None:
    """Every rank must call this; what each has found is written by the main one."""
    from ..distributed import all_gather, is_main, rank, reduce_dict, world_size

    gpu.prepare(tf32, deterministic, fixed_shapes=False)
    if gpu.is_on_gpu():
        properties = paddle.device.cuda.get_device_properties()
        name = f"{properties.name} {properties.total_memory / GIB:.1f} GiB{' in TF32' * gpu.rounds_to_tf32()}"
        product = gpu.check_product(2048)
    elif (name := paddle.get_device()) != "cpu":
        product = gpu.check_product(1024)
    else:
        tuning.check_copies()
        name, product = str(tuning.processor()["model"] or "unknown"), tuning.check_product()
    found, ranks = all_gather({"name": name, **product}), list(range(world_size()))
    total = reduce_dict({"rank": rank()}, average=False)["rank"]
    if total != sum(ranks) or all_gather(rank()) != ranks:
        raise RuntimeError(f"the ranks of {world_size()} processes add up to {total}, not to {sum(ranks)}")
    if is_main():
        Path(target).write_text(json.dumps(found), encoding="utf-8")


def data(checkup: CheckContext) -> CheckResult:
    """Whether both splits can be opened, and some random samples of them read, transformed and looked at, as a loader
    process does."""
    from ..data.loader import describe_sample

    task, bad, opened, told, of_each = checkup.task, [], 0, [], {}
    for split, number in _OPENED.items():
        samples, labels, started = checkup.samples[split], [], time.perf_counter()
        if not len(samples):
            return CheckResult(FAILURE, f"{split}: there is none", "look at -data_path and -dataset")
        chosen = np.random.default_rng(checkup.config.SEED).permutation(len(samples))[:number].tolist()
        for index in chosen:
            problem, found = _look(task, samples, index, checkup.config.SEED)
            bad += [f"{split} {index} ({describe_sample(samples, index)}): {problem}"] if problem else []
            labels += [] if found is None else [found]
        of_each[split] = 1000 * (time.perf_counter() - started) / len(chosen)
        told += [f"{split} {task.describe_samples(samples)}", *map(str, samples.notices)]
        opened += len(chosen)
        if labels:
            checkup.classes[split] = np.bincount(np.concatenate(labels))
    for line in task.finish_epoch():  # images that cannot be read were replaced by others, and are listed
        files = list(checkup.folder.glob("*.tsv"))
        rows = [row for file in files for row in file.read_text("utf-8", "surrogateescape").splitlines()[1:]]
        bad += [row.replace("\t", ": ") for row in rows] or [line]
    if bad:
        text = f"{len(bad)} of {opened} cannot be used: {'; '.join(bad[:_SHOWN])}{'; ...' if len(bad) > _SHOWN else ''}"
        if checkup.config.DATA.get("ON_INVALID_SAMPLE") == "skip":
            return CheckResult(WARNING, text, "a training takes others in their place (DATA.ON_INVALID_SAMPLE skip)")
        return CheckResult(FAILURE, text, "repair or remove them")
    times = f"{opened} opened at random, {of_each['train']:.3g} ms for each of training"
    return CheckResult(OK, "; ".join([*told, times]))


def _look(task: Any, samples: Any, index: int, seed: int) -> Any:
    """Find what is wrong with a sample, and otherwise its classes, (n,)."""
    from ..data.loader import sample_generator
    from ..data.sampler import SampleKey

    try:
        sample = samples.sample(index, sample_generator(seed, SampleKey(1, index, 0)))
        task.check_sample(sample)
        classes = task.classes_in(sample) if samples.labeled else None
    except (Exception, SystemExit) as error:  # a data set may raise anything
        return failures.reason(error).partition("\n")[0], None
    return None, None if classes is None else np.asarray(classes, dtype=np.int64).reshape(-1)


def labels(checkup: CheckContext) -> CheckResult:
    """Whether all classes are there, in both splits: of all samples where the data set knows, else of those opened."""
    task = checkup.task
    known = {split: task.get_classes(samples) for split, samples in checkup.samples.items()}
    about = task.dataset_signature(checkup.samples["train"])
    names, number = about.get("classes"), about.get("number of classes") or len(about.get("classes") or ())
    is_known = all(values is not None for values in known.values())
    counts = {split: np.bincount(values) for split, values in known.items()} if is_known else checkup.classes
    if "train" not in counts:
        return CheckResult(OK, "no classes: every sample that was opened has what the task wants of it")
    number = max(number, *map(len, counts.values()))
    train, val = (np.pad(counts.get(split, [0]), (0, number - len(counts.get(split, [0])))) for split in _OPENED)

    def named(classes: np.ndarray) -> str:
        shown = [str(names[c]) if names and c < len(names) else str(c) for c in classes[:_SHOWN].tolist()]
        return ", ".join(shown) + (", ..." if len(classes) > _SHOWN else "")

    shown = [f"{named(np.array([c]))} {n:,} ({100 * n / train.sum():.0f}%)" for c, n in enumerate(train)]
    middle = f"{number:,} classes, {train.min():,} to {train.max():,} each, {np.median(train):,.0f} in the middle"
    histogram = ", ".join(shown) if number <= _MOST_CLASSES else middle
    if np.count_nonzero(train) <= 1:
        same = f"all training labels are the same, {named(np.flatnonzero(train))}"
        return CheckResult(FAILURE, same, "look at how labels are read: a model cannot learn from this")
    for what, found, mend in (
        ("in val, but not in train", (train == 0) & (val > 0), "no model can predict them: look at the split"),
        ("without any in train", train == 0, "lower -num_classes, or look at the labels; rare ones may not be opened"),
        ("without any in val", (val == 0) & val.any(), "the score says nothing about them: look at the split"),
    ):
        if found.any():
            return CheckResult(WARNING, f"{what}: {named(np.flatnonzero(found))} ({histogram})", mend)
    return CheckResult(OK, histogram)


def step(checkup: CheckContext) -> CheckResult:
    """Some updates on all devices with one batch of the configuration: the loss of untrained weights, of a classifier
    near ln(classes), and whether it falls; time and memory."""
    from ..launch.spawn import launch_workers

    config, plan = change_settings(checkup.config, {**_OFF, "SAVE": str(checkup.folder)}), checkup.plan
    target = checkup.folder / "step.json"
    arguments = (config, checkup.task, checkup.samples["train"], str(target))
    launch_workers(device_step, arguments, plan, config.WATCHDOG_SECONDS, in_child=True)
    facts = json.loads(target.read_text(encoding="utf-8"))
    losses, memory = facts["losses"], facts["memory_mib"] / 1024
    expected = checkup.task.expected_losses()
    first = [f"{name} {value:.4g} at start" for name, value in facts["first"].items() if value is not None]
    first += [f"ln(classes) is {value:.4g}" for name, value in expected.items() if name in facts["first"]]
    text = (
        f"{plan.processes} x {device_kinds.get_kind(plan.device).noun}, batch {config.DATA.BATCH_SIZE} x "
        f"{config.TRAIN.ACCUM_ITER}: {', '.join(first)}; after {len(losses) - 1} updates with this batch "
        f"{losses[-1]:.4g}; {facts['seconds']:.3g} s an update, {memory:.1f} GiB"
    )
    if not math.isfinite(losses[0]):
        mend = "look for values in the data that are huge, and at IMAGENET_MEAN and _STD or VOLUMES.INTENSITY_WINDOW"
        return CheckResult(FAILURE, text, mend)
    if not math.isfinite(losses[-1]):
        return CheckResult(FAILURE, text, "lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP, or use a warm-up")
    is_trained = facts["trained"] > 0.5  # else little can be learned: frozen layers have no trained weights here
    if losses[0] > 0 and is_trained and min(losses[1:]) > _STAYED * losses[0]:
        mend = "it does not learn: TRAIN.BASE_LR may be far too low or too high; labels; TRAIN.FREEZE?"
        return CheckResult(FAILURE, text, mend)
    if any(
        not _NEAR[0] * value <= facts["first"].get(name, value) <= _NEAR[1] * value for name, value in expected.items()
    ):
        mend = "far from ln(classes): look at labels, class weights and the model's last layer"
        return CheckResult(WARNING, text, mend)
    return CheckResult(OK, text)


def device_step(config: RunSettings, task: Any, samples: Any, target: str) -> None:
    """Make updates with the first batch of the configuration, and write what they took. Every rank must call this."""
    from ..distributed import all_gather, is_main
    from ..engine import gpu_memory
    from ..engine.steps import accumulation_groups
    from ..logging.meters import memory_mib
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
        with gpu_memory.explain_memory(gpu_memory.advise_training(config)):
            outputs = training.train_step(
                [dict(one) for one in group], StepPosition(1, len(losses), 100), config.TRAIN.BASE_LR
            )
        means = {name: float(term.sum) / max(float(term.count), 1) for name, term in outputs[0].items() if term.weight}
        gathered = all_gather((means, sum(outputs[0][name].weight * mean for name, mean in means.items())))
        losses.append(float(np.mean([total for _, total in gathered])))
        first = first or {name: float(np.mean([of[name] for of, _ in gathered])) for name in means}
        seconds.append(time.perf_counter() - started)
        if max(all_gather(time.perf_counter() - began)) > _SECONDS and len(losses) > 1:
            break
    memory = max(all_gather(memory_mib() or 0.0))
    if is_main():
        parameters = training.model.parameters()
        trained = sum(one.size for one in parameters if not one.stop_gradient) / sum(one.size for one in parameters)
        facts = {"losses": losses, "first": first, "seconds": min(seconds), "memory_mib": memory, "trained": trained}
        Path(target).write_text(json.dumps(facts), encoding="utf-8")


DATA = "data"
CHECKS = (
    DoctorCheck("versions", versions),
    DoctorCheck("GPU", gpus),
    DoctorCheck("memory", memory),
    DoctorCheck("devices", each_device),
)
CHECKS_OF_DATA = (DoctorCheck(DATA, data), DoctorCheck("labels", labels, (DATA,)), DoctorCheck("a step", step, (DATA,)))
