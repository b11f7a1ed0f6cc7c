"""-selftest: the same updates by several processes, by one, and with batches accumulated by one, compared tensor by
tensor.

Each way starts with the same weights and reads the same samples, so what differs beyond rounding depends on the number
of processes. The optimizer is SGD at TRAIN.BASE_LR: Adam divides each gradient by its own size and so turns the
rounding of those that are nearly zero into whole steps.
"""

import contextlib
import gc
import hashlib
import math
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..distributed import all_gather, has_batch_norm, is_main, running_statistics, world_size
from ..engine import gpu_memory
from ..engine.nan_guard import NonFiniteGuard
from ..engine.steps import accumulation_groups
from ..engine.trainer import Trainer
from ..launch import launch_workers, plan_processes
from ..logging.progress import write_line
from ..logging.record import RunRecord
from ..registry import require_derived
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..settings.table import leaves
from ..tasks.dataset import TransformedDataset
from ..tasks.task import LossTerm, StepPosition, Task, make_task
from .settings import change_settings

UPDATES = 3
_RESULT = "way.pickle"
# Measured: a ViT's gradients differ by 1e-6 of their largest value, the loss of any model's first update by 4e-6. ReLUs
# and batch norms make more of rounding, 7 % of the first layer's gradient in PointGroup and 1e-5 of the last one's; and
# where two proposals of a Mask R-CNN have nearly equal scores, either is taken, in one run of two or of twenty. So what
# is allowed is, for each tensor, what the largest of several runs shows whose weights begin with other last bits: more
# of these than another order of a sum changes, so that what is rare there is seen here.
ALLOWED = 1e-4
_MOST_ALLOWED = 1e-2  # of the first update's loss, so that a model is found that is not repeatable at all
PERTURBED = 5
_LAST_BITS = 32
_TIMES_ROUNDING = 10
_LEAST_SCALE = 1e-3  # of the largest gradient: one that is smaller is mostly what rounding leaves of larger ones
_TINY = 1e-30
_KINDS = ("loss term", "gradient", "change of weight", "change of buffer")
_DROPOUTS = (paddle.nn.Dropout, paddle.nn.Dropout2D, paddle.nn.Dropout3D, paddle.nn.AlphaDropout)

Arrays = dict[str, np.ndarray]


class TensorDifference(NamedTuple):
    """Two tensors compared.

    Attributes:
        name: "gradient of 'head.weight' in update 1", for example.
        share: the largest difference as a share of ``scale``.
        largest: the largest difference itself.
        scale: the tensor's largest value, or what that cannot be told from by rounding.
        allowed: what ``share`` may be.
    """

    name: str
    share: float
    largest: float
    scale: float
    allowed: float


class RunVariant(NamedTuple):
    """Outcome of the updates.

    Attributes:
        values: arrays by name, in the order in which they came to be.
        differing: what was not the same on all ranks, in words.
        sizes: the largest value of each parameter and buffer in the end.
        rounding: the largest share by which each tensor differed in runs from weights with other last bits.
    """

    values: Arrays
    differing: str | None
    has_batch_norm: bool
    sizes: dict[str, float]
    rounding: dict[str, float]


def run_way(config: RunSettings, task: Task, samples: Any, folder: str, perturbed: int = 0) -> None:
    """Make the updates with the processes of this group; ``read_way`` then reads from ``folder`` what came of them.
    Every rank must call this.

    Args:
        config: of this way: its batch and accumulation, TRAIN.BATCH_NORM sync, TRAIN.OPTIMIZER SGD, SAVE a folder that
            is thrown away.
        samples: the training samples.
        perturbed: so many times they are made again from weights with other last bits, by a single process.
    """
    task, samples = require_derived(task, Task), require_derived(samples, TransformedDataset)
    way = _make_updates(config, task, samples, Path(folder))
    for number in range(perturbed):
        gc.collect()  # a GPU may not have room for two models
        for difference in differences(way, _make_updates(config, task, samples, Path(folder), number)):
            way.rounding[difference.name] = max(way.rounding.get(difference.name, 0.0), difference.share)
    if is_main():
        Path(folder, _RESULT).write_bytes(pickle.dumps(way))


