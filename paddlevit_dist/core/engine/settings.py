"""Checks and derived values, such as batch size, epochs and warm-up, of the keys in ``settings.every_run``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from yacs.config import CfgNode

from ..runtime.errors import UserError
from ..settings.every_run import RunSettings, TrainSection
from ..settings.key import Key, rows
from ..settings.key_tables import known_tables
from ..settings.table import (
    COMMAND_LINE,
    ConfigView,
    IgnoredKeys,
    KeySetting,
    KeyTable,
    get_value,
    index_keys,
    put,
)

if TYPE_CHECKING:
    from ..settings import Configuration

_KEYS = {row.name: row for row in rows(RunSettings)}
_SPLIT_NAME = re.compile(r"\w[\w.-]*")
OPTIMIZER_DEFAULTS: dict[str, dict[str, Any]] = {
    "Lion": {"BETAS": (0.9, 0.99)},
    "LAMB": {"EPS": 1e-6},
    "Muon": {"MOMENTUM": 0.95},
}
_MIN_PLAUSIBLE_MOMENTUM = 0.5  # a batch norm momentum below is probably stated in PyTorch's convention


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting]) -> list[str]:
    _drop_recipe_weights(values, settings)
    _choose_evaluated_weights(values, settings)
    for name, value in OPTIMIZER_DEFAULTS.get(values.TRAIN.OPTIMIZER.NAME, {}).items():
        if f"TRAIN.OPTIMIZER.{name}" not in settings:
            values.TRAIN.OPTIMIZER[name] = value
    notices = resolve_batch_size(values, settings, all_settings)
    return notices + shorten_epochs(values, settings, all_settings)


def _drop_recipe_weights(values: CfgNode, settings: Mapping[str, KeySetting]) -> None:
    """Ignore a recipe's published start weights in an evaluation, which loads a run's, unless the recipe evaluates."""
    model, pretrained, evaluates = values.MODEL, settings.get("MODEL.PRETRAINED"), settings.get("EVAL")
    is_from_recipe = model.PRETRAINED_REQUIRED and pretrained is not None and pretrained.source != COMMAND_LINE
    if pretrained is not None and evaluates is not None and evaluates.source == pretrained.source:
        return
    if not (values.EVAL and is_from_recipe):
        return
    from ..checkpoint.published import find_published  # few runs need the list of published weights

    if find_published(model.PRETRAINED) is not None:
        model.PRETRAINED = None


def _choose_evaluated_weights(values: CfgNode, settings: Mapping[str, KeySetting]) -> None:
    """Ignore the weights that the files of an evaluation name where its command line names others.

    The ``config.yaml`` of a run has the weights that it started from, and the checkpoint that it was resumed from.
    """
    names = ("MODEL.PRETRAINED", "MODEL.RESUME")
    typed = [name for name in names if name in settings and settings[name].source == COMMAND_LINE]
    if values.EVAL and len(typed) == 1:
        values.MODEL["RESUME" if typed == ["MODEL.PRETRAINED"] else "PRETRAINED"] = None


def check(view: ConfigView[RunSettings]) -> list[str]:
    """Return notices; raise UserError if two values contradict each other."""
    values = view.values
    pretrained, resume = values.MODEL.PRETRAINED, values.MODEL.RESUME
    if not _SPLIT_NAME.fullmatch(values.DATA.SPLIT):
        raise UserError(f"{view['DATA.SPLIT']}: expected the name of a split, such as test")
    if values.EVAL:
        if not (pretrained or resume or values.get("EXPORTED")):
            raise UserError(
                f"{view['EVAL']} and {view['MODEL.PRETRAINED']}: random weights are never evaluated; name a checkpoint "
                "with -pretrained=PATH"
            )
        if pretrained and resume not in (None, "auto"):  # config.yaml of a run that was resumed says auto
            raise UserError(
                f"{view['MODEL.PRETRAINED']} and {view['MODEL.RESUME']}: an evaluation takes one checkpoint"
            )
        return []
    return _check_training(view)


def _check_training(view: ConfigView[RunSettings]) -> list[str]:
    values, train = view.values, view.values.TRAIN
    pretrained, resume = values.MODEL.PRETRAINED, values.MODEL.RESUME
    if values.DATA.SPLIT != "val":
        raise UserError(f"{view['DATA.SPLIT']}: training evaluates on val; add -eval or remove -split")
    if values.SAVE_PREDICTIONS:
        raise UserError(
            f"{view['SAVE_PREDICTIONS']}: only an evaluation writes predictions; add -eval or remove SAVE_PREDICTIONS"
        )
    if values.TO_STATIC and train.RECOMPUTE:
        raise UserError(
            f"{view['TO_STATIC']} and {view['TRAIN.RECOMPUTE']}: a compiled model stores all activations for its "
            "backward pass; set one of them to False"
        )
    _check_epochs(train, view)
    _check_learning_rate(train, view)
    notices = []
    if pretrained and resume:
        notices.append(f"{view['MODEL.RESUME']} wins over {view['MODEL.PRETRAINED']} if it finds a checkpoint")
    _check_momentum(train, view)
    if train.WEIGHT_DECAY_END and not train.WEIGHT_DECAY:
        raise UserError(
            f"{view['TRAIN.WEIGHT_DECAY_END']} and {view['TRAIN.WEIGHT_DECAY']}: a factor of 0 never grows; set "
            "TRAIN.WEIGHT_DECAY to a number above 0"
        )
    if train.LORA.RANK and not (pretrained or resume):
        raise UserError(
            f"{view['TRAIN.LORA.RANK']}: it trains a few values for frozen weights; name these with -pretrained=WEIGHTS"
        )
    if train.LORA.RANK and values.TO_STATIC:
        raise UserError(
            f"{view['TRAIN.LORA.RANK']} and {view['TO_STATIC']}: compiled models take no such matrices; set one of "
            "them to 0 or False"
        )
    momentum = train.BATCH_NORM_MOMENTUM
    if momentum is not None and momentum < _MIN_PLAUSIBLE_MOMENTUM:
        notices.append(
            f"{view['TRAIN.BATCH_NORM_MOMENTUM']}: each step keeps only {momentum:.3g} of the running statistics; "
            "PyTorch's momentum is 1 minus this value: its 0.02 is 0.98 here"
        )
    return notices


def _check_epochs(train: TrainSection, view: ConfigView[RunSettings]) -> None:
    if train.WARMUP_STEPS is not None and train.WARMUP_EPOCHS > 0:
        raise UserError(
            f"{view['TRAIN.WARMUP_STEPS']} and {view['TRAIN.WARMUP_EPOCHS']}: "
            "keep one: set WARMUP_STEPS to None or WARMUP_EPOCHS to 0"
        )
    if train.EPOCH_LIMITS[0] > train.EPOCH_LIMITS[1]:
        raise UserError(f"{view['TRAIN.EPOCH_LIMITS']}: expected the smaller number first")
    if train.NUM_SAMPLES is not None and train.WARMUP_EPOCHS >= train.EPOCH_LIMITS[0]:
        raise UserError(f"{view['TRAIN.WARMUP_EPOCHS']}: expected fewer than {view['TRAIN.EPOCH_LIMITS']}")
    if train.WARMUP_EPOCHS >= train.NUM_EPOCHS:
        raise UserError(f"{view['TRAIN.WARMUP_EPOCHS']}: expected fewer than {view['TRAIN.NUM_EPOCHS']}")
    if train.LAST_EPOCH >= train.NUM_EPOCHS:
        epochs = view["TRAIN.NUM_EPOCHS"]
        raise UserError(f"{view['TRAIN.LAST_EPOCH']}: expected fewer than {epochs}, or nothing is left to train")
    if train.STOP_AFTER_EPOCH is not None and train.STOP_AFTER_EPOCH > train.NUM_EPOCHS:
        raise UserError(f"{view['TRAIN.STOP_AFTER_EPOCH']}: expected at most {view['TRAIN.NUM_EPOCHS']}")


def _check_momentum(train: TrainSection, view: ConfigView[RunSettings]) -> None:
    optimizer = train.OPTIMIZER
    if optimizer.NAME == "SGD" and optimizer.DAMPENING:
        for name in ("NESTEROV", "WARMUP_MOMENTUM"):
            if getattr(optimizer, name) not in (False, None):
                raise UserError(
                    f"{view[f'TRAIN.OPTIMIZER.{name}']} and {view['TRAIN.OPTIMIZER.DAMPENING']}: SGD takes one of "
                    "them; remove the other"
                )
    if optimizer.WARMUP_MOMENTUM is not None and optimizer.WARMUP_MOMENTUM > optimizer.MOMENTUM:
        raise UserError(
            f"{view['TRAIN.OPTIMIZER.WARMUP_MOMENTUM']}: expected at most {view['TRAIN.OPTIMIZER.MOMENTUM']}: the "
            "momentum rises to it"
        )


def _check_learning_rate(train: TrainSection, view: ConfigView[RunSettings]) -> None:
    schedule = train.LR_SCHEDULER.NAME
    if (train.WARMUP_EPOCHS or train.WARMUP_STEPS) and train.WARMUP_START_LR > train.BASE_LR:
        raise UserError(
            f"{view['TRAIN.WARMUP_START_LR']}: expected at most {view['TRAIN.BASE_LR']}: a warm-up rises to it"
        )
    if schedule in ("cosine", "poly") and train.END_LR > train.BASE_LR:
        raise UserError(f"{view['TRAIN.END_LR']}: expected at most {view['TRAIN.BASE_LR']}: {schedule} falls from it")
    if schedule == "step":
        milestones = train.LR_SCHEDULER.MILESTONES
        if not milestones or milestones != sorted(set(milestones)):
            raise UserError(
                f"{view['TRAIN.LR_SCHEDULER.MILESTONES']}: expected rising epochs for step, such as [30, 60]"
            )


_WARMUP_KEYS = (
    *("TRAIN.WARMUP_EPOCHS", "TRAIN.WARMUP_STEPS", "TRAIN.WARMUP_START_LR"),
    "TRAIN.OPTIMIZER.WARMUP_MOMENTUM",
)
_READ_BY = (  # keys, the key that decides whether they are read, and its values with which they are
    (("TRAIN.OPTIMIZER.EPS",), "TRAIN.OPTIMIZER.NAME", ("AdamW", "Adam", "LAMB", "Muon")),
    (("TRAIN.OPTIMIZER.BETAS",), "TRAIN.OPTIMIZER.NAME", ("AdamW", "Adam", "Lion", "LAMB", "Muon")),
    (("TRAIN.OPTIMIZER.MOMENTUM", "TRAIN.OPTIMIZER.WARMUP_MOMENTUM"), "TRAIN.OPTIMIZER.NAME", ("SGD", "Muon")),
    (("TRAIN.OPTIMIZER.DAMPENING", "TRAIN.OPTIMIZER.NESTEROV"), "TRAIN.OPTIMIZER.NAME", ("SGD",)),
    (("TRAIN.LR_SCHEDULER.MILESTONES", "TRAIN.LR_SCHEDULER.GAMMA"), "TRAIN.LR_SCHEDULER.NAME", ("step",)),
    (("TRAIN.LR_SCHEDULER.POWER",), "TRAIN.LR_SCHEDULER.NAME", ("poly",)),
    (("TRAIN.LR_SCHEDULER.RISE", "TRAIN.LR_SCHEDULER.DIVISORS"), "TRAIN.LR_SCHEDULER.NAME", ("onecycle",)),
    (("TRAIN.END_LR",), "TRAIN.LR_SCHEDULER.NAME", ("cosine", "poly")),
    (_WARMUP_KEYS, "TRAIN.LR_SCHEDULER.NAME", ("cosine", "constant", "step", "poly")),
)


def join_words(words: Sequence[str]) -> str:
    """Join words by commas and a last "and"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


