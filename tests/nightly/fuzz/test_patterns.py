"""No regular expression of the package takes much more than twice as long for a run of characters twice as long.

Each pattern is parsed into its parts. For each part that repeats without an end, texts are drawn: something that its
beginning matches, a long run of a character that the part accepts, and an end that nothing accepts.
"""

import ast
import importlib
import itertools
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

try:
    from re import _compiler as compiler  # type: ignore[attr-defined]
    from re import _constants as constants  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_compile as compiler
    import sre_constants as constants
    import sre_parse as parser

import paddlevit_dist
from paddlevit_dist.core.tasks.sample_groups import FOLDER, SUBJECT
from paddlevit_dist.images.data import class_lists
from paddlevit_dist.points.data.scenes import GROUPS_BY

ROOT = Path(paddlevit_dist.__file__).parent
_METHODS = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
_ENDS = ("", "\x00", "!", "\n.", " x")
_CANDIDATES = [chr(number) for number in range(9, 127)] + ["é", "猫"]
_SHORT, _LONG, _ENOUGH = 4, 1 << 16, 0.01  # characters of the first and the longest run, and seconds worth measuring
_MOST_GROWTH, _TOO_LONG = 2.5, 2.0

# Patterns whose texts have a bound that is not theirs
_BOUNDED = {
    ("paddlevit_dist.core.engine.gpu_memory", "_ALLOCATION"): "messages of Paddle",
    ("paddlevit_dist.images.keypoints.data.point_tables", "_BEHIND"): "headings of at most 200 characters",
    ("paddlevit_dist.core.settings.key", "_LIST_ITEM"): "a comma ends each text",
}


class UsedPattern(NamedTuple):
    """A pattern and the method that it is used with."""

    place: str
    pattern: Any
    method: str


class _LinePattern(NamedTuple):
    """A pattern of a line in a list of classes, whose long runs of blanks are shortened before."""

    pattern: str
    flags: int = 0

    def fullmatch(self, line: str) -> object:
        """Match a line as the reader of lists does."""
        return re.fullmatch(self.pattern, class_lists.shorten_blanks(line))


