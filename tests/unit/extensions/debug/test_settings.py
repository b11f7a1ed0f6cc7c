"""The keys for finding faults are those of the pages."""

import pytest
from support.key_pages import check_effects, check_rows

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("extensions.debug")


def test_what_another_value_changes_is_as_listed():
    check_effects("extensions.debug")


def test_a_run_evaluates_or_compares_its_devices():
    with pytest.raises(UserError, match="^EVAL True .* and SELFTEST True .*: a run does only one of them"):
        load(["-selftest", "-eval", "-pretrained=x"])
