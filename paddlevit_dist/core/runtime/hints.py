"""What somebody may have meant by a name that is not known: the only place that guesses."""

import difflib
import os
import re
from collections.abc import Iterable

_SIMILARITY = 0.7  # of letters; below it, a guess misleads more often than it helps
_TYPING_MISTAKE = 0.9  # of letters; from there on, letters tell more than words
_SHORTEST = 3  # letters of a name that others may begin with or contain
# What text editors and web pages make of one or two hyphens.
_PASTED_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"


def find_similar(name: str, valid: Iterable[str], number: int = 1) -> list[str]:
    """Return up to ``number`` of the ``valid`` names that may be meant, the best first; usually none or one.

    A name is meant if it is the same without case and separators; else if it begins with the given one, or has all of
    its words; else if nearly all letters are equal; else if the given one has all of its words, or most of its letters.
    """
    plain = _simplify(name)
    plains = {each: _simplify(each) for each in valid}
    same = [each for each, other in plains.items() if other.replace("_", "") == plain.replace("_", "")]
    if same:
        return same[:number]
    words = set(plain.split("_"))
    longer = [each for each, other in plains.items() if _extends(other, plain, words)]
    is_mistyped = bool(_match_letters(plain, plains, 1, _TYPING_MISTAKE))
    shorter = [each for each, other in plains.items() if len(other.split("_")) > 1 and words > set(other.split("_"))]
    related = longer or ([] if is_mistyped else shorter)
    if related:
        return sorted(related, key=lambda each: (plains[each].count("_"), len(each), each))[:number]
    return _match_letters(plain, plains, number, _SIMILARITY)


def _match_letters(plain: str, plains: dict[str, str], number: int, least: float) -> list[str]:
    letters = difflib.get_close_matches(plain, plains.values(), number, least)
    return list(dict.fromkeys(next(each for each, other in plains.items() if other == found) for found in letters))


def _simplify(name: str) -> str:
    return re.sub(r"[^\w]+", "_", name.lower()).strip("_")


def _extends(other: str, plain: str, words: set[str]) -> bool:
    return len(plain) >= _SHORTEST and (other.startswith(plain) or words <= set(other.split("_")))


def suggest(name: str, valid: Iterable[str]) -> str:
    """Return ``"did you mean 'x'? "`` for the name that may be meant, or an empty text."""
    found = find_similar(name, valid)
    return f"did you mean '{found[0]}'? " if found else ""


def looks_like_path(name: str) -> bool:
    """Return whether a name that is not known may be the path of a file or folder, there or not."""
    return os.sep in name or name.startswith((".", "~")) or os.path.lexists(name)


def describe_path(name: str) -> str:
    """Say what is at a path that was given as a name: "there is no file or folder NAME", or "NAME is a folder"."""
    path = os.path.expanduser(name)
    if not os.path.lexists(path):
        return f"there is no file or folder {name}"
    return f"{name} is a {'folder' if os.path.isdir(path) else 'file'}"


def fix_dash(word: str) -> str:
    """Return a word that begins with a pasted dash, such as "–epochs=3", with a hyphen; empty for any other word."""
    rest = word.lstrip(_PASTED_DASHES + "-")
    dashes = word[: len(word) - len(rest)]
    is_pasted = rest[:1].isalpha() and bool(set(dashes) & set(_PASTED_DASHES)) and not os.path.lexists(word)
    return f"-{rest}" if is_pasted else ""