_NEEDS = (  # keys, the keys that make a run read them (one is enough), and what they are for
    (("TRAIN.MIN_IMPROVEMENT",), ("TRAIN.PATIENCE",), "early stopping"),
    (("TRAIN.GRAD_CLIP_MODE",), ("TRAIN.GRAD_CLIP",), "clipped gradients"),
    (("EVALUATION.RESAMPLES",), ("EVALUATION.INTERVAL",), "confidence intervals"),
    (("TRAIN.LORA.ALPHA", "TRAIN.LORA.TARGETS"), ("TRAIN.LORA.RANK",), "matrices of low rank"),
    (("TRAIN.MODEL_EMA_DECAY", "TRAIN.MODEL_EMA_WARMUP"), ("TRAIN.MODEL_EMA",), "the averaged weights"),
    (("AMP_DTYPE", "AMP_LEVEL"), ("AMP", "EVAL_AMP"), "mixed precision"),
)


def find_unused(view: ConfigView[RunSettings]) -> Iterator[IgnoredKeys]:
    """Yield the keys that a run with these values ignores."""
    values, train = view.values, view.values.TRAIN
    for names, chooser, readers in _READ_BY:
        if get_value(values, chooser) not in readers:
            yield IgnoredKeys(names, chooser, f"it is for {join_words(readers)}, and {{}}")
    if train.OPTIMIZER.NAME == "SGD" and not train.OPTIMIZER.MOMENTUM:
        names = ("TRAIN.OPTIMIZER.DAMPENING", "TRAIN.OPTIMIZER.NESTEROV")
        yield IgnoredKeys(names, "TRAIN.OPTIMIZER.MOMENTUM", "it is for the momentum of SGD, and {}")
    if not values.EVALUATION.INTERVAL and not values.get("PER_SAMPLE"):  # its table has a column of groups
        yield IgnoredKeys(("EVALUATION.GROUP",), "EVALUATION.INTERVAL", "it is for confidence intervals, and {}")
    if not values.MODEL.PRETRAINED and not (values.EVAL and values.MODEL.RESUME):
        has_part = values.MODEL.get("BACKBONE_PRETRAINED") is not None
        names = ("MODEL.MIN_LOADED_FRACTION", *(() if has_part else ("MODEL.PRETRAINED_PART",)))
        yield IgnoredKeys(names, "MODEL.PRETRAINED", "no such weights are loaded: {}")
    if _is_family_alone(view):
        yield IgnoredKeys(("MODEL.TYPE",), "MODEL.NAME", "{} is the network")
    yield from _find_unused_schedule(view)
    for names, needed, purpose in _NEEDS:
        if not any(get_value(values, name) for name in needed):
            yield IgnoredKeys(names, needed[0], f"it is for {purpose}, and {{}}")


