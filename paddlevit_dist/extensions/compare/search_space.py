"""The ranges of ``search``: ``TRAIN.BASE_LR=1e-4..1e-2:log``, ``TRAIN.OPTIMIZER.NAME SGD|AdamW``, ``-epochs=10|20``."""

import re
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.runtime.errors import UserError
from ...core.settings.command_line import iterate_options
from ...core.settings.model_options import split_option
from ...core.settings.parse import advise_key
from ...core.settings.table import find_key

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_RANGE = re.compile(r"(?![^|]*\|)([A-Z][\w.]*)=([^.|]\S*?)\.\.([^|]+?)(:log)?")
_CHOICES = re.compile(r"([A-Z][\w.]*)=([^|]+(?:\|[^|]+)+)")


class SearchRange(NamedTuple):
    """The values of one key that a search tries."""

    name: str  # of the key
    word: str  # KEY=RANGE
    low: float | None  # the smallest number; None for choices
    high: float | None  # the largest number
    is_log: bool  # numbers are drawn evenly on a logarithmic scale
    is_whole: bool  # whole numbers only
    choices: tuple[str, ...]  # texts of the values; empty for numbers

    def get_distribution(self, distributions: ModuleType) -> "BaseDistribution":
        """Return the distribution from Optuna's module of them."""
        if self.choices:
            return distributions.CategoricalDistribution(self.choices)
        kind = distributions.IntDistribution if self.is_whole else distributions.FloatDistribution
        return kind(self.low, self.high, log=self.is_log)

    def list_values(self) -> Sequence[Any] | None:
        """Return all values; None if there is no end of them."""
        if self.low is None or self.high is None:
            return self.choices
        return range(int(self.low), int(self.high) + 1) if self.is_whole else None

    def format(self, value: float | str | None) -> str:
        """Format a value as a word of the command line; six digits are enough if they are in the range."""
        if self.low is None or self.high is None or self.is_whole:
            return f"{self.name}={value}"
        is_inside = self.low <= float(f"{value:.6g}") <= self.high
        return f"{self.name}={value:.6g}" if is_inside else f"{self.name}={value!r}"


def take_ranges(words: Sequence[str]) -> tuple[list[SearchRange], list[str]]:
    """Return the ranges of keys and of their flags, and the other words.

    Raises:
        UserError: a word is neither a flag nor a key with its value, a range is wrong, or a key has two.
    """
    ranges: list[SearchRange] = []
    others: list[str] = []
    for option in iterate_options(words):
        key = find_key(option.key)
        is_range = option.key and not (key is not None and key.kind == "path")
        found = parse_range(f"{option.key}={option.value}") if is_range else None
        if found is None:
            others += option.words
        elif found.name in [other.name for other in ranges]:
            raise UserError(f"search: {found.word}: {found.name} has another range, too: keep one")
        else:
            ranges.append(found)
    return ranges, others


def parse_range(word: str) -> SearchRange | None:
    """Parse a word of the command line; None if it is not a range.

    Raises:
        UserError: the key does not exist, a value is not one of the key's, or the ends are in the wrong order.
    """
    choices, ends = _CHOICES.fullmatch(word), _RANGE.fullmatch(word)
    match = choices or ends
    if match is None:
        return None
    name = match[1]
    key = find_key(name)
    if key is None:
        raise UserError(f"{word}: {name} is not a known key: {advise_key(name)}")
    texts = match[2].split("|") if choices else [match[2], match[3]]
    for text in texts:
        try:
            key.parse(split_option(name, text)[1])
        except (UserError, ValueError) as error:
            raise UserError(f"{word}: {name} cannot be {text}: {error}") from error
    if choices:
        return SearchRange(name, word, None, None, False, False, tuple(texts))
    try:
        low, high = float(texts[0]), float(texts[1])
    except ValueError as error:
        raise UserError(f"{word}: expected two numbers, such as {name}=1..10, or choices, {name}=A|B") from error
    if not low < high or (match[4] and low <= 0):
        raise UserError(f"{word}: expected a smaller number before a larger one, and above 0 with :log")
    # An option has no type: its numbers are whole if both ends are written so.
    is_whole = key.kind == "int" or (key.kind == "options" and all(text.isdigit() for text in texts))
    return SearchRange(name, word, low, high, bool(match[4]), is_whole, ())
