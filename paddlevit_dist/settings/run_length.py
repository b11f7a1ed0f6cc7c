"""Batch size, epochs and warm-up as far as they follow from other settings and from the size of the training set."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yacs.config import CfgNode

from .every_run import RunSettings
from .key import COMMAND_LINE, Key, KeySetting

if TYPE_CHECKING:
    from .merge import Configuration

# A small training set is split into four updates, so that an epoch has several, but an update takes at least four
# samples: the gradients of fewer would be noise.
_SHARE, _FEWEST = 4, 4


def resolve_batch_size(
    values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting]
) -> list[str]:
    """Choose, while the configuration is merged, between values derived from sizes and values set as numbers.

    Of BATCH_SIZE and GLOBAL_BATCH_SIZE, and of NUM_EPOCHS and NUM_SAMPLES, the one in a later file or on the command
    line counts; within one file, the second of each pair. Until the training set is known, it is assumed to be large
    enough for the maximum.

    Returns:
        Notices of overridden values.
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
    last = {setting.name: (number, setting.source) for number, setting in enumerate(all_settings)}
    if name not in last or other not in last:
        return False
    (number, source), (other_number, other_source) = last[name], last[other]
    return number > other_number and source != other_source


def _report_override(name: str, value: Any, winner: KeySetting) -> list[str]:
    return [] if value is None else [f"{winner.name} {winner.value} ({winner.origin}) replaces {name} {value}"]


def resolve_warmup(
    values: CfgNode, settings: Mapping[str, KeySetting], all_settings: Sequence[KeySetting], key: Key
) -> list[str]:
    """Shorten a recipe's warm-up in proportion if other settings made the run no longer than the warm-up.

    Args:
        values: the merged values, changed in place.
        settings: the settings that count, by name.
        all_settings: also the settings that others override, in order.
        key: TRAIN.NUM_EPOCHS.

    Returns:
        A notice if it was shortened.
    """
    train = values.TRAIN
    warmup, epochs = settings.get("TRAIN.WARMUP_EPOCHS"), settings.get("TRAIN.NUM_EPOCHS")
    if values.EVAL or train.WARMUP_EPOCHS < train.NUM_EPOCHS or warmup is None or epochs is None:
        return []
    if warmup.source in (COMMAND_LINE, epochs.source):  # both were set together, or the warm-up was chosen for this run
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
        f"TRAIN.WARMUP_EPOCHS {before} ({warmup.origin}) is not shorter than the run, TRAIN.NUM_EPOCHS "
        f"{train.NUM_EPOCHS} ({epochs.origin}): shortened in proportion, from {before} of {recipe_epochs} to "
        f"{train.WARMUP_EPOCHS:g} of {train.NUM_EPOCHS}"
    ]


def effective_batch_size(config: RunSettings, processes: int) -> int:
    """Return the samples of one update over all processes and accumulation steps."""
    return config.DATA.BATCH_SIZE * processes * config.TRAIN.ACCUM_ITER


def resolve_process_batch(run: "Configuration", processes: int, samples: int | None = None) -> "Configuration":
    """Return the configuration with the BATCH_SIZE of each process that follows from DATA.GLOBAL_BATCH_SIZE, if set.

    Args:
        run: the merged configuration.
        processes: number of processes of the run.
        samples: samples of the training set; None: unknown, assumed to be enough.
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

    The epochs depend on the number of samples alone, not on the batch or the number of devices.

    Args:
        run: the merged configuration, with its batch resolved.
        processes: number of processes of the run.
        samples: samples of the training set.
        sample_name: "images", for the notice.
        earlier: epochs of the run that is resumed: unchanged, even if samples were added since.
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
    return run.changed("TRAIN.NUM_EPOCHS", epochs, notice, "TRAIN.NUM_SAMPLES")


def compute_epochs(samples: int, num_samples: int, limits: Sequence[int]) -> int:
    """Return the fewest epochs that read ``num_samples`` samples, within ``limits``."""
    least, most = limits
    return min(max(-(-num_samples // max(samples, 1)), least), most)


def resolve_warmup_steps(run: "Configuration", processes: int, datasets: Mapping[str, Any]) -> "Configuration":
    """Return the configuration with a warm-up that is shorter than the run, if the recipe's is not.

    TRAIN.WARMUP_STEPS of a recipe counts updates of the recipe's dataset. On a small dataset, or with fewer epochs, it
    is shortened like the epochs, and to at most a tenth of the run. A value from the command line is unchanged.

    Args:
        run: the merged configuration.
        processes: number of processes of the run.
        datasets: the size of "train" is read, if there is one.
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
        f"{updates:,} updates: {f'shortened to {steps}' if steps else 'no warm-up'}",
    )