def _find_unused_schedule(view: ConfigView[RunSettings]) -> Iterator[IgnoredKeys]:
    values, train = view.values, view.values.TRAIN
    if train.PATIENCE and train.NUM_SAMPLES is None and not can_stop_early(values):
        names = ("TRAIN.PATIENCE", "TRAIN.MIN_IMPROVEMENT")
        yield IgnoredKeys(names, "TRAIN.NUM_EPOCHS", f"{_format_evaluations(values)} end before: {{}}")
    if "TRAIN.NUM_SAMPLES" not in view:
        yield IgnoredKeys(
            ("TRAIN.EPOCH_LIMITS",), "TRAIN.NUM_SAMPLES", "it limits the epochs that NUM_SAMPLES gives, and {}"
        )
    if not (train.WARMUP_EPOCHS or train.WARMUP_STEPS):
        steps = "TRAIN.WARMUP_EPOCHS" if train.WARMUP_STEPS is None else "TRAIN.WARMUP_STEPS"
        names = ("TRAIN.WARMUP_START_LR", "TRAIN.OPTIMIZER.WARMUP_MOMENTUM")
        yield IgnoredKeys(names, steps, "there is no warm-up: {}")


def _is_family_alone(view: ConfigView[RunSettings]) -> bool:
    """Return whether MODEL.TYPE was set, but not with MODEL.NAME as in PaddleViT's files, whose clones read both."""
    kind, name = (view.settings.get(f"MODEL.{key}") for key in ("TYPE", "NAME"))
    if kind is None or view.values.MODEL.NAME.startswith("paddlevit:"):
        return False
    return name is None or (name.source != kind.source and (kind.source == COMMAND_LINE or name.is_base))


