"""Pairs of copies are shown side by side by the command that shows samples."""

from integration.extensions.leakage.test_found_copies import leaking, require_pairs_side_by_side  # noqa: F401


def test_the_pairs_are_shown_side_by_side(leaking, tmp_path):  # noqa: F811
    require_pairs_side_by_side("data", leaking, tmp_path)