def list_patterns() -> Iterator[UsedPattern]:
    """Yield the patterns that modules of the package compile, or pass to functions of ``re`` as a constant."""
    for file in sorted(ROOT.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "import re\n" not in text:
            continue
        name = ".".join(("paddlevit_dist", *file.relative_to(ROOT).with_suffix("").parts))
        try:
            variables = vars(importlib.import_module(name))
        except ImportError:  # of a package that is not installed
            continue
        for variable, value in variables.items():
            pattern = getattr(value, "__self__", value)
            is_own = isinstance(pattern, re.Pattern) and re.search(rf"(?m)^{variable}\b", text)
            if is_own and (name, variable) not in _BOUNDED:
                used = set(re.findall(rf"\b{variable}\.({'|'.join(_METHODS)})\b", text)) or {
                    getattr(value, "__name__", "search")
                }
                yield from (UsedPattern(f"{name}.{variable}", pattern, method) for method in sorted(used))
        for call in ast.walk(ast.parse(text)):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            is_re = isinstance(call.func.value, ast.Name) and call.func.value.id == "re"
            if is_re and call.func.attr in _METHODS and isinstance(call.args[0], ast.Constant):
                flags = re.IGNORECASE if "IGNORECASE" in ast.unparse(call) else 0
                pattern = re.compile(call.args[0].value, flags)
                yield UsedPattern(f"{name}:{call.lineno}", pattern, call.func.attr)

    for number, line in enumerate(class_lists.LINES):
        yield UsedPattern(f"{class_lists.__name__}.LINES[{number}]", _LinePattern(line), "fullmatch")
    for variable, pattern in {**FOLDER, **SUBJECT, **GROUPS_BY}.items():
        yield UsedPattern(f"groups by {variable}", re.compile(pattern), "search")


def _accepts(item: tuple) -> list[str]:
    """Return characters that one item of a parsed pattern accepts: one of each kind."""
    state = parser.State()
    try:
        part = parser.SubPattern(state, [item])
        compiled = compiler.compile(part)
    except Exception:  # a group or a reference
        return []
    return [sign for sign in _CANDIDATES if compiled.fullmatch(sign)]


def _example(parts: list) -> str:
    """Return a short text that the items match, as far as can be told without trying."""
    text = ""
    for kind, value in parts:
        if kind is constants.LITERAL:
            text += chr(value)
        elif kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            text += _example(list(value[2])) * max(value[0], 0)
        elif kind is constants.SUBPATTERN:
            text += _example(list(value[-1]))
        elif kind is constants.BRANCH:
            text += _example(list(value[1][0]))
        elif kind in (constants.IN, constants.ANY, constants.NOT_LITERAL):
            text += (_accepts((kind, value)) or ["a"])[-3:][0]
    return text


def _find_repeats(parts: list, before: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what precedes each part that repeats without end, the pieces that may be repeated, and what ends them."""
    for at, (kind, value) in enumerate(parts):
        prefix = before + _example(parts[:at])
        if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            inner = list(value[2])
            if value[1] >= 1000:
                signs = _accepts(inner[0]) if len(inner) == 1 else []
                others = _spread([sign for sign in _CANDIDATES if sign not in signs])[:6] if signs else []
                yield prefix, [*_spread(signs), _example(inner)], [*_ENDS, *others]
            yield from _find_repeats(inner, prefix)
        elif kind is constants.SUBPATTERN:
            yield from _find_repeats(list(value[-1]), prefix)
        elif kind is constants.BRANCH:
            for branch in value[1]:
                yield from _find_repeats(list(branch), prefix)


def _spread(signs: list[str]) -> list[str]:
    """Return one character of each kind: space, digit, letters, and all signs."""
    kinds: dict[object, str] = {}
    for sign in signs:
        kind = "digit" if sign.isdigit() else ("letter", sign.islower()) if sign.isalpha() else sign
        kinds.setdefault(kind, sign)
    return list(kinds.values())


def find_slow(used: UsedPattern) -> str | None:
    """Return a text, shortened, for which a pattern takes far more than twice as long as for its half; None: none."""
    flags = used.pattern.flags & ~re.UNICODE if isinstance(used.pattern.pattern, bytes) else used.pattern.flags
    parsed = list(parser.parse(used.pattern.pattern, flags))
    tried = set()
    for prefix, pieces, ends in _find_repeats(parsed, ""):
        for piece, end in itertools.product(dict.fromkeys([*pieces, prefix]), ends):
            if not piece or (prefix, piece, end) in tried:
                continue
            tried.add((prefix, piece, end))
            if _grows(used, prefix, piece, end):
                return f"{used.place} {used.method}: {prefix!r} + {piece!r} * n + {end!r}"
    return None


def _grows(used: UsedPattern, prefix: str, piece: str, end: str) -> bool:
    """Return whether doubling a run takes more than ``_MOST_GROWTH`` times as long, or a short one seconds."""
    number, before = _SHORT, 0.0
    while number <= _LONG:
        seconds = _measure(used, prefix + piece * number + end)
        if seconds >= _TOO_LONG or (before >= _ENOUGH and seconds > _MOST_GROWTH * before):
            half, whole, double = (  # twice in a row, as other programs also take time
                min(_measure(used, prefix + piece * count + end) for _ in range(3))
                for count in (number // 2, number, 2 * number)
            )
            if whole >= _TOO_LONG or (whole > _MOST_GROWTH * half and double > _MOST_GROWTH * whole):
                return True
        if before >= _ENOUGH and seconds >= 4 * _ENOUGH:
            return False
        before, number = seconds, number + 4 if number < 32 else number * 2
        if number > 32 and before and number % 32:
            number, before = 64, 0.0
    return False


class _TooLongError(Exception):
    pass


def _stop(*_: object) -> None:
    raise _TooLongError


def _measure(used: UsedPattern, text: str) -> float:
    """Return the seconds of processor time of a call, at most ``_TOO_LONG``."""
    subject = text.encode("utf-8", "replace") if isinstance(used.pattern.pattern, bytes) else text
    call = getattr(used.pattern, used.method)
    arguments = (b"" if isinstance(subject, bytes) else "", subject) if used.method in ("sub", "subn") else (subject,)
    previous = signal.signal(signal.SIGVTALRM, _stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _TOO_LONG)
    start = time.process_time()
    try:
        found = call(*arguments)
        if used.method == "finditer":
            list(found)
    except _TooLongError:
        return _TOO_LONG
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    return time.process_time() - start


@pytest.mark.parametrize("used", [pytest.param(used, id=f"{used.place} {used.method}") for used in list_patterns()])
def test_twice_the_text_takes_about_twice_the_time(used):
    assert find_slow(used) is None


@pytest.mark.parametrize("pattern", [r"(\d*\.?\d+\s*)+x", r"\s*,?\s*x", r"[a-z]+://"])
def test_slow_patterns_are_found(pattern):
    assert find_slow(UsedPattern("drawn", re.compile(pattern), "search")) is not None
