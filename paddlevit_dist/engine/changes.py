"""What a resumed training does otherwise than the one it goes on from."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Tuple

# Settings that change no number of a training: where things lie, what is told and when, and how a step is carried out.
# Processes and batches count by their product, which is compared as "effective batch".
_NEUTRAL = frozenset(
    """
    SAVE_FREQ VALIDATE_FREQ REPORT_FREQ SAVE_PREDICTIONS CPU_TUNING TO_STATIC NGPUS DATA.BATCH_SIZE DATA.BATCH_SIZE_EVAL
    DATA.DATA_PATH DATA.CACHE_FOLDER DATA.NUM_WORKERS DATA.PREFETCH DATA.LOADER_TIMEOUT_SECONDS DATA.ON_BAD_SAMPLE
    TRAIN.ACCUM_ITER TRAIN.EMPTY_CACHE_FREQ TRAIN.FIND_UNUSED_PARAMETERS TRAIN.RECOMPUTE TRAIN.STOP_AFTER_EPOCH
    """.split()
)

# Settings of a start, not of the training: what is resumed, and to where.
_OF_THE_START = frozenset(
    """
    BASE SAVE EVAL ALLOW_CHANGES MODEL.PRETRAINED MODEL.PRETRAINED_PART MODEL.MINIMUM_LOADED MODEL.RESUME
    TRAIN.LAST_EPOCH
    """.split()
)


class Change(NamedTuple):
    """A setting that differs between a checkpoint and this run; ``alters`` where the training takes another course."""

    name: str
    before: Any
    now: Any
    alters: bool


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> List[Change]:
    """The settings that differ, in the order in which ``now`` has them.

    A key that only one side knows is of another version of this package and left out.

    Args:
        before, now: configurations as nested mappings.
    """
    earlier = dict(_leaves(before))
    return [
        Change(name, earlier[name], value, name not in _NEUTRAL)
        for name, value in _leaves(now)
        if name not in _OF_THE_START and name in earlier and earlier[name] != value
    ]


def table_of(changes: List[Change]) -> List[str]:
    """Lines that show old and new side by side."""
    rows = [("setting", "before", "now", "")]
    rows += [(c.name, shown(c.before), shown(c.now), "alters the run" if c.alters else "") for c in changes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  " + "  ".join(text.ljust(width) for text, width in zip(row, (*widths, 0))).rstrip() for row in rows]


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[Tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", list(value) if isinstance(value, tuple) else value


def shown(value: Any) -> str:
    """A value on one line, not long."""
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def as_event(changes: List[Change]) -> Dict[str, List[Any]]:
    """The same for ``metrics.jsonl``: setting -> [before, now]."""
    return {change.name: [change.before, change.now] for change in changes}
