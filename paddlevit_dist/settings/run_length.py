"""The course of a training as far as it follows from other settings and from the size of the training set: batch,
epochs and warm-up."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yacs.config import CfgNode

from .every_run import RunSettings
from .key import COMMAND_LINE, Key, KeySetting

if TYPE_CHECKING:
    from .merge import Configuration

# An update takes a quarter of a small training set, so that an epoch has several, but no fewer than four samples, whose
# gradients would be noise.
_SHARE, _FEWEST = 4, 4


def resolve_batch_size(
    values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting]
) -> list[str]:
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
        notices += _find_lost("DATA.GLOBAL_BATCH_SIZE", data.GLOBAL_BATCH_SIZE, settings["DATA.BATCH_SIZE"])
        data.GLOBAL_BATCH_SIZE = None
    if _is_later("TRAIN.NUM_EPOCHS", "TRAIN.NUM_SAMPLES", all_settings):
        notices += _find_lost("TRAIN.NUM_SAMPLES", train.NUM_SAMPLES, settings["TRAIN.NUM_EPOCHS"])
        train.NUM_SAMPLES = None
    if data.GLOBAL_BATCH_SIZE is not None:
        data.BATCH_SIZE = max(1, data.GLOBAL_BATCH_SIZE // train.ACCUM_ITER)
    if train.NUM_SAMPLES is not None:
        train.NUM_EPOCHS = max(train.EPOCH_LIMITS)
    return [] if values.EVAL else notices


def _is_later(name: str, other: str, all_settings: Sequence[KeySetting]) -> bool:
    last = {setting.name: (number, setting.source) for number, setting in enumerate(all_settings)}
    if name not in last or other not in last:
        return False
    (number, source), (other_number, other_source) = last[name], last[other]
    return number > other_number and source != other_source


def _find_lost(name: str, value: Any, winner: KeySetting) -> list[str]:
    return [] if value is None else [f"{winner.name} {winner.value} ({winner.place}) takes the place of {name} {value}"]


def resolve_warmup(
    values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting], key: Key
) -> list[str]:
    """A recipe's warm-up keeps its share of the run if other settings made the run no longer than the warm-up.

    Args:
        key: TRAIN.NUM_EPOCHS.
    Returns:
        A notice, if it was shortened.
    """
    train = values.TRAIN
    warmup, epochs = settings.get("TRAIN.WARMUP_EPOCHS"), settings.get("TRAIN.NUM_EPOCHS")
    if values.EVAL or train.WARMUP_EPOCHS < train.NUM_EPOCHS or warmup is None or epochs is None:
        return []
    if warmup.source in (COMMAND_LINE, epochs.source):  # somebody has set both, or just this one
        return []
    others = [key.parse(s.value) for s in all_settings if s.name == key.name and s.source != epochs.source]
    recipe_epochs = others[-1] if others else key.default
    if "TRAIN.NUM_SAMPLES" in settings:
        recipe_epochs = min(train.EPOCH_LIMITS)
    before = train.WARMUP_EPOCHS
    if before >= recipe_epochs:
        return []
    train.WARMUP_EPOCHS = round(before / recipe_epochs * train.NUM_EPOCHS, 4)
    return [
        f"TRAIN.WARMUP_EPOCHS {before} ({warmup.place}) is not shorter than the run, TRAIN.NUM_EPOCHS "
        f"{train.NUM_EPOCHS} ({epochs.place}): shortened in proportion, from {before} of {recipe_epochs} to "
        f"{train.WARMUP_EPOCHS:g} of {train.NUM_EPOCHS}"
    ]


def effective_batch_size(config: RunSettings, processes: int) -> int:
    """Samples of one update over all processes and accumulation steps."""
    return config.DATA.BATCH_SIZE * processes * config.TRAIN.ACCUM_ITER


def with_fitting_batch(run: "Configuration", processes: int, samples: int | None = None) -> "Configuration":
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


def with_fitting_epochs(
    run: "Configuration", processes: int, samples: int, sample_name: str, earlier: int | None = None
) -> "Configuration":
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


def with_fitting_warmup(run: "Configuration", processes: int, datasets: Mapping[str, Any]) -> "Configuration":
    """The configuration with a warm-up that is shorter than the run, where a recipe's is not.

    TRAIN.WARMUP_STEPS of a recipe counts updates of its own dataset. On a small one, or with fewer epochs, it is
    shortened as the epochs are, and to a tenth of the run at most. One that the command line sets stays.

    Args:
        run: a ``Configuration``.
        datasets: "train" is looked at, if it is there.
    """
    train = run.values.TRAIN
    if run.values.EVAL or train.WARMUP_STEPS is None or run.sources["TRAIN.WARMUP_STEPS"] == COMMAND_LINE:
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
