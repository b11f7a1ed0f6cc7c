"""Check of ``doctor`` that makes updates with one batch on all devices: the loss falls, and what an update costs."""

import contextlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...core.engine.step import TrainStep
from ...core.registry.required_methods import is_builtin
from ...core.runtime import device_kinds
from ...core.settings.every_run import RunSettings
from ...core.tasks.aspects import get_aspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.loss_checks import has_own_loss
from ...core.tasks.protocols import Checkable
from ...core.tasks.step_types import StepPosition
from ...core.tasks.task import Task
from .doctor_checks import DATA, FAILURE, OK, WARNING, CheckContext, CheckResult, DoctorCheck
from .settings import change_settings

_UPDATES, _SECONDS = 20, 30.0
_COMPARED = 5  # updates with captured passes, and without
_STAYED = 0.97  # share of the first loss above which the model has not learned
_NEAR = (0.7, 1.5)  # times the expected loss: initial weights slightly prefer some classes
# With these values the first loss depends on the model and its batch only.
_OFF: dict[str, Any] = {
    **{"TRAIN.WARMUP_EPOCHS": 0, "TRAIN.WARMUP_STEPS": None, "TRAIN.LAST_EPOCH": 0, "DATA.NUM_WORKERS": 0},
    **{"MODEL.PRETRAINED": None, "MODEL.RESUME": None, "PROFILE": None, "EVAL": False},
}


def check_step(context: CheckContext) -> CheckResult:
    """Check that the loss falls in some updates on all devices with one batch, and measure time and memory.

    The first loss of an untrained classifier has to be near ln(classes).
    """
    from ...core.launch.spawn import launch_workers

    config, plan = change_settings(context.config, {**_OFF, "SAVE": str(context.folder)}), context.plan
    target = context.folder / "step.json"
    arguments = (config, context.task, context.samples["train"], str(target))
    launch_workers(run_device_steps, arguments, plan, config.WATCHDOG_SECONDS, in_child=True)
    checkable = get_aspect(context.task, Checkable)
    is_known = checkable and not (has_own_loss(context.task) and is_builtin(type(checkable).expected_losses))
    expected = checkable.expected_losses() if checkable and is_known else {}
    result = judge_steps(json.loads(target.read_bytes()), expected)
    noun = device_kinds.get_kind(plan.device).noun
    about = f"{plan.processes} x {noun}, batch {config.DATA.BATCH_SIZE} x {config.TRAIN.ACCUM_ITER}"
    return result._replace(text=f"{about}: {result.text}")


def judge_steps(facts: dict[str, Any], expected: dict[str, float]) -> CheckResult:
    """Judge whether a model has learned, from facts of ``measure_steps`` and the losses expected of the first step."""
    losses = facts["losses"]
    first = [f"{name} {value:.4g} at start" for name, value in facts["first"].items() if value is not None]
    first += [f"ln(classes) is {value:.4g}" for name, value in expected.items() if name in facts["first"]]
    text = (
        f"{', '.join(first)}; after {len(losses) - 1} updates with this batch {losses[-1]:.4g}; "
        f"{facts['seconds']:.3g} s an update, {facts['memory_mib'] / 1024:.1f} GiB"
    )
    captured = facts.get("captured", {})
    text += f"; {captured['said']}" if captured else ""
    if "seconds" in captured:
        text += f": {captured['seconds']:.3g} s an update, {captured['plain_seconds']:.3g} s without"
    if not math.isfinite(losses[0]):
        fix = "check the data for huge values, and IMAGENET_MEAN and IMAGENET_STD or VOLUMES.INTENSITY_WINDOW"
        return CheckResult(FAILURE, text, fix)
    if not math.isfinite(losses[-1]):
        return CheckResult(FAILURE, text, "lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP, or use a warm-up")
    is_trained = facts["trained"] > 0.5  # a model that is mostly frozen learns little, as its weights are random here
    if losses[0] > 0 and is_trained and min(losses[1:]) > _STAYED * losses[0]:
        fix = "the model does not learn: TRAIN.BASE_LR may be far too low or too high; check labels and TRAIN.FREEZE"
        return CheckResult(FAILURE, text, fix)
    if any(
        not _NEAR[0] * value <= facts["first"].get(name, value) <= _NEAR[1] * value for name, value in expected.items()
    ):
        fix = "far from ln(classes): check labels, class weights and the model's last layer"
        return CheckResult(WARNING, text, fix)
    if captured and not captured.get("seconds", math.inf) < captured.get("plain_seconds", math.inf):
        return CheckResult(WARNING, text, "TRAIN.CAPTURE gains nothing here: remove it")
    return CheckResult(OK, text)


