"""Weights of equal shapes, but of another network, as ``config.json`` beside them tells."""

import functools
import json

import numpy as np
import paddle
import pytest
from support.networks import small_detr
from support.networks.golden_rtdetr import MODELS

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.network_facts import list_network_differences
from paddlevit_dist.core.tasks.model import Model
from paddlevit_dist.core.tasks.model_factory import create_model

CLASSIFIER = {
    "hidden_act": "gelu",
    "hidden_size": 16,
    "layer_norm_eps": 1e-12,
    "id2label": {"0": "a"},
    "qkv_bias": True,
}
VIT = {"image_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}


@functools.cache  # no test changes it
def build_golden(name: str):
    """Build a network with what no shape tells as the golden configuration says."""
    config = MODELS[name]["config"]
    is_fine = MODELS[name]["family"] == "d_fine"
    levels = config["num_feature_levels"]
    return create_model(
        "dfine_small" if is_fine else "rtdetr_small",
        num_classes=3,
        feature_levels=tuple(range(-levels, 0)),
        encoder_heads=config["encoder_attention_heads"],
        num_heads=config["decoder_attention_heads"],
        decoder_layers=config["decoder_layers"],
        num_queries=config["num_queries"],
        points=config["decoder_n_points"],
        is_discrete=config.get("decoder_method") == "discrete",
        backbone_options={"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 8)},
    )


def differences(model, folder, config: dict, state=None) -> list[str]:
    (folder / "config.json").write_text(json.dumps(config))
    return list_network_differences(model, str(folder / "w.bin"), folder / "w.bin", state or {})


GOLDEN = [name for name in MODELS if name != "rtdetr_r50vd"]


@pytest.mark.parametrize("name", GOLDEN)
def test_every_field_of_a_detectors_configuration_is_known(tmp_path, name):
    model, config = build_golden(name), {"model_type": MODELS[name]["family"], **MODELS[name]["config"]}
    assert [text for text in differences(model, tmp_path, config) if "feat_strides" not in text] == []


@pytest.mark.parametrize(
    "changed",
    [
        {"decoder_n_points": [4, 4, 4]},
        {"decoder_method": "discrete"},
        {"decoder_offset_scale": 1.0},
        {"encoder_attention_heads": 2},
        {"decoder_attention_heads": 2},
        {"decoder_activation_function": "silu"},
        {"activation_function": "gelu"},
        {"num_queries": 31},
        {"eval_idx": 0},
        {"normalize_before": True},
        {"learn_initial_query": True},
        {"encode_proj_layers": [1]},
        {"positional_encoding_temperature": 20},
        {"layer_norm_eps": 1e-3},
        {"backbone_config": {"hidden_act": "silu"}},
        {"backbone_config": {"stem_strides": [1, 1, 1, 2, 1]}},
        {"a_new_field": 3},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_value_is_told_by_its_name(tmp_path, changed):
    config = {"model_type": "d_fine", **MODELS["d_fine_small"]["config"]}
    model = build_golden("d_fine_small")
    before = differences(model, tmp_path, config)
    (text,) = set(differences(model, tmp_path, {**config, **changed})) - set(before)
    name = next(iter(changed))
    assert text.startswith(f"config.json: {name}{'.' if name == 'backbone_config' else ' '}")


def test_values_that_arrays_hold_are_compared(tmp_path):
    model = build_golden("d_fine_small")
    state = {"model.decoder.reg_scale": np.float32([8]), "model.decoder.up": np.float32([0.5])}
    assert differences(model, tmp_path, {}, state) == ["model.decoder.reg_scale is 8 there, 4 here"]


class Facts(Model):
    """A network with facts of several kinds."""

    def network_facts(self):
        return {"model_type": ("own",), "eps": -1e-5, "zero": 0.0, "kind": frozenset(("b", "a")), "sides": (2, 3)}


@pytest.mark.parametrize(
    "config, told",
    [
        ({"eps": -1.0000005e-5, "zero": 0, "kind": "a", "sides": [2, 3]}, None),
        ({"eps": -1.000002e-5}, "eps is -1.000002e-05 there, -1e-05 here"),
        ({"zero": 1e-36}, "zero is 1e-36 there, 0.0 here"),
        ({"kind": "c"}, 'kind is "c" there, a or b here'),
        ({"sides": [3, 2]}, "sides is [3, 2] there, [2, 3] here"),
        ({"sides": [2, 3, 4]}, "sides is [2, 3, 4] there, [2, 3] here"),
        ({"sides": 2}, "sides is 2 there, [2, 3] here"),
        *(({"other": value}, None) for value in (None, False, "", [], {}, 0)),
        ({"other": True}, "other is true there, which is not known here"),
        ({"other": "x" * 90}, f'other is "{"x" * 79} there, which is not known here'),
    ],
)
def test_values_are_equal_to_a_millionth_and_nothing_is_no_difference(tmp_path, config, told):
    found = differences(Facts(), tmp_path, {"model_type": "own", **config})
    assert found == ([] if told is None else [f"config.json: {told}"])


def test_dilation_is_no_matter_of_shapes(tmp_path):
    model, config = small_detr.small_detr(), {"model_type": "detr", "encoder_attention_heads": 2, "dilation": True}
    heads = model.network_facts().get("encoder_attention_heads")
    found = differences(model, tmp_path, {**config, "encoder_attention_heads": heads})
    assert found == (["config.json: dilation is true there, false here"] if heads else [])


@pytest.mark.parametrize(
    "name, options, config, changed",
    [
        ("vit", VIT, {"model_type": "vit", "num_attention_heads": 2}, {"num_attention_heads": 4}),
        ("vit", VIT, {"model_type": "deit", "num_attention_heads": 2}, {"hidden_act": "quick_gelu"}),
        (
            "swin_tiny_patch4_window7_224",
            {},
            {"model_type": "swin", "num_heads": [3, 6, 12, 24]},
            {"num_heads": [6, 6, 12, 24]},
        ),
        ("resnet50", {}, {"model_type": "resnet", "hidden_act": "relu"}, {"downsample_in_bottleneck": True}),
        ("convnext_tiny", {}, {"model_type": "convnext", "num_stages": 4}, {"hidden_act": "relu"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_classifiers_are_compared(tmp_path, name, options, config, changed):
    with paddle.LazyGuard():
        model = create_model(name, 3, **options)
    config = {**CLASSIFIER, **config}
    config = {key: value for key, value in config.items() if name != "resnet50" or key != "layer_norm_eps"}
    assert differences(model, tmp_path, config) == []
    (text,) = differences(model, tmp_path, {**config, **changed})
    assert next(iter(changed)) in text
    assert differences(model, tmp_path, {**config, **changed, "model_type": "another"}) == []


def test_an_evaluation_is_refused_and_a_training_is_told(tmp_path):
    model = create_model("vit", 3, **VIT)
    paddle.save(model.state_dict(), str(tmp_path / "w.pdparams"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit", "num_attention_heads": 4}))
    with pytest.raises(UserError, match="num_attention_heads is 4 there, 2 here; set MODEL.NAME"):
        load_weights(model, str(tmp_path / "w.pdparams"), strict=True)
    text = "of another network: config.json: num_attention_heads is 4 there, 2 here"
    assert text in load_weights(model, str(tmp_path / "w.pdparams")).summary()
    assert text in load_weights(model, str(tmp_path / "w.pdparams"), strict=True, allow_unused=True).summary()
