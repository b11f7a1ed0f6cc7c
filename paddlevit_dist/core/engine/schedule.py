"""Learning rate schedules in closed form, whose only state is the number of steps made. Needs no Paddle."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .settings import effective_batch_size

if TYPE_CHECKING:
    from ..tasks.step_types import StepPosition


class ScaledRates(NamedTuple):
    """Learning rates after the linear scaling rule: the largest, after the warm-up, the first, and the decay's end."""

    base: float
    warmup_start: float
    end: float


def scale_rates(
    base: float, warmup_start: float, end: float, effective_batch: int, reference_batch=None
) -> ScaledRates:
    """Apply the linear scaling rule (Goyal et al., 2017, arXiv 1706.02677): rates x effective batch / reference batch.

    ``reference_batch``: the batch size that the rates are stated for (TRAIN.LINEAR_SCALED_LR); None: rates are not
    scaled.
    """
    factor = effective_batch / reference_batch if reference_batch else 1.0
    return ScaledRates(base * factor, warmup_start * factor, end * factor)


class RateSchedule:
    """Linear warm-up, then cosine, constant, step or polynomial decay, or one cycle; a call returns any step's rate.

    With ``u`` the step, ``w`` the warm-up steps and ``p = (u - w) / (total - w)``:

    - warm-up (``u < w``): ``warmup_start + (base - warmup_start) * u / w``
    - cosine: ``end + (base - end) * (1 + cos(pi * p)) / 2`` (Loshchilov and Hutter, 2017, arXiv 1608.03983, without
      restarts; after the last step it stays at ``end``, where Paddle's rises again)
    - poly: ``end + (base - end) * (1 - p) ** power``
    - step: ``base * gamma ** (number of milestones reached)``; milestones are steps
    - constant: ``base``
    - onecycle, which ignores the warm-up: half a cosine from ``base / divisors[0]`` up to ``base`` at step
      ``rise * total - 1``, and half a cosine down to that start divided by ``divisors[1]`` at the last step. This is
      PyTorch's ``OneCycleLR``, with its defaults, and ``cycle_momentum=False``, after L. Smith and N. Topin,
      "Super-Convergence", 2018, arXiv 1708.07120.

    ``update`` is the number of steps made since the start of the training.
    """

    def __init__(
        self,
        name: str,
        rates: ScaledRates,
        total_updates: int,
        warmup_updates: int = 0,
        milestones: Sequence[int] = (),
        gamma: float = 0.1,
        power: float = 0.9,
        rise: float = 0.3,
        divisors: tuple[float, float] = (25.0, 1e4),
    ) -> None:
        self.name = name
        self.rates = rates
        self.total_updates = total_updates
        self.warmup_updates = warmup_updates
        self.milestones = tuple(milestones)
        self.gamma = gamma
        self.power = power
        self.rise, self.divisors = rise, divisors
        self.update = 0

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return self(self.update)

    def momentum(self, start: float, end: float) -> float:
        """Return the momentum of the next step, which rises linearly from ``start`` to ``end`` over the warm-up."""
        return start + (end - start) * min(1.0, self.update / max(1, self.warmup_updates))

    def weight_decay(self, start: float, end: float) -> float:
        """Return the weight decay of the next step, which moves from ``start`` to ``end`` by half a cosine.

        Like the learning rate it depends on the steps made, but has no warm-up (M. Caron et al., "Emerging Properties
        in Self-Supervised Vision Transformers", 2021, arXiv 2104.14294, section 3.2).
        """
        progress = min(1.0, self.update / max(1, self.total_updates))
        return end + (start - end) * (1.0 + math.cos(math.pi * progress)) / 2.0

    def second_course(self, warmup: int) -> Callable[["StepPosition"], float]:
        """Return the rate, as a function of a step's position, for parameters with a warm-up of their own.

        They wait for the end of the first warm-up, then their rate rises from 0 in ``warmup`` updates, and decays in
        those that are left.
        """
        own = copy.copy(self)
        own.rates, own.warmup_updates = self.rates._replace(warmup_start=0.0), warmup
        own.total_updates = self.total_updates - self.warmup_updates
        own.milestones = tuple(milestone - self.warmup_updates for milestone in self.milestones)
        return lambda step: own(step.update - self.warmup_updates) if step.update >= self.warmup_updates else 0.0

    def count_update(self) -> None:
        """Count one more step."""
        self.update += 1

    def state_dict(self) -> dict[str, int]:
        """Return the position; the other settings come from the configuration."""
        return {"update": self.update}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the position of a ``state_dict``."""
        self.update = state["update"]

    def __call__(self, update: int) -> float:
        """Return the learning rate of step ``update``, from 0."""
        base, warmup_start, end = self.rates
        if self.name == "onecycle":
            return self._in_cycle(base, update)
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
        raise ValueError(f"unknown schedule {self.name!r}")

    def _in_cycle(self, base: float, update: int) -> float:
        start, top, last = base / self.divisors[0], self.rise * self.total_updates - 1, self.total_updates - 1
        if update <= top and top > 0:
            return base + (start - base) * (1.0 + math.cos(math.pi * update / top)) / 2.0
        end, progress = start / self.divisors[1], min(1.0, (update - top) / (last - top))
        return end + (base - end) * (1.0 + math.cos(math.pi * progress)) / 2.0


def describe_rates(config, processes: int) -> str:
    """Format the effective batch and the learning rates of a run in one line."""
    data, train = config.DATA, config.TRAIN
    batch = effective_batch_size(config, processes)
    rates = scale_rates(train.BASE_LR, train.WARMUP_START_LR, train.END_LR, batch, train.LINEAR_SCALED_LR)
    reference = train.LINEAR_SCALED_LR
    rule = f", TRAIN's rates x {batch / reference:g} = {batch} / LINEAR_SCALED_LR {reference}" if reference else ""
    return (
        f"effective batch {batch} = {data.BATCH_SIZE} per process x {processes} process(es) x {train.ACCUM_ITER} "
        f"accumulated; learning rate {rates.base:g} ({_course(train, rates)})" + rule
    )


def _course(train, rates: ScaledRates) -> str:
    constants = {"constant": "constant", "step": f"times {train.LR_SCHEDULER.GAMMA:g} at each milestone"}
    if train.LR_SCHEDULER.NAME == "onecycle":
        first, second = train.LR_SCHEDULER.DIVISORS
        return f"one cycle from {rates.base / first:g}, end {rates.base / first / second:g}"
    end = constants.get(train.LR_SCHEDULER.NAME, f"end {rates.end:g}")
    warms_up = train.WARMUP_EPOCHS if train.WARMUP_STEPS is None else train.WARMUP_STEPS
    return f"warm-up from {rates.warmup_start:g}, {end}" if warms_up else end


def build_schedule(train, updates_per_epoch: int, effective_batch: int) -> RateSchedule:
    """Build the schedule of a configuration's TRAIN section, whose epochs have ``updates_per_epoch`` steps."""
    rates = scale_rates(train.BASE_LR, train.WARMUP_START_LR, train.END_LR, effective_batch, train.LINEAR_SCALED_LR)
    decay = train.LR_SCHEDULER
    warmup = train.WARMUP_STEPS if train.WARMUP_STEPS is not None else train.WARMUP_EPOCHS * updates_per_epoch
    return RateSchedule(
        decay.NAME,
        rates,
        total_updates=train.NUM_EPOCHS * updates_per_epoch,
        warmup_updates=0 if decay.NAME == "onecycle" else int(warmup),
        milestones=[epoch * updates_per_epoch for epoch in decay.MILESTONES],
        gamma=decay.GAMMA,
        power=decay.POWER,
        rise=decay.RISE,
        divisors=decay.DIVISORS,
    )
