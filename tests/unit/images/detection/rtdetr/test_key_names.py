# ruff: noqa: E501
"""Whose names RT-DETR's and D-FINE's weights can have: each beside that of transformers 5, from the files that each
program writes."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.processes import ROOT

from paddlevit_dist.core.checkpoint.published import find_published_detectors
from paddlevit_dist.core.checkpoint.weights import weights_from_mapping
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.model import ClassLayout
from paddlevit_dist.images.detection.rtdetr import key_names
from paddlevit_dist.images.detection.rtdetr.variants import RTDETR

AUTHORS = {
    "backbone.conv1.conv1_3.norm.running_var": "backbone.model.embedder.embedder.2.normalization.running_var",
    "backbone.res_layers.0.blocks.0.short.conv.weight": "backbone.model.encoder.stages.0.layers.0.shortcut.convolution.weight",
    "backbone.res_layers.0.blocks.0.short.norm.bias": "backbone.model.encoder.stages.0.layers.0.shortcut.normalization.bias",
    "backbone.res_layers.1.blocks.0.short.conv.conv.weight": "backbone.model.encoder.stages.1.layers.0.shortcut.1.convolution.weight",
    "backbone.res_layers.1.blocks.0.short.conv.norm.weight": "backbone.model.encoder.stages.1.layers.0.shortcut.1.normalization.weight",
    "backbone.res_layers.2.blocks.5.branch2c.conv.weight": "backbone.model.encoder.stages.2.layers.5.layer.2.convolution.weight",
    "encoder.input_proj.2.0.weight": "encoder_input_proj.2.0.weight",
    "encoder.input_proj.2.norm.bias": "encoder_input_proj.2.1.bias",  # of RT-DETRv2
    "encoder.encoder.0.layers.0.linear1.bias": "encoder.aifi.0.layers.0.mlp.fc1.bias",
    "encoder.encoder.0.layers.0.norm2.weight": "encoder.aifi.0.layers.0.final_layer_norm.weight",
    "encoder.encoder.0.layers.0.self_attn.out_proj.weight": "encoder.aifi.0.layers.0.self_attn.o_proj.weight",
    "encoder.fpn_blocks.1.bottlenecks.2.conv1.conv.weight": "encoder.fpn_blocks.1.bottlenecks.2.conv1.conv.weight",
    "encoder.lateral_convs.0.norm.weight": "encoder.lateral_convs.0.norm.weight",
    "decoder.input_proj.1.conv.weight": "decoder_input_proj.1.0.weight",
    "decoder.input_proj.1.norm.running_mean": "decoder_input_proj.1.1.running_mean",
    "decoder.decoder.layers.1.cross_attn.value_proj.weight": "decoder.layers.1.encoder_attn.value_proj.weight",
    "decoder.decoder.layers.1.norm1.weight": "decoder.layers.1.self_attn_layer_norm.weight",
    "decoder.decoder.layers.1.norm2.weight": "decoder.layers.1.encoder_attn_layer_norm.weight",
    "decoder.decoder.layers.1.norm3.bias": "decoder.layers.1.final_layer_norm.bias",
    "decoder.decoder.layers.1.linear2.weight": "decoder.layers.1.mlp.fc2.weight",
    "decoder.dec_score_head.2.weight": "decoder.class_embed.2.weight",
    "decoder.dec_bbox_head.2.layers.1.bias": "decoder.bbox_embed.2.layers.1.bias",
    "decoder.query_pos_head.layers.0.weight": "decoder.query_pos_head.layers.0.weight",
    "decoder.enc_output.0.weight": "enc_output.0.weight",
    "decoder.enc_output.norm.weight": "enc_output.1.weight",
    "decoder.enc_score_head.bias": "enc_score_head.bias",
    "decoder.denoising_class_embed.weight": "denoising_class_embed.weight",
    # D-FINE
    "backbone.stem.stem2a.conv.weight": "backbone.model.embedder.stem2a.convolution.weight",
    "backbone.stem.stem2a.lab.scale": "backbone.model.embedder.stem2a.lab.scale",
    "backbone.stages.2.blocks.1.layers.3.conv1.bn.weight": "backbone.model.encoder.stages.2.blocks.1.layers.3.conv1.normalization.weight",
    "backbone.stages.0.blocks.0.layers.3.lab.bias": "backbone.model.encoder.stages.0.blocks.0.layers.3.lab.bias",
    "backbone.stages.1.blocks.0.aggregation.1.bn.bias": "backbone.model.encoder.stages.1.blocks.0.aggregation.1.normalization.bias",
    "backbone.stages.1.downsample.conv.weight": "backbone.model.encoder.stages.1.downsample.convolution.weight",
    "encoder.fpn_blocks.0.cv1.conv.weight": "encoder.fpn_blocks.0.conv1.conv.weight",
    "encoder.fpn_blocks.0.cv2.0.bottlenecks.1.conv2.norm.weight": "encoder.fpn_blocks.0.csp_rep1.bottlenecks.1.conv2.norm.weight",
    "encoder.pan_blocks.1.cv2.1.conv.weight": "encoder.pan_blocks.1.conv2.conv.weight",
    "encoder.pan_blocks.1.cv3.0.conv2.conv.weight": "encoder.pan_blocks.1.csp_rep2.conv2.conv.weight",
    "encoder.pan_blocks.1.cv3.1.norm.weight": "encoder.pan_blocks.1.conv3.norm.weight",
    "encoder.downsample_convs.0.0.cv2.conv.weight": "encoder.downsample_convs.0.conv2.conv.weight",
    "decoder.decoder.layers.0.gateway.gate.weight": "decoder.layers.0.gateway.gate.weight",
    "decoder.decoder.lqe_layers.0.reg_conf.layers.1.bias": "decoder.lqe_layers.0.reg_conf.layers.1.bias",
    "decoder.pre_bbox_head.layers.2.weight": "decoder.pre_bbox_head.layers.2.weight",
    "decoder.reg_scale": "decoder.reg_scale",
}
PADDLE_DETECTION = {
    "backbone.conv1.conv1_1.norm._mean": "backbone.model.embedder.embedder.0.normalization._mean",
    "backbone.res2.res2a.short.conv.weight": "backbone.model.encoder.stages.0.layers.0.shortcut.convolution.weight",
    "backbone.res3.res3a.short.conv.norm._variance": "backbone.model.encoder.stages.1.layers.0.shortcut.1.normalization._variance",
    "backbone.res4.res4f.branch2b.conv.weight": "backbone.model.encoder.stages.2.layers.5.layer.1.convolution.weight",
    "backbone.res4.res4b22.branch2a.conv.weight": "backbone.model.encoder.stages.2.layers.22.layer.0.convolution.weight",
    "neck.encoder.0.layers.0.linear2.weight": "encoder.aifi.0.layers.0.mlp.fc2.weight",
    "neck.fpn_blocks.0.conv3.bn.weight": "encoder.fpn_blocks.0.conv3.norm.weight",
    "neck.input_proj.1.1._mean": "encoder_input_proj.1.1._mean",
    "transformer.dec_score_head.0.bias": "decoder.class_embed.0.bias",
    "transformer.decoder.layers.2.cross_attn.output_proj.weight": "decoder.layers.2.encoder_attn.output_proj.weight",
    "transformer.input_proj.0.norm._variance": "decoder_input_proj.0.1._variance",
}
OLDER = {
    "model.encoder.encoder.0.layers.0.self_attn.out_proj.bias": "encoder.aifi.0.layers.0.self_attn.o_proj.bias",
    "model.encoder.encoder.0.layers.0.fc1.weight": "encoder.aifi.0.layers.0.mlp.fc1.weight",
    "model.decoder.layers.3.fc2.weight": "decoder.layers.3.mlp.fc2.weight",
    "model.decoder.layers.3.mlp.layers.0.weight": "decoder.layers.3.mlp.fc1.weight",  # of D-FINE
    "model.decoder.lqe_layers.0.reg_conf.layers.0.weight": "decoder.lqe_layers.0.reg_conf.layers.0.weight",
    "model.decoder.query_pos_head.layers.1.bias": "decoder.query_pos_head.layers.1.bias",
}


@pytest.mark.parametrize(
    ("convert", "names"),
    [
        (key_names.from_authors, AUTHORS),
        (key_names.from_paddle_detection, PADDLE_DETECTION),
        (key_names.from_huggingface, OLDER),
        (key_names.from_huggingface, {f"model.{name}": name for name in AUTHORS.values()}),
    ],
    ids=["authors", "PaddleDetection", "transformers 4", "transformers 5"],
)
def test_names_of_others_are_those_of_transformers(convert, names):
    for theirs, expected in names.items():
        assert list(convert({theirs: np.ones(3)})) == [f"model.{expected}"], theirs


@pytest.mark.parametrize(
    ("prefix", "layout"), [("encoder.encoder.0.layers.0", "torch"), ("neck.encoder.0.layers.0", "paddle")]
)
def test_joint_projections_are_divided_along_their_outputs(prefix, layout):
    weight, bias = np.arange(27.0 * 9).reshape(27, 9), np.arange(27.0)
    is_paddle = layout == "paddle"
    convert = key_names.from_paddle_detection if is_paddle else key_names.from_authors
    state = {f"{prefix}.self_attn.in_proj_weight": weight.T if is_paddle else weight}
    state[f"{prefix}.self_attn.in_proj_bias"] = bias
    damaged = {"encoder.encoder.0.layers.0.self_attn.in_proj_bias": np.ones(10)}
    assert len(key_names.from_authors(damaged)) == 1  # is told with all others that do not fit
    found = convert(state)
    for position, part in enumerate(("q_proj", "k_proj", "v_proj")):
        name = f"model.encoder.aifi.0.layers.0.self_attn.{part}"
        own = found[f"{name}.weight"]
        np.testing.assert_array_equal(own.T if is_paddle else own, weight[9 * position : 9 * position + 9], strict=True)
        np.testing.assert_array_equal(found[f"{name}.bias"], bias[9 * position : 9 * position + 9], strict=True)


def test_what_can_be_computed_is_left_out():
    state = (
        "decoder.anchors decoder.valid_mask decoder.decoder.up encoder.lateral_convs.0.norm.num_batches_tracked".split()
    )
    state += ["decoder.decoder.layers.0.cross_attn.num_points_scale"]
    assert key_names.from_authors({name: np.ones(2) for name in state}) == {}
    heads = {"class_embed.0.weight": np.ones(2), "bbox_embed.0.layers.0.bias": np.ones(2)}
    assert key_names.from_huggingface(heads) == {}


def test_paddle_detections_embedding_of_classes_gets_its_row_of_zeros():
    found = key_names.from_paddle_detection({"transformer.denoising_class_embed.weight": np.ones((80, 4))})
    embedding = found["model.denoising_class_embed.weight"]
    assert embedding.shape == (81, 4) and not embedding[80].any() and embedding[:80].all()


def test_of_an_authors_checkpoint_the_average_is_taken():
    state = {
        "ema": {"module": {"a.weight": np.ones(2)}, "updates": 3},
        "model": {"a.weight": np.zeros(2)},
        "last_epoch": 5,
    }
    weights = weights_from_mapping(state)
    assert weights.state["a.weight"].all()
    assert weights.notices == (
        "'ema' of the source was used; it also has 'model' (MODEL.PRETRAINED_PART model, or -part=model of convert and export, selects another)",
    )
    assert not weights_from_mapping(state, part="model").state["a.weight"].any()


def test_heads_for_objects365_are_those_of_cocos_categories_by_name():
    bias = np.arange(366.0)
    found = key_names.select_objects365_rows(bias, 80)
    # Numbers of Objects365's categories, from 1: person, bicycle, car, motorcycle; the last of COCO's is toothbrush.
    np.testing.assert_array_equal(found[[0, 1, 2, 3, 79]], [1, 47, 6, 59, 227])
    assert len(found) == len(set(found)) == 80
    weight = key_names.select_objects365_rows(np.stack([bias, bias + 1000]), 80)
    np.testing.assert_array_equal(weight, [found, found + 1000], strict=True)
    embedding = key_names.select_objects365_rows(np.arange(367.0)[:, None], 80, is_embedding=True)
    np.testing.assert_array_equal(embedding[:, 0], [*found, 366], strict=True)
    assert key_names.select_objects365_rows(bias, 3) is None and key_names.select_objects365_rows(bias[:91], 80) is None
    model = resolve("model", "rtdetr_r18vd")
    network, rows = SimpleNamespace(num_classes=80), np.arange(367.0)[:, None]
    for name, value, expected in (
        ("enc_score_head.bias", bias, found),
        ("decoder.class_embed.1.weight", np.stack([bias]), found[None]),
        ("denoising_class_embed.weight", rows, embedding),
    ):
        np.testing.assert_array_equal(model.resize_parameter(network, name, value), expected, strict=True)
        assert model.class_layout(network, name) == (1, 0, 1, 0) if value is rows else ClassLayout()
    assert model.resize_parameter(network, "decoder.query_pos_head.weight", bias) is None
    names = ["decoder.class_embed.1.weight", "denoising_class_embed.weight"]
    assert model.list_resize_notices(network, names) == []
    notices = model.list_resize_notices(network, [*names, "enc_score_head.bias"])
    assert notices == ["of 366 outputs for Objects365, the outputs of COCO's 80 categories were used, in COCO's order"]


def test_published_weights_are_listed_beside_their_networks_and_recipes_name_them():
    listed = [name for model in RTDETR for name in find_published_detectors(model)]
    assert len(listed) == len(set(listed)) == 24 and "hf:ustc-community/dfine-large-obj2coco-e25" in listed
    for recipe in (ROOT / "configs").glob("*_coco.yaml"):
        model = recipe.stem.removesuffix("_coco")
        if find_published_detectors(model):
            assert f"-eval -pretrained={find_published_detectors(model)[0]}\n" in recipe.read_text()
            assert f"NAME: {model}\n" in recipe.read_text()
