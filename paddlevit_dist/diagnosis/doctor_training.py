"""Checks of ``doctor`` that try a training: its loss, whether it learns, a step on each device."""

import math
import time
from typing import Any

from ..parallel.devices import ProcessPlan
from .doctor_checks import FAILURE, OK, WARNING, Check, Checkup, Finding, seconds_since
from .doctor_data import SAMPLES, TRAINING, samples_of, task_of
from .settings import changed

_LARGEST_BATCH = 16  # of the trial: enough to see whether it learns
_UPDATES, _SECONDS = 40, 60.0
_FELL, _STAYED = 0.8, 0.97  # of the first loss
_NEAR = (0.7, 1.5)  # times what is expected: layers' initial weights prefer some classes a little
MODEL, FIRST_LOSS, STEP = "model", "loss at start", "a step"
# Nothing random, no averaging, no schedule: what is left is the model and its batch.
_OFF: dict[str, Any] = {
    "TRAIN.BATCH_NORM": "local",
    "TRAIN.MODEL_EMA": False,
    "TRAIN.ACCUM_ITER": 1,
    "TRAIN.REPEATED_AUGMENT": 1,
    "TRAIN.WARMUP_EPOCHS": 0,
    "TRAIN.WARMUP_STEPS": None,
    "TRAIN.RECOMPUTE": False,
    "TRAIN.LAST_EPOCH": 0,
    "DATA.NUM_WORKERS": 0,
    "MODEL.PRETRAINED": None,
    "MODEL.RESUME": None,
    "NGPUS": 1,
    "AMP": False,
    "TO_STATIC": False,
    "PROFILE": None,
    "EVAL": False,
}


def _in_place(checkup: Checkup, function: Any) -> Any:
    """What ``function`` returns on the first device of a run."""
    from ..parallel.launch import launch_workers

    results = []
    launch_workers(lambda: results.append(function()), (), ProcessPlan(1, checkup.uses_gpu, False, []))
    return results[0]


def _trial(checkup: Checkup) -> Any:
    from ..contracts.dataset import Chosen
    from .trial import OneBatchTraining

    def make() -> OneBatchTraining:
        task, samples = task_of(checkup), samples_of(checkup, "train")
        if checkup.found[SAMPLES].status == FAILURE:  # the others show what the model makes of them
            samples = Chosen(samples, checkup.found[SAMPLES].facts.get("usable") or range(len(samples)))
        size = min(checkup.config.DATA.BATCH_SIZE, _LARGEST_BATCH, len(samples))
        values = {**_OFF, **task.of_each_rank, "SAVE": str(checkup.folder), "DATA.BATCH_SIZE": size}
        return OneBatchTraining(changed(checkup.config, values), task, samples, checkup.folder)

    return checkup.keep("trial", lambda: _in_place(checkup, make))


def model(checkup: Checkup) -> Finding:
    """Whether the model can be built, and how many parameters it trains."""
    started = time.perf_counter()
    trial = _trial(checkup)
    facts = {"parameters": trial.parameters, "trained": trial.trained, "seconds": seconds_since(started)}
    text = f"{checkup.config.MODEL.NAME}, {trial.parameters:,} parameters"
    if not trial.trained:
        return Finding(FAILURE, f"{text}, all of them frozen", "look at TRAIN.FREEZE", facts)
    return Finding(OK, text + ("" if trial.trained == trial.parameters else f", {trial.trained:,} of them trained"),
                   facts=facts)  # fmt: skip


def weights(checkup: Checkup) -> Finding:
    """Whether MODEL.PRETRAINED can be read and fits."""
    from ..checkpoint.load import load_weights
    from ..checkpoint.weights import evaluated_weights

    settings = checkup.config.MODEL
    if settings.PRETRAINED is None:
        return Finding(OK, "none are loaded (no -pretrained)")
    samples_of(checkup, "train")  # says how many classes there are
    source, options = evaluated_weights(settings.PRETRAINED), {"minimum_loaded": settings.MINIMUM_LOADED}
    options["part"] = settings.PRETRAINED_PART
    report = _in_place(checkup, lambda: load_weights(task_of(checkup).build_model(), source, **options))
    return Finding(OK, report.summary())


