"""``-selftest``: compare updates of several processes, of one process, and of one process with accumulated batches.

Each variant starts with the same weights and reads the same samples, so a difference beyond rounding depends on the
number of processes. The optimizer is SGD at TRAIN.BASE_LR: Adam divides each gradient by its size, and so turns
rounding errors of gradients near zero into full steps.
"""

import contextlib
import functools
import gc
import hashlib
import math
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...core.distributed import (
    all_gather,
    broadcast_statistics,
    has_batch_norm,
    is_main,
    running_statistics,
    world_size,
)
from ...core.engine import gpu_memory
from ...core.engine.nan_guard import NonFiniteGuard
from ...core.engine.saved_weights import digest_state, require_saved
from ...core.engine.step import accumulation_groups
from ...core.engine.trainer import Trainer
from ...core.launch import launch_workers, plan_processes
from ...core.launch.devices import ProcessPlan
from ...core.launch.stale_resources import working_folder
from ...core.logging.meters import StepMeters
from ...core.logging.progress import write_line
from ...core.logging.record import RunLog
from ...core.registry.lookup import require_derived
from ...core.runtime.errors import UserError
from ...core.settings.configuration import Configuration
from ...core.settings.every_run import RunSettings
from ...core.settings.key import OPTIONS
from ...core.settings.table import leaves
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.listed_samples import open_samples
from ...core.tasks.model_factory import build_model
from ...core.tasks.step_types import LossTerm, StepPosition
from ...core.tasks.task import Task
from ...core.tasks.task_factory import make_task
from .settings import change_settings

UPDATES = 3
RESULT = "variant.pickle"
# Measured: a ViT's gradients differ by 1e-6 of their largest value, the loss of any model's first update by 4e-6. ReLUs
# and batch norms amplify rounding: 7 % of the first layer's gradient in PointGroup, 1e-5 of the last one's. If two
# proposals of a Mask R-CNN have nearly equal scores, either may be selected, in one run of two or of twenty. So the
# tolerance of each tensor is its largest difference in several runs whose initial weights differ in their last bits.
# More bits differ than another order of summation changes, so that rare differences occur in these runs.
ALLOWED = 1e-4
_MOST_ALLOWED = 1e-2  # of the first update's loss, so that a model that is never repeatable is detected
PERTURBED = 5
_LAST_BITS = 32
_TIMES_ROUNDING = 10
_LEAST_SCALE = 1e-3  # of the largest gradient: a smaller one consists mostly of rounding errors of larger ones
_TINY = 1e-30
_KINDS = ("loss term", "gradient", "change of weight", "change of buffer")
_DROPOUTS = (paddle.nn.Dropout, paddle.nn.Dropout2D, paddle.nn.Dropout3D, paddle.nn.AlphaDropout)

Arrays = dict[str, np.ndarray]


class TensorDifference(NamedTuple):
    """Difference of two tensors."""

    name: str  # for example "gradient of 'head.weight' in update 1"
    share: float  # the largest difference divided by ``scale``
    largest: float  # the largest absolute difference
    scale: float  # the tensor's largest absolute value, or the resolution of float32 if that is larger
    allowed: float  # tolerance of ``share``


class RunVariant(NamedTuple):
    """Result of the updates of one variant."""

    values: Arrays  # arrays by name, in the order of their computation
    differing: str | None  # describes the first tensor that is not the same on all ranks; None if there is none
    has_batch_norm: bool  # whether the model has batch-norm layers
    sizes: dict[str, float]  # the largest absolute value of each parameter and buffer after the updates
    rounding: dict[str, float]  # the largest ``share`` of each tensor in runs from weights with other last bits


def run_variant(config: RunSettings, task: Task, dataset: TransformedDataset, folder: str, perturbed: int = 0) -> None:
    """Run the updates with the processes of this group, and write the result to ``folder`` for ``read_variant``.

    Every rank must call this.

    Args:
        config: of this variant: its batch and accumulation, TRAIN.BATCH_NORM sync, TRAIN.OPTIMIZER SGD, SAVE a
            temporary folder.
        task: of this run.
        dataset: the training samples.
        folder: for the result.
        perturbed: number of repetitions from weights with other last bits, by a single process.
    """
    task, dataset = require_derived(task, Task), require_derived(dataset, TransformedDataset)
    variant = _run_updates(config, task, dataset, Path(folder))
    for number in range(perturbed):
        gc.collect()  # a GPU may not have memory for two models
        for difference in compare_variants(variant, _run_updates(config, task, dataset, Path(folder), number)):
            variant.rounding[difference.name] = max(variant.rounding.get(difference.name, 0.0), difference.share)
    if is_main():
        Path(folder, RESULT).write_bytes(pickle.dumps(variant))


