"""Checks of ``doctor``: versions, devices, memory, data as a training run reads them, and updates on each device."""

import contextlib
import functools
import importlib
import json
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

from ...core.launch import devices, failures, gpu, tuning
from ...core.logging.progress import Heartbeat, ProgressBar, write_line
from ...core.runtime import device_kinds, limits, paddle_versions
from ...core.runtime.compiled import has_numba
from ...core.runtime.errors import UserError, WorkerFailure
from ...core.runtime.printing import block, one_line
from ...core.settings.every_run import RunSettings
from ...core.tasks.aspects import get_aspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.listed_samples import open_samples
from ...core.tasks.protocols import Checkable, LogContributor, describe_samples, get_sample_check
from ...core.tasks.task import Task
from ...core.tasks.task_factory import make_task
from .paddle_builds import format_install
from .settings import change_settings

OK, WARNING, FAILURE, SKIPPED = "ok", "warning", "failure", "skipped"
GIB = 1 << 30
_OPENED = {"train": 100, "val": 20}  # samples of each split
_SHOWN = 5
_MOST_CLASSES = 20


class CheckResult(NamedTuple):
    """Result of a check."""

    status: str  # "ok", "warning", "failure", or "skipped" if an earlier check failed
    text: str  # what was measured
    fix: str = ""  # how to fix the problem; empty if there is none


@dataclass
class CheckContext:
    """State that the checks share."""

    config: RunSettings  # frozen
    folder: Path  # temporary
    plan: devices.ProcessPlan  # of a training run with this configuration on this machine
    results: dict[str, CheckResult] = field(default_factory=dict)  # of earlier checks, by name
    classes: dict[str, np.ndarray] = field(default_factory=dict)  # number of opened samples of each class, by split

    @functools.cached_property
    def task(self) -> Any:
        """Task of a training run into the temporary folder.

        It skips unreadable images, so that the first one does not hide the others; ``check_data`` reports them.
        """
        values = {"SAVE": str(self.folder), "DATA.ON_INVALID_SAMPLE": "skip", "EVAL": False, "MODEL.RESUME": None}
        return make_task(change_settings(self.config, values))

    @functools.cached_property
    def samples(self) -> dict[str, Any]:
        """Datasets by split. An existing cache of a run is read; otherwise the cache is temporary."""
        cache = Path(self.config.DATA.CACHE_FOLDER or Path(self.config.SAVE, "data"))
        return {split: open_samples(self.task, split, cache if cache.is_dir() else self.folder) for split in _OPENED}


class DoctorCheck(NamedTuple):
    """Check of ``doctor``."""

    name: str  # as printed
    function: Callable[[CheckContext], CheckResult]
    needs: tuple[str, ...] = ()  # names of checks that have to succeed first


def run_checks(context: CheckContext, checks: Sequence[DoctorCheck]) -> None:
    """Run checks one after another, print a line for each, and store the results in the context."""
    bar = ProgressBar(len(checks), "doctor", shown=True)
    with contextlib.closing(bar), Heartbeat(write_line) as heartbeat:
        for check in checks:
            bar.note(check.name, at_once=True)
            heartbeat.at(f"at the check '{check.name}'")
            result = context.results[check.name] = run_check(check, context)
            bar.step()
            fix = f" -> {result.fix}" if result.fix else ""
            write_line(one_line(f"{result.status:8} {check.name:15} {result.text}{fix}"))


def run_check(check: DoctorCheck, context: CheckContext) -> CheckResult:
    """Run a check. An exception counts as a failure."""
    missing = [name for name in check.needs if context.results[name].status in (FAILURE, SKIPPED)]
    if missing:
        return CheckResult(SKIPPED, f"not checked: fix '{missing[0]}' first")
    try:
        return check.function(context)
    except UserError as error:
        return CheckResult(FAILURE, str(error))
    except WorkerFailure as error:
        trace, text = error.traceback, str(error)
    except Exception as error:  # user code may raise anything
        trace, text = traceback.format_exc(), f"{type(error).__name__}: {error}".strip()
    print(block(trace), end="", file=sys.stderr)
    return CheckResult(FAILURE, text.partition("\n")[0])


