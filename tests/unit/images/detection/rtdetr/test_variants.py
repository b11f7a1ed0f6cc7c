"""The published RT-DETRs, D-FINEs and DEIMs."""

import pytest
from support.networks.published_sizes import require_sizes

from paddlevit_dist.core.tasks.model_factory import variant_options

VD = {"r18vd": 20, "r34vd": 31, "r50vd": 42, "r101vd": 76}  # millions in the authors' READMEs
FINE = {"n": 4, "s": 10, "m": 19, "l": 31, "x": 62}


@pytest.mark.parametrize(("family", "sizes"), [("rtdetr", VD), ("deim_dfine", FINE)])  # others by night
def test_sizes_are_those_of_the_authors(family, sizes):
    require_sizes({f"{family}_{size}": number for size, number in sizes.items()}, num_classes=80)


def test_the_middle_size_of_rtdetrv2_is_that_of_the_authors():
    require_sizes({"deim_rtdetrv2_r50vd_m": 33}, num_classes=80)


def test_what_no_shape_tells_is_as_in_the_authors_configurations():
    scales = {f"{family}_{size}": 8.0 if size == "x" else 4.0 for family in ("dfine", "deim_dfine") for size in FINE}
    found = {name: variant_options(name).get("reg_scale", 4.0) for name in scales}
    assert found == scales
    for size in VD:
        assert variant_options(f"rtdetrv2_{size}_dsp")["is_discrete"]
        assert not variant_options(f"rtdetrv2_{size}").get("is_discrete", False)
