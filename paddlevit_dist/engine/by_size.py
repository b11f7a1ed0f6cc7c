"""Epochs and batch that follow from the size of the training set. It needs no Paddle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

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


def with_fitting_batch(run: Any, processes: int, samples: Optional[int] = None) -> Any:
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


def with_fitting_epochs(run: Any, processes: int, samples: int, sample_name: str, earlier: Optional[int] = None) -> Any:
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