def check_versions(context: CheckContext) -> CheckResult:
    """Check that Paddle, NumPy and Numba work together."""
    from ...core.logging.record import versions as recorded_versions

    wheels = [name for name in ("paddlepaddle", "paddlepaddle-gpu") if any(metadata.distributions(name=name))]
    if len(wheels) > 1:
        fix = "python -m pip uninstall paddlepaddle paddlepaddle-gpu, then install one of them"
        return CheckResult(FAILURE, f"{' and '.join(wheels)} are both installed and overwrite each other", fix)
    if paddle_versions.needs_older_numpy():
        text = f"Paddle {paddle.__version__} was built for NumPy 1, but NumPy {np.__version__} is installed"
        return CheckResult(FAILURE, text, "python -m pip install 'numpy<2'")
    try:
        numba = (
            importlib.import_module("numba").__version__
            if has_numba()
            else "not installed (training on CPUs is slower)"
        )
    except Exception as error:  # numba may not support the installed NumPy
        return CheckResult(FAILURE, f"numba cannot be imported: {error}", "python -m pip install -U numba")
    versions = {**recorded_versions(), "numba": numba}
    if device_kinds.is_built_for_cuda():
        versions.update(cuda=paddle.version.cuda(), cudnn=paddle.version.cudnn())
    text = ", ".join(f"{name} {value}" for name, value in versions.items() if value)
    notes = paddle_versions.notes()
    return CheckResult(WARNING if notes else OK, "; ".join([text, *notes]))


class SeenGpus(NamedTuple):
    """What the driver and Paddle see of the accelerators of the machine."""

    driver: int  # number of GPUs
    card: devices.GpuCard | None  # the newest one
    usable: int  # number of GPUs that Paddle can use
    others: dict[str, int]  # accelerators without CUDA that Paddle can use, by kind
    version: str  # Paddle's
    cuda: str | None  # CUDA's version that Paddle was built for; None: its CPU build


def check_gpus(context: CheckContext) -> CheckResult:
    """Check that Paddle can use the GPUs of the machine."""
    driver = devices.expected_gpus()
    card = devices.find_newest_card() if driver else None
    cuda = str(paddle.version.cuda()) if device_kinds.is_built_for_cuda() else None
    seen = SeenGpus(driver, card, devices.count_gpus(), device_kinds.count_others(), paddle.__version__, cuda)
    return judge_gpus(seen)


def judge_gpus(seen: SeenGpus) -> CheckResult:
    """Judge whether Paddle can use all that the driver sees."""
    visible, card = os.environ.get("CUDA_VISIBLE_DEVICES", "not set"), seen.card
    capability = "" if card is None else f", compute capability {card.capability[0]}.{card.capability[1]}"
    if seen.usable:
        text = f"{seen.usable} usable (CUDA_VISIBLE_DEVICES={visible}){capability}"
        known = paddle_versions.supported_capabilities(seen.version, str(seen.cuda))
        if card is not None and known is not None and not known[0] <= card.capability <= known[1]:
            lowest, highest = (f"{major}.{minor}" for major, minor in known)
            text += f"; Paddle {seen.version} for CUDA {seen.cuda} supports {lowest} to {highest}"
            return CheckResult(WARNING, text, f"unless you built this Paddle for the card: {format_install(card)}")
        return CheckResult(OK, text)
    if seen.others:
        text = ", ".join(f"{number} {device_kinds.get_kind(name).noun}(s)" for name, number in seen.others.items())
        return CheckResult(OK, f"no CUDA GPU; {text} usable through Paddle's plug-in (docs/guides/devices.md)")
    if not seen.driver:
        return CheckResult(OK, "none: training on the CPU")
    if seen.cuda is None:
        fix = f"{format_install(card)}; or train on the CPU"
        return CheckResult(WARNING, f"{seen.driver} GPU(s){capability}, but this is Paddle's CPU build", fix)
    fix = "check `nvidia-smi` (its CUDA has to be as new as Paddle's), the CUDA libraries, and CUDA_VISIBLE_DEVICES"
    text = f"{seen.driver} GPU(s){capability}, none usable by Paddle; CUDA_VISIBLE_DEVICES={visible}"
    return CheckResult(FAILURE, text, fix)


def check_memory(context: CheckContext) -> CheckResult:
    """Check the available memory of the machine, or of the container if that is less."""
    return judge_memory(limits.read_memory(), context.plan.processes)