def _run_updates(
    config: RunSettings, task: Task, dataset: TransformedDataset, folder: Path, perturbation: int | None = None
) -> RunVariant:
    task = pickle.loads(pickle.dumps(task))  # a copy, so that the next variant starts with an unchanged task
    training = build_silent_trainer(config, task, dataset, folder)
    model = training.model
    for layer in model.sublayers():
        if isinstance(layer, _DROPOUTS):  # in a user's model; the package's models have keys for it
            layer.p = 0.0
    if perturbation is not None:
        change_last_bits(model, perturbation)
    train_step = training.step
    train_step.nan_guard = NonFiniteGuard()
    gradients: Arrays = {}

    shards = training.state.shards

    def copy_gradients() -> None:
        named = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        if shards is None:
            copies = {name: gradient.numpy() for name, gradient in named.items()}
        else:
            copies = shards.collect({name: gradient for name, gradient in named.items() if name in shards.owned})
        gradients.update({f"gradient of '{name}' in update 1": copy for name, copy in copies.items()})
        train_step.before_clipping = None  # from the second update on, weights may differ already

    train_step.before_clipping = copy_gradients
    before = _copy_state(model)
    values: Arrays = {}
    differing: str | None = None
    per_epoch = training.updates_per_epoch
    model.train()
    with contextlib.closing(training.loader.epochs(1, -(-UPDATES // per_epoch))) as batches:
        for update, group in enumerate(accumulation_groups(batches, config.TRAIN.ACCUM_ITER, UPDATES)):
            left = config.TRAIN.NUM_EPOCHS - 1 - update // per_epoch
            step = StepPosition(1 + update // per_epoch, update, UPDATES, epochs_left=left)
            with gpu_memory.explain_memory(gpu_memory.advise_training(config)):
                terms = train_step(group, step, config.TRAIN.BASE_LR)
            values.update(compute_losses(terms, update + 1))
            if update == 0:
                values.update(gradients)
            differing = differing or find_differing_ranks(model, update + 1)
    values.update(_compute_changes(model, before))
    if differing is None and perturbation is None:
        require_same_saved(training)
    sizes = {name: _largest(tensor.numpy()) for name, tensor in model.state_dict().items()}
    return RunVariant(values, differing, has_batch_norm(model), sizes, {})


def require_same_saved(training: Trainer) -> None:
    """Check that an evaluation would load the weights that would be scored now. Every rank must call this."""
    checkpointer, model = training.checkpointer, training.model
    broadcast_statistics(model)
    checkpointer.save_update(False, StepMeters())
    checkpointer.finish()
    with contextlib.nullcontext() if training.ema is None else training.ema.in_place():
        broadcast_statistics(model)
        scored = digest_state(model)
    if is_main():
        build_plain = functools.partial(build_model, training.config, training.task)
        last = (checkpointer.folder / "last").resolve()
        require_saved(model, last, scored, build_plain, write_line)
        shutil.rmtree(checkpointer.folder)


@paddle.no_grad()
def change_last_bits(model: paddle.nn.Layer, seed: int) -> None:
    """Change trained float32 parameters at random by their last bits, in place."""
    generator = np.random.default_rng(seed)
    for parameter in model.parameters():
        values = parameter.numpy()
        if values.dtype == np.float32 and not parameter.stop_gradient:
            bits = generator.uniform(-_LAST_BITS, _LAST_BITS, values.shape)
            parameter.set_value((values + bits * np.spacing(values)).astype(np.float32))


def build_silent_trainer(config: RunSettings, task: Task, dataset: TransformedDataset, folder: Path) -> Trainer:
    """Build a trainer that neither logs nor writes files."""
    config = change_settings(config, {"DATA.NUM_WORKERS": config.DATA.NUM_WORKERS or 0, "DATA.PREFETCH": 1})
    trainer = Trainer(config, task, {"train": dataset}, run_log=RunLog(folder, writes=False))
    trainer.prepare_training()
    return trainer


def _copy_state(model: paddle.nn.Layer) -> Arrays:
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def compute_losses(outputs: Sequence[dict[str, LossTerm]], update: int) -> Arrays:
    """Compute the mean of each loss term over all ranks and micro-batches, float64. Every rank must call this."""
    sums: dict[str, tuple[float, float]] = {}
    for terms in outputs:
        for name, term in terms.items():
            if term.weight:
                total, count = sums.get(name, (0.0, 0.0))
                sums[name] = (total + float(term.sum.numpy()), count + float(np.asarray(term.count).reshape([])))
    means = {}
    gathered = all_gather(sums)
    for name in sums:
        total, count = (sum(rank_sums[name][part] for rank_sums in gathered) for part in (0, 1))
        means[f"loss term '{name}' of update {update}"] = np.array(total / count if count else 0.0)
    return means


def find_differing_ranks(model: paddle.nn.Layer, update: int) -> str | None:
    """Describe the first parameter or buffer that is not the same on all ranks. Every rank must call this."""
    if world_size() == 1:
        return None
    state = _copy_state(model)
    digests = {key: hashlib.blake2b(value.tobytes()).digest() for key, value in state.items()}
    rank_digests = all_gather(digests)
    for name in digests:
        others = [number for number, other in enumerate(rank_digests) if other[name] != rank_digests[0][name]]
        if others:
            values = all_gather(state[name])
            by = float(np.abs(values[others[0]].astype(np.float64) - values[0]).max())
            ranks = f"rank 0 and rank {others[0]}"
            return f"'{name}' is not the same on {ranks} after update {update}: they differ by {by:.3g}"
    return None


def _compute_changes(model: paddle.nn.Layer, before: Arrays) -> Arrays:
    """Compute by how much the updates have changed each parameter and buffer."""
    parameters = {parameter_name for parameter_name, _ in model.named_parameters()}
    statistics = {id(statistic) for statistic in running_statistics(model)}
    changes = {}
    for name, tensor in model.state_dict().items():
        is_buffer = id(tensor) in statistics or name not in parameters
        kind = "buffer" if is_buffer else "weight"
        change = tensor.numpy().astype(np.float64) - before[name]
        changes[_format_change(kind, name)] = change.astype(np.float32)
    return changes


def read_variant(folder: Path) -> RunVariant:
    """Read the result of ``run_variant`` from a folder to which no other user can write."""
    return pickle.loads((folder / RESULT).read_bytes())


def compare_variants(reference: RunVariant, other: RunVariant, with_buffers: bool = True) -> list[TensorDifference]:
    """Compute the differences of another variant from the one taken as correct, tensor by tensor, in their order.

    ``with_buffers``: compare running statistics and other buffers.
    """
    sizes = {
        _format_change(kind, parameter_name): number
        for parameter_name, number in reference.sizes.items()
        for kind in ("weight", "buffer")
    }
    largest = dict.fromkeys(_KINDS, 0.0)
    for name, value in reference.values.items():
        largest[_kind(name)] = max(largest[_kind(name)], _largest(value))
    differences = []
    for name in dict.fromkeys([*reference.values, *other.values]):
        if name.startswith("change of buffer") and not with_buffers:
            continue
        allowed = ALLOWED + _TIMES_ROUNDING * reference.rounding.get(name, 0.0)
        if name.startswith(_KINDS[0]) and name.endswith(" 1"):
            allowed = min(allowed, _MOST_ALLOWED)
        value, other_value = reference.values.get(name), other.values.get(name)
        if value is None or other_value is None or other_value.shape != value.shape:
            differences.append(TensorDifference(name, math.inf, math.inf, 0.0, allowed))
            continue
        # Each update rounds the whole weight, even if it changes it by very little.
        rounding = UPDATES * float(np.finfo(np.float32).eps) * sizes.get(name, 0.0) / ALLOWED
        scale = max(_largest(value), _LEAST_SCALE * largest[_kind(name)], rounding, _TINY)
        size = _largest(np.asarray(other_value, dtype=np.float64) - value)
        share = size / scale if math.isfinite(size) else math.inf
        differences.append(TensorDifference(name, share, size, scale, allowed))
    return differences


def _format_change(kind: str, name: str) -> str:
    return f"change of {kind} '{name}' after update {UPDATES}"


def _kind(name: str) -> str:
    return next(kind for kind in _KINDS if name.startswith(kind))


def _largest(value: np.ndarray) -> float:
    return float(np.abs(value).max()) if value.size else 0.0


_RATES = ("dropout", "attention_dropout", "drop_path")  # options whose layers are random on each rank
_COMMON = {
    "TRAIN.OPTIMIZER.NAME": "SGD",
    "TRAIN.BATCH_NORM": "sync",
    "TRAIN.TF32": False,
    "TRAIN.WARMUP_STEPS": None,  # every update has TRAIN.BASE_LR, also if the data are too few for the warm-up
    "TRAIN.WARMUP_EPOCHS": 0.0,
    "MODEL.RESUME": None,
    "AMP": False,
}


class _VariantSpec(NamedTuple):
    name: str
    processes: int
    batch: int
    accumulated: int

    @property
    def is_reference(self) -> bool:
        return self.processes == self.accumulated


def run(configuration: Configuration) -> None:
    """Run the self-test of SELFTEST. Nothing is written to the output folder.

    Raises:
        SystemExit: with code 1 if tensors differ.
    """
    plan = plan_processes(configuration.values.NGPUS, device=configuration.values.DEVICE)
    if plan.by_paddle_launcher:
        raise UserError("-selftest starts its own processes: run it without Paddle's launcher")
    with working_folder("selftest") as folder:
        cache = Path(configuration.values.DATA.CACHE_FOLDER or Path(configuration.values.SAVE, "data"))
        config, off = _make_deterministic(configuration.values, str(folder))
        variants = _list_variants(plan, config.DATA.BATCH_SIZE, config.NGPUS)
        for line in [
            f"selftest: {UPDATES} updates of each of these variants, float32, SGD",
            *(f"  {candidate.name}" for candidate in variants),
        ]:
            write_line(line)
        write_line(f"off, since results depend on the rank or on rounding: {', '.join(['dropout layers', *off])}")
        # An existing cache of a run is read; otherwise the cache is temporary.
        task = make_task(config)
        train = open_samples(task, "train", cache if cache.is_dir() else folder)
        results: dict[str, Any] = {}
        for number, variant in enumerate(variants):
            if variant.accumulated > 1 and results[variants[0].name].has_batch_norm:
                write_line(f"not compared: {variant.name}: batch norm has other statistics in each micro-batch")
                continue
            place = folder / str(number)
            place.mkdir()
            values = {
                "NGPUS": variant.processes,
                "DATA.BATCH_SIZE": variant.batch,
                "TRAIN.ACCUM_ITER": variant.accumulated,
            }
            perturbed = PERTURBED if variant.is_reference else 0
            arguments = (change_settings(config, values), task, train, str(place), perturbed)
            variant_plan = plan._replace(processes=variant.processes)
            launch_workers(run_variant, arguments, variant_plan, config.WATCHDOG_SECONDS, in_child=True)
            results[variant.name] = read_variant(place)
        if len(results) == 1:
            raise UserError(
                "-selftest: a single process with batch norm cannot be compared with anything; add -ngpus=2 or more, "
                "and CUDA_VISIBLE_DEVICES= in front of the command to use CPUs"
            )
        if not _compare_and_log(results, variants):
            raise SystemExit(1)


def _make_deterministic(config: RunSettings, folder: str) -> tuple[Any, list[str]]:
    """Return the configuration without options that are random on each rank, and these options."""
    rank_local, options = dict(make_task(config).traits.selftest_overrides), config.MODEL.OPTIONS
    if options:
        rank_local[OPTIONS] = {name: 0.0 if name in _RATES else value for name, value in options.items()}
    others, settings = {**_COMMON, **rank_local}, leaves(config)
    off = [
        f"{name} {settings[name]}"
        for name, value in others.items()
        if settings[name] != value and (name in rank_local or name == "AMP")
    ]
    return change_settings(config, {**others, "SAVE": folder}), off


def _list_variants(plan: ProcessPlan, batch: int, requested: int) -> list[_VariantSpec]:
    """Return the variants to compare; the reference, a single process with the whole batch, is last but one."""
    processes = plan.processes
    if processes == 1 and plan.device == "cpu" and requested == -1:
        processes = 2
    parts = max(2, processes)
    share = max(1, batch // parts)
    variants = [_VariantSpec(f"{processes} processes x {share}", processes, share, 1)] if processes > 1 else []
    variants.append(_VariantSpec(f"1 process x {share * parts}", 1, share * parts, 1))
    return [*variants, _VariantSpec(f"1 process x {share} x {parts} accumulated", 1, share, parts)]


def _compare_and_log(results: dict[str, Any], variants: list[_VariantSpec]) -> bool:
    """Log the differences, and return whether all variants agree."""
    reference = next(candidate.name for candidate in variants if candidate.is_reference)
    is_equal = True
    for variant in variants:
        if variant.name == reference or variant.name not in results:
            continue
        if results[variant.name].differing is not None:
            is_equal = False
            write_line(f"FAIL: {variant.name}: {results[variant.name].differing}")
        differences = compare_variants(results[reference], results[variant.name], with_buffers=variant.accumulated == 1)
        failed = [change for change in differences if change.share > change.allowed]
        pair = f"{variant.name} and {reference}"
        if failed:
            is_equal = False
            write_line(f"FAIL: {pair}: {len(failed)} of {len(differences)} tensors differ, first:")
            gradients = [change for change in failed if change.name.startswith("gradient")]
            for difference in dict.fromkeys([failed[0], *gradients[:1]]):
                write_line(f"  {_format_difference(difference)}")
        else:
            worst = max(differences, key=lambda difference: difference.share / difference.allowed)
            write_line(f"{pair}: {len(differences)} tensors agree; closest to its tolerance:")
            write_line(f"  {_format_difference(worst)}")
    write_line("PASS" if is_equal else "FAIL")
    return is_equal


def _format_difference(difference: TensorDifference) -> str:
    return (
        f"{difference.name}: by {difference.largest:.3g}, {difference.share:.2g} of {difference.scale:.3g} "
        f"(allowed {difference.allowed:.2g})"
    )