def _make_updates(
    config: RunSettings, task: Task, samples: TransformedDataset, folder: Path, perturbation: int | None = None
) -> RunVariant:
    task = pickle.loads(pickle.dumps(task))  # the next way starts with the task as it was
    training = silent_training(config, task, samples, folder)
    model = training.model
    for layer in model.sublayers():
        if isinstance(layer, _DROPOUTS):  # of a user's model; ours have keys for it
            layer.p = 0.0
    if perturbation is not None:
        _change_last_bits(model, perturbation)
    train_step = training.train_step
    train_step.nan_guard = NonFiniteGuard()
    gradients: Arrays = {}

    def look() -> None:
        found = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
        gradients.update({f"gradient of '{name}' in update 1": gradient.numpy() for name, gradient in found})
        train_step.before_clipping = None  # from the second update on, weights may differ already

    train_step.before_clipping = look
    before = _state(model)
    values: Arrays = {}
    differing: str | None = None
    per_epoch = training.updates_per_epoch
    model.train()
    with contextlib.closing(training.loader.epochs(1, -(-UPDATES // per_epoch))) as batches:
        for update, group in enumerate(accumulation_groups(batches, config.TRAIN.ACCUM_ITER, UPDATES)):
            step = StepPosition(1 + update // per_epoch, update, UPDATES)
            with gpu_memory.explain_memory(gpu_memory.advise_training(config)):
                terms = train_step(group, step, config.TRAIN.BASE_LR)
            values.update(_losses(terms, update + 1))
            if update == 0:
                values.update(gradients)
            differing = differing or _differing_ranks(model, update + 1)
    values.update(_changes(model, before))
    sizes = {name: _size(tensor.numpy()) for name, tensor in model.state_dict().items()}
    return RunVariant(values, differing, has_batch_norm(model), sizes, {})


@paddle.no_grad()
def _change_last_bits(model: paddle.nn.Layer, seed: int) -> None:
    generator = np.random.default_rng(seed)
    for parameter in model.parameters():
        values = parameter.numpy()
        if values.dtype == np.float32 and not parameter.stop_gradient:
            by = generator.uniform(-_LAST_BITS, _LAST_BITS, values.shape)
            parameter.set_value((values + by * np.spacing(values)).astype(np.float32))


def silent_training(config: RunSettings, task: Task, samples: TransformedDataset, folder: Path) -> Trainer:
    """Make a run that computes as a training, tells nothing, and writes nothing unless it is told to."""
    config = change_settings(config, {"DATA.NUM_WORKERS": config.DATA.NUM_WORKERS or 0, "DATA.PREFETCH": 1})
    run = Trainer(config, task, {"train": samples}, record=RunRecord(folder, writes=False))
    run.prepare_training()
    return run


def _state(model: paddle.nn.Layer) -> Arrays:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def _losses(outputs: Sequence[dict[str, LossTerm]], update: int) -> Arrays:
    """The mean of each term of the loss over all ranks and micro-batches, float64. Every rank must call this."""
    own: dict[str, tuple[float, float]] = {}
    for terms in outputs:
        for name, term in terms.items():
            if term.weight:
                total, count = own.get(name, (0.0, 0.0))
                own[name] = (total + float(term.sum.numpy()), count + float(np.asarray(term.count).reshape([])))
    means = {}
    gathered = all_gather(own)
    for name in own:
        total, count = (sum(rank_sums[name][part] for rank_sums in gathered) for part in (0, 1))
        means[f"loss term '{name}' of update {update}"] = np.array(total / count if count else 0.0)
    return means


def _differing_ranks(model: paddle.nn.Layer, update: int) -> str | None:
    """The first parameter or buffer that is not the same on all ranks, in words. Every rank must call this."""
    if world_size() == 1:
        return None
    state = _state(model)
    digests = {name: hashlib.blake2b(value.tobytes(), digest_size=16).digest() for name, value in state.items()}
    everyone = all_gather(digests)
    for name in digests:
        others = [number for number, theirs in enumerate(everyone) if theirs[name] != everyone[0][name]]
        if others:
            values = all_gather(state[name])
            by = float(np.abs(values[others[0]].astype(np.float64) - values[0]).max())
            ranks = f"rank 0 and rank {others[0]}"
            return f"'{name}' is not the same on {ranks} after update {update}: they differ by {by:.3g}"
    return None


def _changes(model: paddle.nn.Layer, before: Arrays) -> Arrays:
    """How much the updates have changed each parameter and buffer."""
    parameters = {name for name, _ in model.named_parameters()}
    statistics = {id(tensor) for tensor in running_statistics(model)}
    changes = {}
    for name, tensor in model.state_dict().items():
        is_buffer = id(tensor) in statistics or name not in parameters
        kind = "buffer" if is_buffer else "weight"
        change = tensor.numpy().astype(np.float64) - before[name]
        changes[_change(kind, name)] = change.astype(np.float32)
    return changes


def read_way(folder: Path) -> RunVariant:
    """Read what ``run_way`` has written, into a folder that nobody else can write to."""
    return pickle.loads((folder / _RESULT).read_bytes())


def differences(one: RunVariant, other: RunVariant, with_buffers: bool = True) -> list[TensorDifference]:
    """How much two ways differ, tensor by tensor, in their order.

    Args:
        one: is taken as right.
        with_buffers: compare running statistics and other buffers.
    """
    sizes = {_change(kind, name): size for name, size in one.sizes.items() for kind in ("weight", "buffer")}
    largest = dict.fromkeys(_KINDS, 0.0)
    for name, value in one.values.items():
        largest[_kind(name)] = max(largest[_kind(name)], _size(value))
    found = []
    for name in dict.fromkeys([*one.values, *other.values]):
        if name.startswith("change of buffer") and not with_buffers:
            continue
        allowed = ALLOWED + _TIMES_ROUNDING * one.rounding.get(name, 0.0)
        if name.startswith(_KINDS[0]) and name.endswith(" 1"):
            allowed = min(allowed, _MOST_ALLOWED)
        value, theirs = one.values.get(name), other.values.get(name)
        if value is None or theirs is None or theirs.shape != value.shape:
            found.append(TensorDifference(name, math.inf, math.inf, 0.0, allowed))
            continue
        # Each update rounds the whole weight, however little it changes it.
        rounding = UPDATES * float(np.finfo(np.float32).eps) * sizes.get(name, 0.0) / ALLOWED
        scale = max(_size(value), _LEAST_SCALE * largest[_kind(name)], rounding, _TINY)
        by = _size(np.asarray(theirs, dtype=np.float64) - value)
        found.append(TensorDifference(name, by / scale if math.isfinite(by) else math.inf, by, scale, allowed))
    return found


def _change(kind: str, name: str) -> str:
    return f"change of {kind} '{name}' after update {UPDATES}"


def _kind(name: str) -> str:
    return next(kind for kind in _KINDS if name.startswith(kind))


def _size(value: np.ndarray) -> float:
    return float(np.abs(value).max()) if value.size else 0.0


# ---- the command --------------------------------------------------------------------------------------------------

_FOR_ALL = {
    "TRAIN.OPTIMIZER.NAME": "SGD",
    "TRAIN.BATCH_NORM": "sync",
    "TRAIN.MODEL_EMA": False,
    "TRAIN.TF32": False,
    "MODEL.RESUME": None,
    "AMP": False,
}


class _VariantSpec(NamedTuple):
    name: str
    processes: int
    batch: int
    accumulated: int


def run(run: Any) -> None:
    """Carry out the command, a ``Configuration`` with SELFTEST. Nothing is written to the output folder.

    Raises:
        SystemExit: with 1, tensors differ.
    """
    plan = plan_processes(run.values.NGPUS, device=run.values.DEVICE)
    if plan.launched:
        raise UserError("-selftest starts its own processes: run it without Paddle's launcher")
    with tempfile.TemporaryDirectory(prefix="paddlevit_dist_selftest_") as name:
        folder = Path(name)
        own_cache = Path(run.values.DATA.CACHE_FOLDER or Path(run.values.SAVE, "data"))
        config, off = _comparable(run.values, str(folder))
        ways = _ways(plan, config.DATA.BATCH_SIZE, config.NGPUS)
        for line in [
            f"selftest: {UPDATES} updates in each of these ways, float32, SGD",
            *(f"  {w.name}" for w in ways),
        ]:
            write_line(line)
        write_line(f"off, since each rank draws its own or rounds otherwise: {', '.join(['dropout layers', *off])}")
        # What a run has made of the data is read, and what it has not is thrown away.
        task = make_task(config)
        train = task.build_dataset("train", own_cache if own_cache.is_dir() else folder)
        results: dict[str, Any] = {}
        for number, way in enumerate(ways):
            if way.accumulated > 1 and results[ways[0].name].has_batch_norm:
                write_line(f"not compared: {way.name}: batch norm has other statistics in each micro-batch")
                continue
            place = folder / str(number)
            place.mkdir()
            values = {"NGPUS": way.processes, "DATA.BATCH_SIZE": way.batch, "TRAIN.ACCUM_ITER": way.accumulated}
            perturbed = PERTURBED if way.processes == way.accumulated else 0  # of the one that others are compared with
            arguments = (change_settings(config, values), task, train, str(place), perturbed)
            these = plan._replace(processes=way.processes)
            launch_workers(run_way, arguments, these, config.WATCHDOG_SECONDS, in_child=True)
            results[way.name] = read_way(place)
        if len(results) == 1:
            raise UserError(
                "-selftest: a single process with batch norm has nothing to be compared with; expected -ngpus=2 or "
                "more, on CPUs if need be (CUDA_VISIBLE_DEVICES=)"
            )
        if not _compare(results, ways):
            raise SystemExit(1)


def _comparable(config: RunSettings, folder: str) -> tuple[Any, list[str]]:
    """The configuration without what is random on each rank, and what that is."""
    of_each_rank = make_task(config).rank_local_options
    others, settings = {**_FOR_ALL, **of_each_rank}, dict(leaves(config))
    off = [
        f"{name} {settings[name]}"
        for name, value in others.items()
        if settings[name] != value and (name in of_each_rank or name == "AMP")
    ]
    return change_settings(config, {**others, "SAVE": folder}), off


def _ways(plan: Any, batch: int, requested: int) -> list[_VariantSpec]:
    """The ways that are compared, the one with a single process and a whole batch last but one."""
    processes = plan.processes
    if processes == 1 and plan.device == "cpu" and requested == -1:
        processes = 2
    parts = max(2, processes)
    share = max(1, batch // parts)
    ways = [_VariantSpec(f"{processes} processes x {share}", processes, share, 1)] if processes > 1 else []
    ways.append(_VariantSpec(f"1 process x {share * parts}", 1, share * parts, 1))
    return [*ways, _VariantSpec(f"1 process x {share} x {parts} accumulated", 1, share, parts)]


def _compare(results: dict[str, Any], ways: list[_VariantSpec]) -> bool:
    """Print what differs; whether nothing does."""
    one = next(way.name for way in ways if way.processes == way.accumulated)
    is_equal = True
    for way in ways:
        if way.name == one or way.name not in results:
            continue
        if results[way.name].differing is not None:
            is_equal = False
            write_line(f"FAIL: {way.name}: {results[way.name].differing}")
        found = differences(results[one], results[way.name], with_buffers=way.accumulated == 1)
        broken = [difference for difference in found if difference.share > difference.allowed]
        if broken:
            is_equal = False
            write_line(f"FAIL: {way.name} and {one}: {len(broken)} of {len(found)} tensors differ, first:")
            gradients = [difference for difference in broken if difference.name.startswith("gradient")]
            for difference in dict.fromkeys([broken[0], *gradients[:1]]):
                write_line(f"  {_print_result(difference)}")
        else:
            worst = max(found, key=lambda difference: difference.share / difference.allowed)
            write_line(f"{way.name} and {one}: {len(found)} tensors agree; closest to what is allowed:")
            write_line(f"  {_print_result(worst)}")
    write_line("PASS" if is_equal else "FAIL")
    return is_equal


def _print_result(difference: Any) -> str:
    return (
        f"{difference.name}: by {difference.largest:.3g}, {difference.share:.2g} of {difference.scale:.3g} "
        f"(allowed {difference.allowed:.2g})"
    )
