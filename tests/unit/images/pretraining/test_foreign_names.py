"""Names that convert writes for transformers: the names of its networks, whose maps read them back unchanged."""

import numpy as np
import pytest
from support.networks import golden

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.pretraining.foreign_names import name_like_transformers
from paddlevit_dist.images.pretraining.masked_autoencoder.network import MaskedAutoencoder

SIZES = {"image_size": 16, "patch_size": 4, "embed_dim": 16, "depth": 3, "num_heads": 2}


def draw_state(model):
    """Random values by our names, with Linear weights (out, in)."""
    generator = np.random.default_rng(0)
    state = {}
    for name, parameter in model.named_parameters():
        value = generator.random(tuple(parameter.shape), np.float32)
        state[name] = value.T if value.ndim == 2 else value
    return state


def load(model, state):
    report = load_weights(model, state)
    assert report.missing + report.unexpected == []
    return {name: parameter.numpy() for name, parameter in model.named_parameters()}


def test_golden_names_and_shapes_of_a_masked_autoencoder_are_transformers():
    networks = [about for about in golden.description("mae")["models"].values() if "config" in about]
    about = min(networks, key=lambda about: about["parameters"])
    config = about["config"]
    encoder = create_model("vit", 0, **{**SIZES, "depth": config["num_hidden_layers"]})
    model = MaskedAutoencoder(encoder, 0.75, 8, config["decoder_num_hidden_layers"], 2)
    state = draw_state(model)
    renamed, without_place = name_like_transformers(state)
    assert without_place == [] and renamed.keys() == about["state"].keys()
    assert all(renamed[name].ndim == len(shape) for name, shape in about["state"].items())
    saved = {name.replace("decoder_layers.", "decoder_encoder.layer."): value for name, value in renamed.items()}
    for given in (renamed, saved):  # as transformers 4 and 5.24 save the network
        for parameter in model.parameters():
            parameter.set_value(parameter * 0)
        found = load(model, given)
        for name, value in state.items():
            np.testing.assert_array_equal(found[name], value.T if value.ndim == 2 else value, err_msg=name)


def test_a_masked_autoencoder_of_rectangles_has_no_place():
    model = MaskedAutoencoder(create_model("vit", 0, **{**SIZES, "image_size": (16, 24)}), 0.75, 8, 1, 2)
    with pytest.raises(UserError, match="takes square images, but there are 24 patches"):
        name_like_transformers(draw_state(model))


def test_golden_names_and_shapes_of_a_classifier_are_transformers():
    about = golden.description("huggingface_classifiers")["models"]["vit"]
    assert about["class"] == "ViTForImageClassification"
    model = create_model(about["equivalent"], about["state"]["classifier.bias"][0])
    state = draw_state(model)
    renamed, without_place = name_like_transformers(state)
    assert without_place == [] and {name: list(value.shape) for name, value in renamed.items()} == about["state"]
    np.testing.assert_array_equal(renamed["classifier.weight"], state["head.weight"])
    for parameter in model.parameters():
        parameter.set_value(parameter * 0)
    found = load(model, renamed)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value.T if value.ndim == 2 else value, err_msg=name)


def test_a_classifier_beside_a_decoder_has_no_place():
    encoder = create_model("vit", 0, **SIZES)
    state = draw_state(MaskedAutoencoder(encoder, 0.75, 8, 1, 2))
    head = {"head.weight": np.zeros((5, 16), "float32"), "head.bias": np.zeros(5, "float32")}
    renamed, without_place = name_like_transformers({**state, **head})
    assert renamed.keys() == name_like_transformers(state)[0].keys() and without_place == [*head]


def test_the_head_of_self_distillation_has_no_place_and_is_left_out():
    state = draw_state(create_model("vit", 0, **SIZES))
    head = {"pretraining_head.mlp.0.weight": np.zeros((4, 16)), "pretraining_head.last_layer.weight_g": np.ones((9, 1))}
    renamed, without_place = name_like_transformers({**state, **head})
    assert renamed.keys() == name_like_transformers(state)[0].keys() and without_place == [*head]


def test_parameters_without_a_place_are_refused():
    model = create_model("vit_small_patch14_reg4_dinov2", 0, **SIZES)
    with pytest.raises(UserError, match="transformers' ViT has no place for reg_token"):
        name_like_transformers(draw_state(model))
