"""Log lines before a run's first step: data, model, devices and effective batch; and the first facts of its record."""

import math
from typing import Any

import numpy as np
import paddle

from ..checkpoint.foreign_names import statistics_in
from ..checkpoint.output_names import get_class_names
from ..data.sampler import MOST_IN_MEMORY, TrainingSampler
from ..distributed import has_batch_norm, world_size
from ..launch import gpu, tuning
from ..logging.record import RunLog
from ..registry.lookup import find_package
from ..registry.required_methods import is_builtin
from ..runtime import device_kinds, paddle_versions
from ..runtime.compiled import has_numba
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from ..runtime.transfers import is_on_gpu
from ..settings import dump_yaml
from ..settings.every_run import RunSettings
from ..tasks.aspects import get_aspect
from ..tasks.dataset import Dataset
from ..tasks.listed_samples import ListedSamples
from ..tasks.model import as_model
from ..tasks.protocols import LogContributor, count_samples, describe_samples
from ..tasks.task import Task
from ..tasks.task_factory import name_network
from .schedule import describe_rates
from .settings import effective_batch_size
from .training_state import TrainingState

_MOST_COUNTED = 1_000  # classes that the record names, and whose samples it counts


def format_first_lines(config: RunSettings, task: Task, datasets: dict[str, Any]) -> list[str]:
    """Format the lines that introduce a run: data, model, devices and effective batch."""
    data, model = config.DATA, config.get("EXPORTED") or name_network(config, task)
    is_ours = find_package("dataset", data.DATASET) is not None
    place = data.DATA_PATH or ("no -data_path: it comes with the package" if is_ours else "no -data_path")
    splits = [f"  {split} {describe_samples(task, samples)}" for split, samples in datasets.items()]
    source = f"{data.DATASET} ({place})"
    listed = next((samples.dataset for samples in datasets.values() if isinstance(samples, ListedSamples)), None)
    if is_ours and listed is not None and not isinstance(listed, Dataset):  # the task does not read DATA.DATASET
        source = f"{type(listed).__name__} (from {type(task).__name__}.build_dataset)"
    warnings = [*warn_of_shared_samples(task, datasets), *warn_of_shared_groups(config, task, datasets)]
    lines = [f"data: {source}", *splits, *warnings, f"model: {model}", _devices(config)]
    if config.DETERMINISTIC and not is_on_gpu():
        kind = device_kinds.current()
        where = "a CPU" if kind.name == device_kinds.CPU else f"device {kind.name}"
        lines.append(f"DETERMINISTIC has no effect on {where}: a run repeats with the same processes and threads")
    if not has_numba():
        lines.append(
            "numba is not installed: layers, norms of gradients and transforms run without compiled kernels, slower on "
            "CPUs: pip install numba"
        )
    lines.extend(paddle_versions.notes())
    return lines


def warn_of_shared_samples(task: Task, datasets: dict[str, Any]) -> list[str]:
    """Return a warning if samples of a user's dataset are in both splits by their identities; images have checks."""
    if datasets.keys() != {"train", "val"}:
        return []
    splits = [datasets["train"], datasets["val"]]
    wholes = [getattr(samples, "dataset", None) for samples in splits]
    roots = [getattr(whole, "root", None) for whole in wholes]  # identities are relative to it
    if (
        any(whole is None or is_builtin(getattr(whole, "own_class", type(whole))) for whole in wholes)
        or roots[0] != roots[1]
    ):
        return []
    train, val = (samples.identities() for samples in splits)
    if train is None or val is None or not (shared := np.flatnonzero(np.isin(val, train))).size:
        return []
    return [
        f"warning: {len(shared):,} of {count_samples(task, splits[1])} of val are also in train, such as "
        f"{splits[1].describe(int(shared[0]))}: the score is of samples that the model has learned"
    ]


def warn_of_shared_groups(config: RunSettings, task: Task, datasets: dict[str, Any]) -> list[str]:
    """Return a warning if samples of one group of EVALUATION.GROUP, such as a patient, are in both splits."""
    grouping = config.EVALUATION.GROUP
    if grouping is None or datasets.keys() != {"train", "val"} or not datasets["val"].labeled:
        return []
    val = datasets["val"].groups(grouping)
    try:
        train = datasets["train"].groups(grouping)
    except UserError:  # a table that knows the evaluated samples alone
        return []
    shared = int(np.isin(val.names, train.names).sum())
    if not shared:
        return []
    return [
        f"warning: {shared:,} of {count_samples(task, datasets['val'])} of val are of a {one_line(val.by)} that train "
        "has, too (-group): scores of new ones may be lower; divide the data by it, in folders train and val or by a "
        "column split of a table"
    ]


