"""Every variant is fed as timm feeds it by default."""

import json
from pathlib import Path

import pytest

from paddlevit_dist.checkpoint.published import PUBLISHED
from paddlevit_dist.images.models import variants
from paddlevit_dist.images.models.variants import ExpectedInput, expected_input

# Facts of timm without its weights: ``default_cfgs`` of its models, for each name here that it has.
TIMM = {
    name: row
    for row in json.loads(Path(__file__).with_name("timm_inputs.json").read_text(encoding="utf-8"))["inputs"]
    for name in row["names"]
}
NOT_TIMMS = {"vit", *variants.MIT, *(name for name in variants.PVT_V2 if name.startswith("pvtv2"))}


def as_input(row: dict) -> ExpectedInput:
    mean, std = tuple(row["mean"]), tuple(row["std"])
    return ExpectedInput(mean, std, row["crop_pct"], row["interpolation"], row["size"], row["crop_mode"])


def test_timms_table_has_every_name():
    names = {name for family, _ in variants._INPUTS for name in family}
    assert names - NOT_TIMMS == set(TIMM)


@pytest.mark.parametrize("name", sorted(TIMM))
def test_a_variant_expects_what_timm_feeds_it(name):
    assert expected_input(name) == as_input(TIMM[name])


def test_paddlevits_names_expect_what_timms_do():
    for name in NOT_TIMMS - {"vit", *variants.MIT}:
        assert expected_input(name) == expected_input(name.replace("pvtv2", "pvt_v2").replace("linear", "li"))


def test_published_weights_that_make_a_square_are_two():
    squashed = {name for name, row in PUBLISHED.items() if row.crop_mode == "squash"}
    assert squashed == {
        "eva02_base_patch14_448.mim_in22k_ft_in22k_in1k",
        "eva02_large_patch14_448.mim_m38m_ft_in22k_in1k",
    }