def judge_memory(sizes: tuple[int, int] | None, processes: int) -> CheckResult:
    """Judge whether total and available memory, in bytes, suffice for these processes; None: unknown."""
    if sizes is None:
        return CheckResult(OK, "unknown: this system does not report it")
    total, available = sizes
    text = f"{available / GIB:.1f} of {total / GIB:.1f} GiB available"
    if available < processes * 1.5 * GIB:  # measured: one Paddle process with a small model
        fix = "end other programs, give the container more memory, or lower -ngpus and -num_workers"
        return CheckResult(WARNING, f"{text}: {processes} process(es) need at least 1.5 GiB each", fix)
    return CheckResult(OK, text)


def check_devices(context: CheckContext) -> CheckResult:
    """Check that each process starts and multiplies matrices correctly and repeatably, and that all can communicate."""
    from ...core.launch.spawn import launch_workers

    plan, target = context.plan, context.folder / "devices.json"
    config = context.config
    precision = config.AMP or config.EVAL_AMP, config.AMP_DTYPE, config.AMP_LEVEL
    arguments = (config.TRAIN.TF32, config.DETERMINISTIC, str(target), precision)
    # The children exit, so that the GPUs are free for the step, also in exclusive-process mode.
    launch_workers(run_device_test, arguments, plan, config.WATCHDOG_SECONDS, in_child=True)
    ranks = json.loads(target.read_bytes())
    speeds = "; ".join(f"{rank['name']}, {rank['gigaflops']:,.0f} GFLOP/s" for rank in ranks)
    noun = device_kinds.get_kind(plan.device).noun
    kind = f"CPU, {devices.cpu_cores()} core(s)" if plan.device == device_kinds.CPU else noun
    return CheckResult(OK, f"{len(ranks)} process(es) ({kind}) compute correctly and agree: {speeds}")


def run_device_test(tf32: bool, deterministic: bool, target: str, precision: tuple[bool, str, str]) -> None:
    """Test the device of this rank. Every rank must call this; the main one writes the results to ``target``.

    Args:
        tf32, deterministic: see ``gpu.prepare``.
        precision: arguments of ``TrainingPrecision``.
    """
    from ...core.distributed import all_gather, is_main, rank, reduce_dict, world_size
    from ...core.engine.device_check import check_precision
    from ...core.engine.precision import TrainingPrecision

    gpu.prepare(tf32, deterministic, fixed_shapes=False)
    notes = all_gather(check_precision(TrainingPrecision(*precision)))
    for line in dict.fromkeys(line for of_rank in notes for line in of_rank) if is_main() else ():
        write_line(line)
    if gpu.is_on_gpu():
        properties = paddle.device.cuda.get_device_properties()
        name = f"{properties.name} {properties.total_memory / GIB:.1f} GiB{' in TF32' * gpu.rounds_to_tf32()}"
        product = {**gpu.check_product(2048), "gigaflops": gpu.time_product()}
    elif (name := paddle.get_device()) != "cpu":
        product = gpu.check_product(1024)
    else:
        tuning.check_copies()
        name, product = str(tuning.processor()["model"] or "unknown"), tuning.check_product()
    results, ranks = all_gather({"name": name, **product}), list(range(world_size()))
    total = reduce_dict({"rank": rank()}, average=False)["rank"]
    if total != sum(ranks) or all_gather(rank()) != ranks:
        raise RuntimeError(f"the ranks of {world_size()} processes add up to {total}, not to {sum(ranks)}")
    if is_main():
        Path(target).write_bytes(json.dumps(results).encode())


