"""Every variant is fed as timm feeds it by default."""

import json
from pathlib import Path

from paddlevit_dist.core.checkpoint.published import PUBLISHED
from paddlevit_dist.core.registry.model_names import read_model_names
from paddlevit_dist.images.models.mit import MixVisionTransformer
from paddlevit_dist.images.models.pretrained_input import ExpectedInput, find_variant_input
from paddlevit_dist.images.models.pvt_v2 import PyramidVisionTransformer

# Facts of timm without its weights: ``default_cfgs`` of its models, for each name here that it has.
FACTS = json.loads(Path(__file__).with_name("timm_inputs.json").read_text(encoding="utf-8"))
TIMM, WEIGHTS = ({name: row for row in FACTS[part] for name in row["names"]} for part in ("inputs", "published"))
PADDLEVITS = {name for name in PyramidVisionTransformer.variants if name.startswith("pvtv2")}


def as_input(row: dict) -> ExpectedInput:
    mean, std = tuple(row["mean"]), tuple(row["std"])
    return ExpectedInput(mean, std, row["crop_pct"], row["interpolation"], row["size"], row["crop_mode"])


def test_timms_table_has_every_name():
    names = {
        name for family in read_model_names().values() for name, expected in family.items() if expected is not None
    }
    assert names - PADDLEVITS - set(MixVisionTransformer.variants) == set(TIMM)


def test_a_variant_expects_what_timm_feeds_it():
    assert {name: find_variant_input(name) for name in TIMM} == {name: as_input(row) for name, row in TIMM.items()}


def test_published_weights_expect_what_timm_feeds_them():
    assert set(WEIGHTS) == set(PUBLISHED)
    for name, row in PUBLISHED.items():
        size = find_variant_input(row.model).image_size
        found = ExpectedInput(row.mean, row.std, row.crop_pct, row.interpolation, size, row.crop_mode)
        assert found == as_input(WEIGHTS[name]), name


def test_paddlevits_names_expect_what_timms_do():
    for name in PADDLEVITS:
        assert find_variant_input(name) == find_variant_input(name.replace("pvtv2", "pvt_v2").replace("linear", "li"))