def first_loss(checkup: Checkup) -> Finding:
    """The loss of untrained weights: of a classifier near ln(classes), of anything else finite."""
    trial = _trial(checkup)
    means = _in_place(checkup, trial.update)
    bad = [name for name, value in means.items() if not math.isfinite(value)]
    facts = {name: value if math.isfinite(value) else str(value) for name, value in means.items()}
    if bad:
        mend = "look for values in the data that are huge, and at IMAGENET_MEAN and _STD or VOLUMES.INTENSITY_WINDOW"
        return Finding(FAILURE, f"{bad[0]} is {means[bad[0]]} before anything was learned", mend, facts)
    expected = {name: value for name, value in task_of(checkup).expected_losses().items() if name in means}
    told = [f"{name} {means[name]:.3f}, and ln(classes) is {value:.3f}" for name, value in expected.items()] or [
        f"{name} {value:.4g}" for name, value in means.items() if name != "total"
    ]
    for name, value in expected.items():
        if not _NEAR[0] * value <= means[name] <= _NEAR[1] * value:
            mend = "an untrained model should prefer no class: look at labels, class weights and the model's last layer"
            return Finding(WARNING, f"{'; '.join(told)}: far from it", mend, facts)
    return Finding(OK, "; ".join(told), facts=facts)


def overfitting(checkup: Checkup) -> Finding:
    """Whether a few updates on one batch make its loss fall."""
    trial = _trial(checkup)
    before = checkup.found[FIRST_LOSS].facts
    # In a process that has taken the place of a crashed one, the first update is still to be made.
    first = before["total"] if "total" in before else _in_place(checkup, trial.update)["total"]
    losses = _in_place(checkup, lambda: trial.overfit(first, _UPDATES, _SECONDS))
    facts = {"first": first, "losses": [value if math.isfinite(value) else str(value) for value in losses]}
    rate = f"TRAIN.BASE_LR {checkup.config.TRAIN.BASE_LR:g}"
    what = f"one batch of {trial.size}, {len(losses)} updates at {rate}: loss from {first:.4g} to {losses[-1]:.4g}"
    if not math.isfinite(losses[-1]):
        return Finding(FAILURE, what, "lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP, or use a warm-up", facts)
    best = min(losses)
    if first > 0 and best > _STAYED * first or best >= first:
        mend = "TRAIN.BASE_LR may be far too low or too high; labels may not belong to these samples; TRAIN.FREEZE?"
        return Finding(FAILURE, f"{what}: it does not learn", mend, facts)
    if first > 0 and best > _FELL * first:
        return Finding(WARNING, f"{what}: it learns slowly", "perhaps TRAIN.BASE_LR is too low", facts)
    return Finding(OK, what, facts=facts)


def step(checkup: Checkup) -> Finding:
    """An update on all devices with the batch of the configuration: time and memory."""
    from ..parallel.launch import launch_workers
    from .trial import device_step, read_step

    folder = checkup.folder / "step"
    folder.mkdir(exist_ok=True)
    values = {
        **{name: _OFF[name] for name in ("MODEL.PRETRAINED", "MODEL.RESUME", "DATA.NUM_WORKERS", "PROFILE", "EVAL")},
        **{name: _OFF[name] for name in ("TRAIN.WARMUP_EPOCHS", "TRAIN.WARMUP_STEPS", "TRAIN.LAST_EPOCH")},
        "SAVE": str(folder),
    }
    config = changed(checkup.config, values)
    plan = ProcessPlan(checkup.processes, checkup.uses_gpu, False, [])
    arguments = (config, task_of(checkup), samples_of(checkup, "train"), str(folder))
    launch_workers(device_step, arguments, plan, checkup.config.WATCHDOG_SECONDS)
    facts = read_step(folder)
    seconds = max(rank["seconds"] for rank in facts["ranks"])
    memory = max(rank["memory_mib"] or 0 for rank in facts["ranks"])
    facts["samples_per_second"] = round(facts["samples"] / seconds, 2)
    kind = "GPU" if checkup.uses_gpu else "CPU process"
    size = f"{checkup.config.DATA.BATCH_SIZE} x {checkup.config.TRAIN.ACCUM_ITER}"
    text = (
        f"{checkup.processes} x {kind}, batch {size}: {seconds:.3g} s, {facts['samples_per_second']:.4g} "
        f"{task_of(checkup).sample_name}/s, {memory / 1024:.1f} GiB"
    )
    if not math.isfinite(facts["gradient_norm"]):
        mend = "AMP in float16 may need some updates; else lower TRAIN.BASE_LR and look at the data"
        return Finding(WARNING, f"{text}; its gradients are not finite", mend, facts)
    return Finding(OK, text, facts=facts)


CHECKS = (
    Check("weights", weights, (TRAINING,)),
    Check(MODEL, model, (TRAINING,)),
    Check(FIRST_LOSS, first_loss, (MODEL,)),
    Check("one batch", overfitting, (FIRST_LOSS,)),
    Check(STEP, step, (MODEL,), starts_processes=True),
)
