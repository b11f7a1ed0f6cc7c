"""Tests with many cases of one kind, such as formats: some run by day, and the others at night."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

AT_NIGHT = "CASES_OF_THE_NIGHT"  # variable of the environment: the others run, see nightly/test_other_cases.py


def by_day(names: str | Sequence[str], cases: Iterable[Any], day: Sequence[int], **options: Any) -> Any:
    """Parametrize a test by the cases at the positions ``day``, and at night by the others."""
    cases, ids = list(cases), options.pop("ids", None)
    places = [place for place in range(len(cases)) if (place in day) != (AT_NIGHT in os.environ)]
    if ids is not None:
        options["ids"] = ids if callable(ids) else [list(ids)[place] for place in places]
    mark = pytest.mark.parametrize(names, [cases[place] for place in places], **options)
    return lambda test: pytest.mark.by_day(mark(test))