def can_stop_early(config: RunSettings) -> bool:
    """Return whether TRAIN.PATIENCE evaluations may pass between the first, always an improvement, and the last."""
    return config.TRAIN.PATIENCE <= _count_evaluations(config) - 2


def _count_evaluations(config: RunSettings) -> int:
    return -(-config.TRAIN.NUM_EPOCHS // config.VALIDATE_FREQ) - config.TRAIN.LAST_EPOCH // config.VALIDATE_FREQ


def _format_evaluations(config: RunSettings) -> str:
    number = _count_evaluations(config)
    return f"{number} evaluation{'s' if number > 1 else ''} (VALIDATE_FREQ {config.VALIDATE_FREQ})"


TABLE = KeyTable(
    keys=tuple(_KEYS.values()),
    resolve_defaults=_complete,
    check=check,
    find_ignored=find_unused,
    renamed_values={
        ("TRAIN.LR_SCHEDULER.NAME", "warmupcosine"): "cosine",
        ("TRAIN.OPTIMIZER.NAME", "adamwdl"): "AdamW",  # with TRAIN.LAYER_DECAY
    },
    ignored_keys={
        "TAG": "runs are distinguished by their output folder",
        "LOCAL_RANK": "each process knows its rank",
        "TRAIN.MODEL_EMA_FORCE_CPU": "averaged weights are on the device",
    },
    former=(
        Key(
            "TRAIN.CHANNELS_LAST",
            False,
            "bool",
            "remove it from the file (Paddle transposes around each convolution then: ResNet-50 computed 1,661 instead "
            "of 2,582 images/s on an H200)",
            training_only=True,
            effect="neutral",
        ),
        Key(
            "TRAIN.PIN_CORES",
            None,
            "text",
            "remove it from the file; taskset or srun --cpu-bind give processes separate cores",
            optional=True,
            training_only=True,
            effect="neutral",
        ),
    ),
)


# A small training set is split into four updates, so that an epoch has several, but an update takes at least four
# samples: the gradients of fewer would be noise.
_SHARE, _FEWEST = 4, 4


def resolve_batch_size(
    values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting]
) -> list[str]:
    """Choose, while the configuration is merged, between values derived from sizes and values set as numbers.

    Of BATCH_SIZE and GLOBAL_BATCH_SIZE, and of NUM_EPOCHS and NUM_SAMPLES, the one in a later file or on the command
    line counts; within one file, the second. Until the training set is known, it is assumed to be large enough for the
    maximum. Returns notices of overridden values.
    """
    data, train = values.DATA, values.TRAIN
    notices = []
    if _is_later("DATA.BATCH_SIZE", "DATA.GLOBAL_BATCH_SIZE", all_settings):
        notices += _report_override("DATA.GLOBAL_BATCH_SIZE", data.GLOBAL_BATCH_SIZE, settings["DATA.BATCH_SIZE"])
        data.GLOBAL_BATCH_SIZE = None
    if _is_later("TRAIN.NUM_EPOCHS", "TRAIN.NUM_SAMPLES", all_settings):
        notices += _report_override("TRAIN.NUM_SAMPLES", train.NUM_SAMPLES, settings["TRAIN.NUM_EPOCHS"])
        train.NUM_SAMPLES = None
    if data.GLOBAL_BATCH_SIZE is not None:
        data.BATCH_SIZE = max(1, data.GLOBAL_BATCH_SIZE // train.ACCUM_ITER)
    if train.NUM_SAMPLES is not None:
        train.NUM_EPOCHS = max(train.EPOCH_LIMITS)
    return [] if values.EVAL else notices


def _is_later(name: str, other: str, all_settings: Sequence[KeySetting]) -> bool:
    last = {setting.name: (position, setting.source) for position, setting in enumerate(all_settings)}
    if name not in last or other not in last:
        return False
    (number, source), (other_number, other_source) = last[name], last[other]
    return number > other_number and source != other_source


def _report_override(name: str, value: object, winner: KeySetting) -> list[str]:
    return [] if value is None else [f"{winner.name} {winner.value} ({winner.origin}) replaces {name} {value}"]


def shorten_epochs(
    values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting]
) -> list[str]:
    """Shorten what a recipe counts in epochs if other settings made the run no longer than it; return notices.

    These are the warm-up, milestones, and epochs that differ from the rest: each in proportion, so that a short run has
    all parts of the recipe's. ``values`` are changed in place; ``settings`` are those that count, ``all_settings`` also
    overridden ones, in order.
    """
    train, length = values.TRAIN, settings.get("TRAIN.NUM_EPOCHS")
    if values.EVAL or length is None:
        return []
    key = _KEYS["TRAIN.NUM_EPOCHS"]
    others = [key.parse(s.value) for s in all_settings if s.name == key.name and s.source != length.source]
    recipe_epochs = others[-1] if others else key.default
    if "TRAIN.NUM_SAMPLES" in settings:
        recipe_epochs = min(train.EPOCH_LIMITS)
    notices = []
    for row in index_keys(known_tables(values.TASK)).values():
        part = settings.get(row.name)
        if row.counts != "epochs" or part is None or part.source in (COMMAND_LINE, length.source):
            continue  # it is the default, was chosen for this run, or was set with the run's length
        before = get_value(values, row.name)
        numbers = before if row.many else [before]
        if not numbers or not train.NUM_EPOCHS <= numbers[-1] < recipe_epochs:
            continue
        shares = [number / recipe_epochs * train.NUM_EPOCHS for number in numbers]
        if row.kind == "int":
            least = row.within.low if row.within else 0
            shares = sorted({max(least, int(share)) for share in shares})
        else:
            shares = [round(share, 4) for share in shares]
        put(values, row.name, shares if row.many else shares[0])
        shortened = ", ".join(f"{number:g}" for number in shares)
        notices.append(
            f"{row.name} {before} ({part.origin}) is not shorter than the run, TRAIN.NUM_EPOCHS {train.NUM_EPOCHS} "
            f"({length.origin}): shortened in proportion, from {', '.join(map(str, numbers))} of {recipe_epochs} to "
            f"{shortened} of {train.NUM_EPOCHS}"
        )
    return notices


