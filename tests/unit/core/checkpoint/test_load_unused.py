"""Weights with entries that a model has no place for."""

import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model

SIZES = {"num_classes": 4, "image_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}


def small(name: str):
    return create_model(name, **SIZES)


@pytest.fixture
def distilled():
    return dict(small("deit_tiny_distilled_patch16_224").state_dict())


def test_distilled_weights_are_not_evaluated_in_the_plain_network(distilled):
    with pytest.raises(UserError, match="does not have dist_token .*head_dist.*deit_SIZE_distilled"):
        load_weights(small("deit_tiny_patch16_224"), distilled, strict=True)


def test_they_are_loaded_where_that_is_asked_for_and_never_as_a_whole(distilled):
    report = load_weights(small("deit_tiny_patch16_224"), distilled, strict=True, allow_unused=True)
    assert "100.0 %" not in report.summary()
    assert "not used dist_token, head_dist.weight, head_dist.bias" in report.summary()
    assert f"{len(distilled) - 3} of {len(distilled)} entries of the source used" in report.summary()


COMPUTED = ["layers.0.attn_mask", "attn.relative_position_index", "attn.relative_coords_table"]
COMPUTED += ["mask_token", "masked_embed", "embeddings.position_ids"]


@pytest.mark.parametrize("name", COMPUTED)
def test_entries_that_no_evaluation_reads_do_not_count(distilled, name):
    model = small("deit_tiny_distilled_patch16_224")
    report = load_weights(model, {**distilled, name: paddle.ones([2])}, strict=True)
    assert report.unexpected == [] and "100.0 % of parameters" in report.summary()


TEXTS = ["text_model.norm.weight", "text_projection.weight", "visual_projection.weight", "pooler.dense.bias"]
TEXTS += ["logit_scale", "logit_bias", "clip.text_model.norm.weight", "clip.logit_scale"]


@pytest.mark.parametrize("name", TEXTS)
def test_a_network_of_texts_beside_is_told_and_not_missed(distilled, name):
    model = small("deit_tiny_distilled_patch16_224")
    report = load_weights(model, {**distilled, name: paddle.ones([2])}, strict=True)
    assert report.unexpected == [name] and f"not used {name}" in report.summary()


@pytest.mark.parametrize(
    "name", ["xtext_model.w", "text_models.w", "pooler", "logit_scale.w", "logit_scales", "xlogit_bias"]
)
def test_names_that_only_look_like_those_of_texts_are_of_another_network(distilled, name):
    with pytest.raises(UserError, match=f"does not have {name}"):
        load_weights(small("deit_tiny_distilled_patch16_224"), {**distilled, name: paddle.ones([2])}, strict=True)


def test_what_only_pretraining_needs_is_dropped_and_counted_by_its_part(distilled):
    names = ["pretraining_head.0.weight", "teacher.pretraining_head.0.bias", "pretraining_decoder.norm.weight"]
    model = small("deit_tiny_distilled_patch16_224")
    report = load_weights(model, {**distilled, **{name: paddle.ones([2]) for name in names}}, strict=True)
    assert report.unexpected == [] and report.notices == [
        "pretraining_head, which only pretraining needs, dropped (2 entries)",
        "pretraining_decoder, which only pretraining needs, dropped (1 entries)",
    ]
