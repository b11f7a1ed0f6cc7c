"""The keys of the report are those of the pages."""

from support.key_pages import check_effects, check_rows


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("extensions.report")


def test_what_another_value_changes_is_as_listed():
    check_effects("extensions.report")
