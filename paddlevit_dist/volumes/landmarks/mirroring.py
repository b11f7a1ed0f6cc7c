"""Left and right: which landmarks change their names in a mirrored volume."""

import re
from collections.abc import Sequence

from ...runtime.errors import UserError

NO_PAIRS = "none"  # VOLUMES.MIRROR_PAIRS: the user has looked, and no landmark has a counterpart

# Sides in names: words anywhere; single letters that stand alone, and capitals at either end (eyeL, LEye).
_SIDES = re.compile(r"(?i:left|right)|(?<![A-Za-z])[lLrR](?![A-Za-z])|^[LR](?=[A-Z])|(?<=[A-Za-z0-9])[LR]$")
_ONE_WORD = re.compile(r"[\w.:,+@%/\[\]-]+")  # what a shell leaves unchanged
_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}


def choose_pairs(flip: float, pairs: str | Sequence[str], names: Sequence[str]) -> list[str]:
    """The pairs that training mirrors with.

    Args:
        flip: VOLUMES.FLIP.
        pairs: VOLUMES.MIRROR_PAIRS, pairs as left_name:right_name, or "none".
        names: of all landmarks.
    Returns:
        The pairs, not checked yet; none where nothing is mirrored.
    Raises:
        UserError: crops are mirrored but the pairs are not specified, or "none" is mixed with pairs.
    """
    if not flip or pairs in (NO_PAIRS, [NO_PAIRS]):
        return []
    if not pairs:
        raise UserError(
            f"VOLUMES.FLIP {flip:g} exchanges left and right, but VOLUMES.MIRROR_PAIRS names no landmarks that change "
            f"their names: {choices(names)}; landmarks: {', '.join(names)}"
        )
    if NO_PAIRS in pairs:
        raise UserError(
            f"VOLUMES.MIRROR_PAIRS [{','.join(pairs)}]: {NO_PAIRS} stands alone and means that no landmark has a "
            f"counterpart; take {NO_PAIRS} out, or the pairs"
        )
    return list(pairs)


def mirror_order(names: Sequence[str], pairs: Sequence[str]) -> list[int]:
    """For each landmark the index of the one that takes its place when left and right are exchanged.

    Raises:
        UserError: a pair is not two different known names, or a name is in two pairs.
    """
    order = list(range(len(names)))
    for pair in pairs:
        left, colon, right = pair.partition(":")
        unknown = [name for name in (left, right) if name not in names]
        if not colon or left == right:
            raise UserError(f"VOLUMES.MIRROR_PAIRS '{pair}': no pair; expected left_name:right_name")
        if unknown:
            raise UserError(
                f"VOLUMES.MIRROR_PAIRS '{pair}': '{unknown[0]}' is not a landmark ({', '.join(names)}); expected "
                f"left_name:right_name; are the pairs perhaps a recipe's, for other landmarks? {choices(names)}"
            )
        first, second = names.index(left), names.index(right)
        if order[first] != first or order[second] != second:
            raise UserError(f"VOLUMES.MIRROR_PAIRS '{pair}': a landmark has one counterpart; name it in one pair")
        order[first], order[second] = second, first
    return order


def choices(names: Sequence[str]) -> str:
    """Say what to set if these landmarks' pairs are not specified, as typed in a shell."""
    proposed = propose_pairs(names)
    choice = f"{_type(proposed)} (proposed by the names, check them)" if proposed else "[left_name:right_name]"
    return (
        f"set VOLUMES.MIRROR_PAIRS {choice}, or VOLUMES.MIRROR_PAIRS {NO_PAIRS} if no landmark has a counterpart, or "
        "VOLUMES.FLIP 0"
    )


def _type(pairs: Sequence[str]) -> str:
    """A list as one word of a command line."""
    written = f"[{','.join(pairs)}]"
    return written if _ONE_WORD.fullmatch(written) else f'"{written}"'


def forgotten_pairs(flip: float, pairs: Sequence[str], names: Sequence[str]) -> list[str]:
    """A notice about names that look like pairs, of which none is in ``pairs``; nothing without mirroring."""
    paired = {name for pair in pairs for name in pair.split(":")}
    left_out = [pair for pair in propose_pairs(names) if not paired & set(pair.split(":"))]
    if not flip or not left_out:
        return []
    return [f"note: VOLUMES.MIRROR_PAIRS leaves out {', '.join(left_out)}: mirrored crops keep these names"]


def propose_pairs(names: Sequence[str]) -> list[str]:
    """Pairs left_name:right_name of names that differ only in their side (left/right, _l/_r, L/R)."""
    known, pairs = set(names), set()
    for name in names:
        other = _SIDES.sub(_other_side, name)
        if other != name and other in known:
            is_left = _SIDES.search(name).group()[0] in "lL"
            pairs.add(f"{name}:{other}" if is_left else f"{other}:{name}")
    return sorted(pairs)


def _other_side(side: re.Match[str]) -> str:
    """The opposite word or letter, in the same case."""
    found = side.group()
    other = _OTHER[found.lower()]
    if found.isupper():
        return other.upper()
    return other.capitalize() if found[0].isupper() else other