def effective_batch_size(config: RunSettings, processes: int) -> int:
    """Return the samples of one update over all processes and accumulation steps."""
    return config.DATA.BATCH_SIZE * processes * config.TRAIN.ACCUM_ITER


def resolve_process_batch(run: "Configuration", processes: int, samples: int | None = None) -> "Configuration":
    """Return the configuration with the BATCH_SIZE of each process that follows from DATA.GLOBAL_BATCH_SIZE, if set.

    Without ``samples``, the training set is assumed to have enough.
    """
    data, accumulated = run.values.DATA, run.values.TRAIN.ACCUM_ITER
    requested = data.GLOBAL_BATCH_SIZE
    if run.values.EVAL or requested is None:
        return run
    fitting = requested if samples is None else min(requested, max(samples // _SHARE, min(_FEWEST, samples)))
    batch_size = max(1, fitting // (processes * accumulated))
    total = batch_size * processes * accumulated
    reason = f", since there are only {samples:,} training samples" if fitting < requested else ""
    notice = f"DATA.GLOBAL_BATCH_SIZE {requested}: an update takes {total}{reason}" if total != requested else None
    return run.changed("DATA.BATCH_SIZE", batch_size, notice, "DATA.GLOBAL_BATCH_SIZE")


def resolve_epochs(
    run: "Configuration", processes: int, samples: int, sample_name: str, earlier: int | None = None
) -> "Configuration":
    """Return the configuration with the NUM_EPOCHS that follows from TRAIN.NUM_SAMPLES, if set.

    They depend on the number of samples alone, not on the batch (which must be resolved) or the number of devices.
    ``earlier``: epochs of the run that is resumed: unchanged, even if samples were added since.
    """
    train = run.values.TRAIN
    if run.values.EVAL or train.NUM_SAMPLES is None:
        return run
    epochs = earlier or compute_epochs(samples, train.NUM_SAMPLES, train.EPOCH_LIMITS)
    updates = epochs * (samples // (run.values.DATA.BATCH_SIZE * processes * train.ACCUM_ITER))
    reason = f"TRAIN.NUM_SAMPLES {train.NUM_SAMPLES:,}, EPOCH_LIMITS {' to '.join(map(str, train.EPOCH_LIMITS))}"
    if earlier:
        reason = "as before"
    notice = (
        f"{samples:,} training {sample_name}: {epochs} epochs, {updates:,} updates ({reason}); -epochs=N sets another"
    )
    run = run.changed("TRAIN.NUM_EPOCHS", epochs, notice, "TRAIN.NUM_SAMPLES")
    if train.PATIENCE and not can_stop_early(run.values):
        reason = f"{_format_evaluations(run.values)} end before"
        run.notices.append(f"TRAIN.PATIENCE {train.PATIENCE}: no effect: {reason}: TRAIN.NUM_EPOCHS {epochs}")
    return run


def compute_epochs(samples: int, num_samples: int, limits: Sequence[int]) -> int:
    """Return the fewest epochs that read ``num_samples`` samples, within ``limits``."""
    least, most = limits
    return min(max(-(-num_samples // max(samples, 1)), least), most)


def shorten_warmups(
    run: "Configuration", processes: int, datasets: Mapping[str, Any], earlier: Mapping[str, Any] = MappingProxyType({})
) -> "Configuration":
    """Return the configuration with warm-ups that end before the run does, if a recipe's do not.

    A recipe's TRAIN.WARMUP_STEPS and BACKBONE_WARMUP_STEPS, which begins at the end of it, count updates of its
    dataset. On a small dataset, or with fewer epochs, one is shortened like the epochs, and to at most a tenth of the
    run. A value from the command line is unchanged, and so is that of ``earlier``, the section TRAIN of the run that is
    resumed.
    """
    train = run.values.TRAIN
    per_epoch = len(datasets["train"]) // effective_batch_size(run.values, processes)
    updates = per_epoch * train.NUM_EPOCHS
    end = 0 if train.WARMUP_STEPS is not None else train.WARMUP_EPOCHS * per_epoch
    for row in index_keys(known_tables(run.values.TASK)).values():
        steps = get_value(run.values, row.name) if row.counts == "updates" else None
        if steps is None or not updates:
            continue
        source = run.sources[row.name]
        if end + steps >= updates and steps != earlier.get(row.name.removeprefix("TRAIN.")):
            after = f" after the {end:g} of the warm-up before it" if end else ""
            problem = f"{row.name} {steps}{after} ({source}) is not shorter than the run of {updates:,} updates"
            if source != COMMAND_LINE:
                steps = min(steps * train.NUM_EPOCHS // run.recipe_epochs, updates // 10)
                kept = None if row.within and steps not in row.within else steps
                run = run.changed(row.name, kept, f"{problem}: {f'shortened to {steps}' if steps else 'no warm-up'}")
            elif row.name != "TRAIN.WARMUP_STEPS":  # that is refused with the schedule
                run = run.changed(row.name, steps, f"{problem}: it never ends", source)
        end += steps
    return run