def run_device_steps(config: RunSettings, task: Task, dataset: TransformedDataset, target: str) -> None:
    """Train on the first batch, and write losses, seconds and memory to ``target``. Every rank must call this."""
    from ...core.distributed import is_main
    from .selftest import build_silent_trainer

    facts = measure_steps(build_silent_trainer(config, task, dataset, Path(target).parent), config)
    if is_main():
        Path(target).write_bytes(json.dumps(facts).encode())


def measure_steps(training: Any, config: RunSettings, clock: Callable[[], float] = time.perf_counter) -> dict[str, Any]:
    """Make updates with the first batch, and return facts as JSON has them. Every rank must call this.

    Facts: ``losses`` of all updates, means over ranks, and the ``first`` ones by term; the fewest ``seconds`` of an
    update of this rank; the most ``memory_mib`` of a rank; the ``trained`` share of parameters; with TRAIN.CAPTURE,
    ``captured``, see ``_compare_captured``.
    """
    from ...core.distributed import all_gather
    from ...core.engine import gpu_memory
    from ...core.engine.step import accumulation_groups
    from ...core.logging.meters import memory_mib

    training.model.train()
    with contextlib.closing(training.loader.epochs(1, 1)) as batches:
        group = next(accumulation_groups(batches, config.TRAIN.ACCUM_ITER, 1))
    losses: list[float] = []
    began, first = clock(), {}

    def update() -> float:
        """Make an update, store its loss, and return its seconds."""
        started = clock()
        position = StepPosition(1, len(losses), 100, epochs_left=config.TRAIN.NUM_EPOCHS - 1)
        with gpu_memory.explain_memory(gpu_memory.advise_training(config)):
            outputs = training.step([dict(batch) for batch in group], position, config.TRAIN.BASE_LR)
        means = {name: float(term.sum) / max(float(term.count), 1) for name, term in outputs[0].items() if term.weight}
        gathered = all_gather((means, sum(outputs[0][name].weight * mean for name, mean in means.items())))
        losses.append(float(np.mean([total for _, total in gathered])))
        if len(losses) == 1:
            first.update({name: float(np.mean([terms[name] for terms, _ in gathered])) for name in means})
        return clock() - started

    seconds = []
    captures = training.step.captured is not None
    least = 3 if captures else 2  # passes are captured from the second update on
    while len(losses) < least or (len(losses) <= _UPDATES and losses[-1] > losses[0] / 2):
        seconds.append(update())
        if max(all_gather(clock() - began)) > _SECONDS and len(losses) >= least:
            break
    captured = {"captured": _compare_captured(training.step, update)} if captures else {}
    memory = max(all_gather(memory_mib() or 0.0))
    parameters = training.model.parameters()
    trained = sum(p.size for p in parameters if not p.stop_gradient) / sum(p.size for p in parameters)
    costs = {"seconds": min(seconds), "memory_mib": memory, **captured}
    return {"losses": losses, "first": first, "trained": trained, **costs}


def _compare_captured(step: TrainStep, update: Callable[[], float]) -> dict[str, Any]:
    """Return what captured passes ``said`` of themselves and, if they are used, ``seconds`` and ``plain_seconds``.

    These are the fewest of an update. Captured updates come first: without a graph gradients do not keep their memory.
    Every rank must call this.
    """
    captured = step.captured
    if captured is None or not captured.is_on:
        return {"said": "passes are not captured" if captured is None or not captured.said else captured.said}
    times = {"seconds": min(update() for _ in range(_COMPARED))}
    step.captured = None
    times["plain_seconds"] = min(update() for _ in range(_COMPARED))
    return {"said": captured.said, **times}


UPDATE_CHECK = DoctorCheck("a step", check_step, (DATA,))
