"""The keys of losses: what the pages say about them."""

from support.key_pages import check_effects, check_rows


def test_the_page_of_keys_shows_each_key_and_its_flag():
    check_rows("core.losses")


def test_each_key_changes_what_a_person_has_listed():
    check_effects("core.losses")
