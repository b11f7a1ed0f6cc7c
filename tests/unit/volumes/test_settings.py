"""The keys for volumes are those of the pages."""

from types import SimpleNamespace

import pytest
from support.key_pages import check_effects, check_rows

from paddlevit_dist.volumes.settings import _find_unused_shared


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("volumes")


def test_what_another_value_changes_is_as_listed():
    check_effects("volumes")


@pytest.mark.parametrize(
    "kinds, window, deviation, expected",
    [
        (["z_score"], [0, 1], [0, 1], ["VOLUMES.INTENSITY_WINDOW", "VOLUMES.INTENSITY_MEAN_STD"]),
        (["percentiles"], [0, 1], [0, 1], ["VOLUMES.INTENSITY_MEAN_STD"]),
        (["none", "ct"], [0, 1], [0, 1], []),
        (["z_score"], None, None, []),
    ],
)
def test_statistics_are_for_the_normalizations_that_read_them(kinds, window, deviation, expected):
    volumes = SimpleNamespace(NORMALIZE=kinds, INTENSITY_WINDOW=window, INTENSITY_MEAN_STD=deviation)
    found = list(_find_unused_shared(SimpleNamespace(values=SimpleNamespace(VOLUMES=volumes))))
    assert [each.names for each in found] == [(name,) for name in expected]
    reasons = {"WINDOW": "it is for ct and percentiles, and {}", "STD": "it is for ct, and {}"}
    for each in found:
        assert each[1:] == ("VOLUMES.NORMALIZE", reasons[each.names[0].rpartition("_")[2]])
