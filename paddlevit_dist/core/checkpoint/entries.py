"""Chooses the weights among the entries of a file, such as a student's and a teacher's."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import shorten

_RAW = ("model", "state_dict", "model_state_dict", "model_state", "net", "network", "network_weights", "weights")
# Of two networks that learn from each other, and which of them their authors evaluate.
_EVALUATED = ("teacher", "target_encoder", "base_encoder", "encoder_q", "online_encoder", "backbone", "encoder")
_AVERAGES = (
    *("model_ema", "state_dict_ema", "ema_state_dict", "ema_model", "ema_model_state_dict", "model_ema_state_dict"),
    "ema_net",
)
# The first existing one is used. Authors who write "ema", as of RT-DETR and D-FINE, evaluate and publish it.
RANKING = ("ema", "params_ema", *_RAW, "params", *_EVALUATED, "student", *_AVERAGES, "module")
# In Paddle's files: PaddleViT evaluates the average if a checkpoint has one.
PADDLE_RANKING = tuple(dict.fromkeys(("ema", *_AVERAGES, *RANKING)))
DEPTH = 3  # nested entries and prefixes; bounded because a damaged file may nest endlessly
_MOST_LISTED = 8
_is_of_training = re.compile(r"(?i)optim|^opt$|sched|scaler|loss|callback").search


def choose_entry(
    content: object, source: str, part: str | None, ranking: tuple[str, ...]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the mapping of weights inside a file's content, and notices about other weights in it.

    Raises UserError if there is no mapping, or ``part``, or none of several entries is plainly the one to use.

    Args:
        content: what the file has.
        source: its name, for messages.
        part: the entry to use, or what its names begin with; levels are joined by dots. None: by ``ranking``.
        ranking: usual names of entries, the preferred ones first.
    """
    notices: tuple[str, ...] = ()
    if part is not None:
        chosen = _find_part(content, part, DEPTH)
        if chosen is None:
            names = ", ".join(map(ascii, _list_parts(content)))
            raise UserError(f"{source} has no part '{part}'; parts: {names or 'none'}")
        content = chosen
    for _ in range(DEPTH):
        entries = _count_entries(content)
        known = [key for key in ranking if key in entries]
        if not known and isinstance(content, Mapping):
            if max(entries.values(), default=0) < sum(map(is_array, content.values())):
                break
            known = list(entries)
            if len(known) > 1:
                raise several_error(source, known)
        if not known or not isinstance(content, Mapping):
            break
        if len(known) > 1:
            notices = (describe_choice(known[0], known[1:]),)
        content = content[known[0]]
    if not isinstance(content, Mapping):
        raise UserError(f"{source} contains a {type(content).__name__}, expected a dictionary of weights")
    return content, notices


def describe_choice(chosen: str, others: list[str]) -> str:
    """Return a notice about entries that were not used."""
    unused = ", ".join(f"'{key}'" for key in others)
    choice = f"MODEL.PRETRAINED_PART {others[0]}, or -part={others[0]} of convert and export, selects another"
    return f"'{chosen}' of the source was used; it also has {unused} ({choice})"


def several_error(source: str, names: Iterable[str]) -> UserError:
    """Return the error for entries where any may be the one to use."""
    listed = [f"'{shorten(name)}'" for name in names]
    return UserError(
        f"{source} has weights of several networks, {', '.join(listed[:_MOST_LISTED])}: choose one with "
        "MODEL.PRETRAINED_PART NAME, or -part=NAME of convert and export"
    )


def choose_by_ranking(prefixes: list[str], ranking: tuple[str, ...]) -> str | None:
    """Return the prefix to use of several that fit equally; None if none of them is plainly the one.

    Prefixes are words joined by dots; the outermost one is preferred, then the one whose first other word ranks first.
    """
    split = [prefix.split(".") if prefix else [] for prefix in prefixes]
    while all(split) and len({words[0] for words in split}) == 1:
        split = [words[1:] for words in split]
    ranks = [-1 if not words else ranking.index(words[0]) if words[0] in ranking else len(ranking) for words in split]
    best = min(ranks)
    return prefixes[ranks.index(best)] if best < len(ranking) or len(prefixes) == 1 else None


def _list_parts(content: object) -> list[str]:
    """List entries that can be chosen as a part: mappings with arrays; of a single one, the beginnings of its names."""
    entries = _count_entries(content)
    if len(entries) > 1 or not isinstance(content, Mapping):
        return list(entries)[:_MOST_LISTED]
    if entries:
        return _list_parts(content[next(iter(entries))]) or list(entries)
    beginnings: list[str] = []
    for depth in range(1, DEPTH + 1):  # words that all names have tell nothing
        if len(beginnings) < 2:
            words = [str(name).split(".") for name in content if "." in str(name)]
            beginnings = list(dict.fromkeys(".".join(each[: min(depth, len(each) - 1)]) for each in words))
    return beginnings[:_MOST_LISTED]


def is_array(value: object) -> bool:
    """Return whether an entry is a tensor, an array, or a (name, array) pair, without converting it."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    return isinstance(value, np.ndarray) or callable(getattr(value, "numpy", None))


def _find_part(content: object, part: str, depth: int) -> Mapping[str, Any] | None:
    """Return the entry called ``part``, or all whose names begin with it, at the outermost level that has any."""
    if not isinstance(content, Mapping) or depth < 0:
        return None
    if isinstance(content.get(part), Mapping):
        return content[part]
    begin = f"{part}."
    named = {str(key)[len(begin) :]: value for key, value in content.items() if str(key).startswith(begin)}
    if named:
        return named
    inner = (_find_part(content[key], part.removeprefix(f"{key}."), depth - 1) for key in _count_entries(content))
    return next(filter(None, inner), None)


def _count_entries(content: object) -> dict[str, int]:
    """Count the arrays in each mapping inside ``content``, without what belongs to an optimizer or a loss."""
    if not isinstance(content, Mapping):
        return {}
    numbers = {key: _count_arrays(content[key], DEPTH) for key in content if isinstance(content[key], Mapping)}
    return {key: number for key, number in numbers.items() if number and not _is_of_training(str(key))}


def _count_arrays(content: object, depth: int) -> int:
    if not isinstance(content, Mapping) or depth == 0:
        return 0
    return sum(1 if is_array(value) else _count_arrays(value, depth - 1) for value in content.values())
