"""The course of a training: the learning rate of every update, in closed form, whose only state is the number of
updates; and the epochs and the batch that follow from the size of the training set. It needs no Paddle."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Rates(NamedTuple):
    """Learning rates after the linear scaling rule."""

    base: float
    warmup_start: float
    end: float


def scaled_rates(base: float, warmup_start: float, end: float, effective_batch: int, reference_batch=None) -> Rates:
    """Apply the linear scaling rule (Goyal et al., 2017, arXiv 1706.02677): rates x effective batch / reference batch.

    Args:
        effective_batch: samples per update over all processes and accumulation steps.
        reference_batch: the batch that the rates were stated for (TRAIN.LINEAR_SCALED_LR); None leaves them alone.
    """
    factor = effective_batch / reference_batch if reference_batch else 1.0
    return Rates(base * factor, warmup_start * factor, end * factor)


class Schedule:
    """Linear warm-up, then cosine, constant, step or polynomial decay; called, the rate of any update.

    With ``u`` the update, ``w`` the warm-up updates and ``p = (u - w) / (total - w)``:

    - warm-up (``u < w``): ``warmup_start + (base - warmup_start) * u / w``
    - cosine: ``end + (base - end) * (1 + cos(pi * p)) / 2`` (Loshchilov and Hutter, 2017, arXiv 1608.03983, without
      restarts; after the last update it stays at ``end``, where Paddle's climbs again)
    - poly: ``end + (base - end) * (1 - p) ** power``
    - step: ``base * gamma ** (number of milestones reached)``
    - constant: ``base``

    Args:
        name: "cosine", "constant", "step" or "poly".
        rates: base, warm-up start and end learning rate.
        total_updates: of the whole run.
        warmup_updates: length of the warm-up.
        milestones: updates at which "step" multiplies by ``gamma``.
    """

    def __init__(
        self,
        name: str,
        rates: Rates,
        total_updates: int,
        warmup_updates: int = 0,
        milestones: Sequence[int] = (),
        gamma: float = 0.1,
        power: float = 0.9,
    ) -> None:
        self.name = name
        self.rates = rates
        self.total_updates = total_updates
        self.warmup_updates = warmup_updates
        self.milestones = tuple(milestones)
        self.gamma = gamma
        self.power = power
        self.update = 0  # made since the start of the training

    @property
    def learning_rate(self) -> float:
        """Of the update that comes next."""
        return self(self.update)

    def count_update(self) -> None:
        """Note that one more update was made."""
        self.update += 1

    def state_dict(self) -> dict[str, int]:
        """Its position; its shape comes from the configuration."""
        return {"update": self.update}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the position from ``state_dict``."""
        self.update = state["update"]

    def __call__(self, update: int) -> float:
        base, warmup_start, end = self.rates
        if update < self.warmup_updates:
            return warmup_start + (base - warmup_start) * update / self.warmup_updates
        if self.name == "constant":
            return base
        if self.name == "step":
            return base * self.gamma ** sum(update >= milestone for milestone in self.milestones)
        decay_updates = max(1, self.total_updates - self.warmup_updates)
        progress = min(1.0, (update - self.warmup_updates) / decay_updates)
        if self.name == "cosine":
            return end + (base - end) * (1.0 + math.cos(math.pi * progress)) / 2.0
        if self.name == "poly":
            return end + (base - end) * (1.0 - progress) ** self.power
        raise ValueError(f"no schedule is called {self.name!r}")


def effective_batch_size(config, processes: int) -> int:
    """Samples of one update over all processes and accumulation steps."""
    return config.DATA.BATCH_SIZE * processes * config.TRAIN.ACCUM_ITER


def describe_rates(config, processes: int) -> str:
    """The effective batch and the learning rates of a run, in one line."""
    data, train = config.DATA, config.TRAIN
    batch = effective_batch_size(config, processes)
    rates = scaled_rates(train.BASE_LR, train.WARMUP_START_LR, train.END_LR, batch, train.LINEAR_SCALED_LR)
    reference = train.LINEAR_SCALED_LR
    rule = f", TRAIN's rates x {batch / reference:g} = {batch} / LINEAR_SCALED_LR {reference}" if reference else ""
    return (
        f"effective batch {batch} = {data.BATCH_SIZE} per process x {processes} process(es) x {train.ACCUM_ITER} "
        f"accumulated; learning rate {rates.base:g} ({_course(train, rates)})" + rule
    )


def with_fitting_warmup(run, processes: int, datasets):
    """The configuration with a warm-up that is shorter than the run, where a recipe's is not.

    TRAIN.WARMUP_STEPS of a recipe counts updates of its own dataset. On a small one, or with fewer epochs, it is
    shortened as the epochs are, and to a tenth of the run at most. One that the command line sets stays.

    Args:
        run: a ``Configuration``.
        datasets: "train" is looked at, if it is there.
    """
    train = run.values.TRAIN
    if run.values.EVAL or train.WARMUP_STEPS is None or run.sources["TRAIN.WARMUP_STEPS"] == "command line":
        return run
    updates = len(datasets["train"]) // effective_batch_size(run.values, processes) * train.NUM_EPOCHS
    if train.WARMUP_STEPS < updates or not updates:
        return run
    steps = min(train.WARMUP_STEPS * train.NUM_EPOCHS // run.recipe_epochs, updates // 10)
    return run.changed(
        "TRAIN.WARMUP_STEPS",
        steps,
        f"TRAIN.WARMUP_STEPS {train.WARMUP_STEPS} ({run.sources['TRAIN.WARMUP_STEPS']}) is not shorter than the run of "
        f"{updates:,} updates: {f'shortened to {steps}' if steps else 'left out'}",
    )


def _course(train, rates: Rates) -> str:
    """The learning rate schedule in words: only what this run does."""
    others = {"constant": "constant", "step": f"times {train.LR_SCHEDULER.GAMMA:g} at each milestone"}
    end = others.get(train.LR_SCHEDULER.NAME, f"end {rates.end:g}")
    warms_up = train.WARMUP_EPOCHS if train.WARMUP_STEPS is None else train.WARMUP_STEPS
    return f"warm-up from {rates.warmup_start:g}, {end}" if warms_up else end


def schedule_of(train, updates_per_epoch: int, effective_batch: int) -> Schedule:
    """The schedule that the TRAIN section of a configuration asks for.

    Args:
        train: the TRAIN node.
        updates_per_epoch: updates of one epoch; epochs of the configuration become updates with it.
        effective_batch: samples per update.
    """
    rates = scaled_rates(train.BASE_LR, train.WARMUP_START_LR, train.END_LR, effective_batch, train.LINEAR_SCALED_LR)
    warmup = train.WARMUP_STEPS if train.WARMUP_STEPS is not None else train.WARMUP_EPOCHS * updates_per_epoch
    decay = train.LR_SCHEDULER
    return Schedule(
        decay.NAME,
        rates,
        total_updates=train.NUM_EPOCHS * updates_per_epoch,
        warmup_updates=int(warmup),
        milestones=[epoch * updates_per_epoch for epoch in decay.MILESTONES],
        gamma=decay.GAMMA,
        power=decay.POWER,
    )


# ---- epochs and batch -----------------------------------------------------------------------------------------

# An update takes a quarter of a small training set, so that an epoch has several, but no fewer than four samples, whose
# gradients would be noise.
_SHARE, _FEWEST = 4, 4


def settle(values: Any, settings: Mapping[str, Any], all_settings: Sequence[Any]) -> list[str]:
    """Decide, while the configuration is merged, between what follows from the size and what was given as a number.

    Of BATCH_SIZE and GLOBAL_BATCH_SIZE, and of NUM_EPOCHS and NUM_SAMPLES, the one that is set in a later file or on
    the command line counts; of one file the second of each pair. Until the training set is known, its size is taken
    to be the one that allows most.

    Returns:
        Notices of what does not count.
    """
    data, train = values.DATA, values.TRAIN
    notices = []
    if _is_later("DATA.BATCH_SIZE", "DATA.GLOBAL_BATCH_SIZE", all_settings):
        notices += _lost("DATA.GLOBAL_BATCH_SIZE", data.GLOBAL_BATCH_SIZE, settings["DATA.BATCH_SIZE"])
        data.GLOBAL_BATCH_SIZE = None
    if _is_later("TRAIN.NUM_EPOCHS", "TRAIN.NUM_SAMPLES", all_settings):
        notices += _lost("TRAIN.NUM_SAMPLES", train.NUM_SAMPLES, settings["TRAIN.NUM_EPOCHS"])
        train.NUM_SAMPLES = None
    if data.GLOBAL_BATCH_SIZE is not None:
        data.BATCH_SIZE = max(1, data.GLOBAL_BATCH_SIZE // train.ACCUM_ITER)
    if train.NUM_SAMPLES is not None:
        train.NUM_EPOCHS = max(train.EPOCH_LIMITS)
    return [] if values.EVAL else notices


def _is_later(name: str, other: str, all_settings: Sequence[Any]) -> bool:
    last = {setting.name: (number, setting.source) for number, setting in enumerate(all_settings)}
    if name not in last or other not in last:
        return False
    (number, source), (other_number, other_source) = last[name], last[other]
    return number > other_number and source != other_source


def _lost(name: str, value: Any, winner: Any) -> list[str]:
    return [] if value is None else [f"{winner.name} {winner.value} ({winner.place}) takes the place of {name} {value}"]


def with_fitting_batch(run: Any, processes: int, samples: int | None = None) -> Any:
    """The configuration with the BATCH_SIZE of each process that DATA.GLOBAL_BATCH_SIZE stands for, if it is set.

    Args:
        run: a ``Configuration``.
        samples: of the training set; None: not known, and large enough.
    """
    data, accumulated = run.values.DATA, run.values.TRAIN.ACCUM_ITER
    wanted = data.GLOBAL_BATCH_SIZE
    if run.values.EVAL or wanted is None:
        return run
    fitting = wanted if samples is None else min(wanted, max(samples // _SHARE, min(_FEWEST, samples)))
    own = max(1, fitting // (processes * accumulated))
    total = own * processes * accumulated
    why = f", since there are only {samples:,} training samples" if fitting < wanted else ""
    notice = f"DATA.GLOBAL_BATCH_SIZE {wanted}: an update takes {total}{why}" if total != wanted else None
    return run.changed("DATA.BATCH_SIZE", own, notice, "DATA.GLOBAL_BATCH_SIZE")


def with_fitting_epochs(run: Any, processes: int, samples: int, sample_name: str, earlier: int | None = None) -> Any:
    """The configuration with the NUM_EPOCHS that TRAIN.NUM_SAMPLES stands for, if it is set.

    They depend on the number of samples alone, not on the batch or the number of devices.

    Args:
        run: a ``Configuration`` whose batch is settled.
        sample_name: "images", for the line about it.
        earlier: epochs of the training that is resumed: they stay, even if samples were added since.
    """
    train = run.values.TRAIN
    if run.values.EVAL or train.NUM_SAMPLES is None:
        return run
    epochs = earlier or epochs_for(samples, train.NUM_SAMPLES, train.EPOCH_LIMITS)
    updates = epochs * (samples // (run.values.DATA.BATCH_SIZE * processes * train.ACCUM_ITER))
    reason = f"TRAIN.NUM_SAMPLES {train.NUM_SAMPLES:,}, EPOCH_LIMITS {' to '.join(map(str, train.EPOCH_LIMITS))}"
    if earlier:
        reason = "as before"
    said = (
        f"{samples:,} training {sample_name}: {epochs} epochs, {updates:,} updates ({reason}); -epochs=N sets another"
    )
    return run.changed("TRAIN.NUM_EPOCHS", epochs, said, "TRAIN.NUM_SAMPLES")


def epochs_for(samples: int, wanted: int, limits: Sequence[int]) -> int:
    """The fewest epochs that read ``wanted`` samples, within ``limits``."""
    least, most = limits
    return min(max(-(-wanted // max(samples, 1)), least), most)