def check_data(context: CheckContext) -> CheckResult:
    """Check that both splits can be opened, and that random samples can be read and transformed."""
    from ...core.tasks.opened_dataset import describe_sample

    task, bad, opened, lines, milliseconds = context.task, [], 0, [], {}
    for split, number in _OPENED.items():
        samples, labels, started = context.samples[split], [], time.perf_counter()
        if not len(samples):
            return CheckResult(FAILURE, f"{split}: there are no samples", "check -data_path and -dataset")
        chosen = np.random.default_rng(context.config.SEED).permutation(len(samples))[:number].tolist()
        for index in chosen:
            problem, classes = check_sample(task, samples, index, context.config.SEED)
            bad += [f"{split} {index} ({describe_sample(samples, index)}): {problem}"] if problem else []
            labels += [] if classes is None else [classes]
        milliseconds[split] = 1000 * (time.perf_counter() - started) / len(chosen)
        lines += [f"{split} {describe_samples(task, samples)}", *map(str, samples.notices)]
        opened += len(chosen)
        if labels:
            context.classes[split] = np.bincount(np.concatenate(labels))
    log = get_aspect(task, LogContributor)
    task_lines = log.finish_epoch() if log else ()
    for line in task_lines:  # unreadable images were replaced by others, and are listed
        files = list(context.folder.glob("*.tsv"))
        rows = [row for file in files for row in file.read_text("utf-8", "surrogateescape").splitlines()[1:]]
        bad += [row.replace("\t", ": ") for row in rows] or [line]
    if bad:
        text = f"{len(bad)} of {opened} cannot be used: {'; '.join(bad[:_SHOWN])}{'; ...' if len(bad) > _SHOWN else ''}"
        if context.config.DATA.get("ON_INVALID_SAMPLE") == "skip":
            return CheckResult(WARNING, text, "training replaces them by other samples (DATA.ON_INVALID_SAMPLE skip)")
        return CheckResult(FAILURE, text, "repair or remove them")
    times = f"{opened} opened at random, {milliseconds['train']:.3g} ms for each training sample"
    return CheckResult(OK, "; ".join([*lines, times]))


def check_sample(task: Task, dataset: TransformedDataset, index: int, seed: int) -> Any:
    """Return the problem of a sample, or None, and its classes (n,), or None."""
    from ...core.data.sampler import SampleKey, sample_generator

    try:
        sample = dataset.sample(index, sample_generator(seed, SampleKey(1, index, 0)))
        get_sample_check(task)(sample)
        checkable = get_aspect(task, Checkable) if dataset.labeled else None
        classes = checkable and checkable.labels_in(sample)
    except (Exception, SystemExit) as error:  # a user's dataset may raise anything
        return failures.reason(error).partition("\n")[0], None
    return None, None if classes is None else np.asarray(classes, dtype=np.int64).reshape(-1)


def check_labels(context: CheckContext) -> CheckResult:
    """Check that both splits contain all classes: among all samples if the dataset lists them, else the opened ones."""
    task, checkable = context.task, get_aspect(context.task, Checkable)
    all_classes = {split: checkable and checkable.get_labels(samples) for split, samples in context.samples.items()}
    about = task.signature(context.samples["train"])
    names, number = about.get("classes"), about.get("number of classes") or len(about.get("classes") or ())
    is_complete = all(values is not None for values in all_classes.values())
    counts = {split: np.bincount(values) for split, values in all_classes.items()} if is_complete else context.classes
    if "train" not in counts:
        return CheckResult(OK, "no classes: every opened sample has the labels that the task needs")
    number = max(number, *map(len, counts.values()))
    train, val = (np.pad(counts.get(split, [0]), (0, number - len(counts.get(split, [0])))) for split in _OPENED)

    def format_names(classes: np.ndarray) -> str:
        shown = [str(names[c]) if names and c < len(names) else str(c) for c in classes[:_SHOWN].tolist()]
        return ", ".join(shown) + (", ..." if len(classes) > _SHOWN else "")

    shown = [f"{format_names(np.array([c]))} {n:,} ({100 * n / train.sum():.0f}%)" for c, n in enumerate(train)]
    summary = f"{number:,} classes, {train.min():,} to {train.max():,} samples each, median {np.median(train):,.10g}"
    histogram = ", ".join(shown) if number <= _MOST_CLASSES else summary
    if np.count_nonzero(train) <= 1:
        text = f"all training labels are the same, {format_names(np.flatnonzero(train))}"
        return CheckResult(FAILURE, text, "check how labels are read: a model cannot learn from them")
    for problem, is_affected, fix in (
        ("in val, but not in train", (train == 0) & (val > 0), "no model can predict these classes: check the split"),
        ("not in train", train == 0, "lower -num_classes, or check the labels (rare classes may not have been opened)"),
        ("not in val", (val == 0) & val.any(), "the score does not cover these classes: check the split"),
    ):
        if is_affected.any():
            return CheckResult(WARNING, f"{problem}: {format_names(np.flatnonzero(is_affected))} ({histogram})", fix)
    return CheckResult(OK, histogram)


DATA = "data"
CHECKS = (
    DoctorCheck("versions", check_versions),
    DoctorCheck("GPU", check_gpus),
    DoctorCheck("memory", check_memory),
    DoctorCheck("devices", check_devices),
)
DATA_CHECKS = (DoctorCheck(DATA, check_data), DoctorCheck("labels", check_labels, (DATA,)))
