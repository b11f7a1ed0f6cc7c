"""No regular expression of the package takes much more than twice as long for a run of characters twice as long."""

import re

import pytest
from support.fuzz.patterns import UsedPattern, find_slow, list_patterns


@pytest.mark.parametrize("used", [pytest.param(used, id=f"{used.place} {used.method}") for used in list_patterns()])
def test_twice_the_text_takes_about_twice_the_time(used):
    assert find_slow(used) is None


@pytest.mark.parametrize("pattern", [r"(\d*\.?\d+\s*)+x", r"\s*,?\s*x", r"[a-z]+://"])
def test_slow_patterns_are_found(pattern):
    assert find_slow(UsedPattern("drawn", re.compile(pattern), "search")) is not None
