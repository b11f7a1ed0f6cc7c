"""Pairs of left and right landmarks, which exchange their names in a mirrored volume."""

import re
from collections.abc import Sequence

from ...core.runtime.errors import UserError

NO_PAIRS = "none"  # VOLUMES.MIRROR_PAIRS: no landmark has a counterpart

# Sides in names: words anywhere; separate single letters; capitals at either end (eyeL, LEye).
_SIDES = re.compile(r"(?i:left|right)|(?<![A-Za-z])[lLrR](?![A-Za-z])|^[LR](?=[A-Z])|(?<=[A-Za-z0-9])[LR]$")
_ONE_WORD = re.compile(r"[\w.:,+@%/\[\]-]+")  # text that a shell leaves unchanged
_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}


def choose_pairs(flip: float, pairs: str | Sequence[str], names: Sequence[str]) -> list[str]:
    """Choose the pairs for mirroring in training, not validated: VOLUMES.MIRROR_PAIRS unless VOLUMES.FLIP is 0.

    UserError if crops are mirrored but the pairs are not specified, or "none" is mixed with pairs.
    """
    if not flip or pairs in (NO_PAIRS, [NO_PAIRS]):
        return []
    if not pairs:
        raise UserError(
            f"VOLUMES.FLIP {flip:g} exchanges left and right, but VOLUMES.MIRROR_PAIRS has no landmarks that exchange "
            f"their names: {format_choices(names)}; landmarks: {', '.join(names)}"
        )
    if NO_PAIRS in pairs:
        raise UserError(
            f"VOLUMES.MIRROR_PAIRS [{','.join(pairs)}]: {NO_PAIRS} means that no landmark has a "
            f"counterpart; remove {NO_PAIRS} or the pairs"
        )
    return list(pairs)


def mirror_order(names: Sequence[str], pairs: Sequence[str]) -> list[int]:
    """Return for each landmark the index of the landmark that replaces it when left and right are exchanged.

    UserError if a pair is not two different known names, or a name is in two pairs.
    """
    order = list(range(len(names)))
    for pair in pairs:
        left, colon, right = pair.partition(":")
        unknown = [name for name in (left, right) if name not in names]
        if not colon or left == right:
            raise UserError(f"VOLUMES.MIRROR_PAIRS '{pair}': not a pair; expected left_name:right_name")
        if unknown:
            raise UserError(
                f"VOLUMES.MIRROR_PAIRS '{pair}': '{unknown[0]}' is not a landmark ({', '.join(names)}); expected "
                f"left_name:right_name; do the pairs come from a recipe for other landmarks? {format_choices(names)}"
            )
        first, second = names.index(left), names.index(right)
        if order[first] != first or order[second] != second:
            raise UserError(f"VOLUMES.MIRROR_PAIRS '{pair}': a landmark is in two pairs; keep one of them")
        order[first], order[second] = second, first
    return order


def format_choices(names: Sequence[str]) -> str:
    """Format the settings to choose from if pairs are not specified, as typed in a shell."""
    proposed = propose_pairs(names)
    choice = f"{_type(proposed)} (proposed from the names, check them)" if proposed else "[left_name:right_name]"
    return (
        f"set VOLUMES.MIRROR_PAIRS {choice}, or VOLUMES.MIRROR_PAIRS {NO_PAIRS} if no landmark has a counterpart, or "
        "VOLUMES.FLIP 0"
    )


def _type(pairs: Sequence[str]) -> str:
    """Format a list as one word of a command line."""
    text = f"[{','.join(pairs)}]"
    return text if _ONE_WORD.fullmatch(text) else f'"{text}"'


def note_missing_pairs(flip: float, pairs: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a notice about names that look like pairs but are not in ``pairs``; empty without mirroring."""
    paired = {name for pair in pairs for name in pair.split(":")}
    unpaired = [pair for pair in propose_pairs(names) if not paired & set(pair.split(":"))]
    if not flip or not unpaired:
        return []
    return [f"note: VOLUMES.MIRROR_PAIRS does not contain {', '.join(unpaired)}: mirrored crops keep these names"]


def propose_pairs(names: Sequence[str]) -> list[str]:
    """Propose pairs left_name:right_name of names that differ only in their side (left/right, _l/_r, L/R)."""
    known_names, pairs = set(names), set()
    for name in names:
        other, side = _SIDES.sub(_other_side, name), _SIDES.search(name)
        if side is not None and other != name and other in known_names:
            is_left = side.group()[0] in "lL"
            pairs.add(f"{name}:{other}" if is_left else f"{other}:{name}")
    return sorted(pairs)


def _other_side(side: re.Match[str]) -> str:
    """Return the opposite word or letter, in the same case."""
    word = side.group()
    other = _OTHER[word.lower()]
    if word.isupper():
        return other.upper()
    return other.capitalize() if word[0].isupper() else other