def start_run_log(config: RunSettings, run_log: RunLog, task: Task, datasets: dict[str, Any]) -> None:
    """Write configuration and run record, replacing earlier ones; called once the run is sure to continue."""
    if not run_log.writes:
        return
    tuned = None
    if config.CPU_TUNING:
        tuned = tuning.check_product() if paddle.get_device() == "cpu" else gpu.check_product()
        tuning.check_copies()
    data = {
        split: {
            "holds": describe_samples(task, samples),
            "samples": count_samples(task, samples),
            "classes": task.signature(samples).get("number of classes"),
            "class_names": _list_class_names(task, samples),
            "counts": _count_classes(task, samples),
            "notes": list(samples.notices),
        }
        for split, samples in datasets.items()
    }
    for split, samples in datasets.items():
        if published := getattr(samples, "published_as", None):
            data[split]["published_as"] = dict(published)
    facts = {
        "processes": world_size(),
        "device": paddle.get_device().split(":")[0],
        "seed": config.SEED,
        "effective_batch": effective_batch_size(config, world_size()),
        "product_check": tuned,
        device_kinds.GPU: gpu.settings() if is_on_gpu() else None,
        "data": data,
    }
    run_log.start(dump_yaml(config), facts, config.EVAL)


def _list_class_names(task: Task, samples: Any) -> list[str] | None:
    """Return the names that scores of classes, or of landmarks, have; None if unknown, or if there are many."""
    names = get_class_names({"samples": task.signature(samples)}, task.signature()) or []
    return list(map(one_line, names)) if 0 < len(names) <= _MOST_COUNTED else None


def _count_classes(task: Task, samples: Any) -> dict[str, int] | None:
    """Count the samples of each class if that is known, and the record stays small."""
    log = get_aspect(task, LogContributor)
    counts = log and log.count_classes(samples)
    if not counts or len(counts) > _MOST_COUNTED:
        return None
    return {one_line(name): int(number) for name, number in counts.items()}


def _devices(config: RunSettings) -> str:
    size = world_size()
    kind = device_kinds.current().noun
    devices = f"devices: {size} {kind}{'' if size == 1 else 'es' if kind.endswith('s') else 's'}"
    if config.EVAL:
        batch = config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE
        return f"{devices}; effective batch {batch * size} = {batch} per process x {size} process(es)"
    return f"{devices}; {describe_rates(config, size)}"


def describe_batch_norm(config: RunSettings, kind: str, reason: str) -> str:
    """Format which samples the statistics of batch norms of ``kind`` "sync" or "local" are computed over, and why."""
    size, steps = config.DATA.BATCH_SIZE, config.TRAIN.ACCUM_ITER
    if kind == "sync":
        size *= world_size()
    text = f"statistics of {size} sample{'s' if size > 1 else ''} at a time"
    if world_size() > 1:
        text = f"{kind}, {text} ({reason})"
    separate = f", each of the {steps} accumulated micro-batches separately" if steps > 1 else ""
    return f"batch norm: {text}{separate}"


def describe_training(config: RunSettings, task: Task, model: paddle.nn.Layer, sampler: TrainingSampler) -> str:
    """Format the size of the model, the updates of an epoch and the number of samples that an epoch skips."""
    named = dict(model.named_parameters())
    sizes = {name: math.prod(named[name].shape) for name in set(named).difference(statistics_in(named))}
    fixed = sum(size for name, size in sizes.items() if named[name].stop_gradient)
    samples, updates, batch = len(sampler.dataset), sampler.updates_per_epoch, sampler.global_batch_size
    trained = f"{sum(sizes.values()) - fixed:,} parameters" + (f" ({fixed:,} more are fixed)" if fixed else "")
    text = f"training {trained}, {updates} update{'s' if updates > 1 else ''} per epoch"
    skipped = samples - updates * batch
    if sampler.repeats > 1:
        read = -(-updates * batch // sampler.repeats)
        return (
            f"{text}; each reads {read:,} of {samples:,} {task.traits.sample_name}, others each time, "
            f"{sampler.repeats} times (TRAIN.REPEATED_AUGMENT)"
        )
    if config.DATA.get("CLASS_BALANCED"):  # of classification
        return f"{text}; {updates * batch:,} draws from {samples:,} {task.traits.sample_name} (DATA.CLASS_BALANCED)"
    if skipped:
        text += (
            f"; {skipped:,} of {samples:,} {task.traits.sample_name} are skipped in each, others each time: they do "
            f"not fill an effective batch of {batch}"
        )
    return text


def format_training(config: RunSettings, task: Task, state: TrainingState, updates: int) -> list[str]:
    """Format the lines before the first of ``updates`` steps; see ``describe_training``."""
    precision, sampler = state.precision, state.sampler
    slow = "" if state.ema is None else state.ema.describe_first_weights(updates)
    lines = [describe_training(config, task, state.model, sampler), *filter(None, [precision.notice, slow])]
    lines += as_model(state.model).list_course_notices(state.schedule.total_updates)
    if sampler.computes_order:
        lines.append(f"the order of an epoch is computed, not stored: there are more than {MOST_IN_MEMORY:,} samples")
    if config.TRAIN.BATCH_NORM is not None and not has_batch_norm(state.model):
        lines.append(
            f"TRAIN.BATCH_NORM {config.TRAIN.BATCH_NORM}: no effect: {name_network(config, task)} has no batch norm"
        )
    if precision.enabled and config.AMP_LEVEL == "O2":
        lines.append(
            "level O2: softmax and norms use the dtype of their input; weights and gradients are float32, as at O1"
        )
    return lines
