"""The ranges of ``search``: ``TRAIN.BASE_LR=1e-4..1e-2:log`` and ``TRAIN.OPTIMIZER.NAME=SGD|AdamW``."""

import re
from typing import Any, NamedTuple

from ..runtime.errors import UserError
from ..settings.merge import closest_key
from ..settings.table import keys

_RANGE = re.compile(r"([A-Z][A-Z0-9_.]*)=([^.|]\S*?)\.\.([^|]+?)(:log)?")
_CHOICES = re.compile(r"([A-Z][A-Z0-9_.]*)=([^|]+(?:\|[^|]+)+)")


class SearchRange(NamedTuple):
    """The values of one key that a search tries.

    Attributes:
        name: of the key.
        word: as typed.
        low: the smallest number; None for choices.
        high: the largest number.
        is_log: numbers are drawn evenly on a logarithmic scale.
        is_whole: whole numbers only.
        choices: texts of the values; empty for numbers.
    """

    name: str
    word: str
    low: float | None
    high: float | None
    is_log: bool
    is_whole: bool
    choices: tuple[str, ...]

    def suggest(self, trial: Any) -> str:
        """Return the value that an Optuna trial has or draws, as typed on a command line."""
        if self.choices:
            return str(trial.suggest_categorical(self.name, self.choices))
        if self.is_whole:
            return str(trial.suggest_int(self.name, int(self.low or 0), int(self.high or 0), log=self.is_log))
        return f"{trial.suggest_float(self.name, self.low, self.high, log=self.is_log):.6g}"


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
    if name not in keys():
        raise UserError(f"{word}: {name} is not a known key: the closest is {closest_key(name)}")
    key = keys()[name]
    texts = match[2].split("|") if choices else [match[2], match[3]]
    for text in texts:
        try:
            key.parse(text)
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
    return SearchRange(name, word, low, high, bool(match[4]), key.kind == "int", ())
