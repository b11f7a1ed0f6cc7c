"""Names that transformers gives the parameters of foundation backbones."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.images.models.foundation_names import FOUNDATION
from paddlevit_dist.images.models.vit import VisionTransformer

TO_OURS = FOUNDATION["Hugging Face's DINO, CLIP and SigLIP"]


@pytest.mark.parametrize("prefix", ["", "dinov2.", "dinov2_with_registers.", "dinov3_vit."])
def test_prefixes_of_classifiers_are_stripped(prefix):
    names = {"embeddings.mask_token": 0, "embeddings.patch_embeddings.projection.bias": 1, "layernorm.weight": 1}
    state = {f"{prefix}{name}": np.zeros(3) for name in names}
    assert set(TO_OURS({**state, "classifier.weight": np.zeros((4, 6))})) == {
        "patch_embed.proj.bias",
        "norm.weight",
        "head.weight",
    }


# Our names as mmpretrain's, whose classifier has the backbone in one attribute.
_MMPRETRAIN = {
    ".norm1.": ".ln1.",
    ".norm2.": ".ln2.",
    ".mlp.fc1.": ".ffn.layers.0.0.",
    ".mlp.fc2.": ".ffn.layers.1.",
    ".ls1.gamma": ".attn.gamma1.weight",
    ".ls2.gamma": ".ffn.gamma2.scale",
    "patch_embed.proj.": "patch_embed.projection.",
    "backbone.norm.": "backbone.ln1.",
    "backbone.fc_norm.": "backbone.ln2.",
    "backbone.blocks.": "backbone.layers.",
    "backbone.head.": "head.layers.head.",
}


@pytest.mark.parametrize("options", [{}, {"init_values": 0.1}, {"num_classes": 0}])
def test_names_of_mmpretrain_load_whole_into_a_vit(options):
    source, model = (
        VisionTransformer(
            **{"num_classes": 3, **options}, image_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2
        )
        for _ in range(2)
    )
    ours = {name: value.numpy() for name, value in source.state_dict().items()}
    state = {}
    for name, value in ours.items():
        name = f"backbone.{name}"
        for old, new in _MMPRETRAIN.items():
            name = name.replace(old, new)
        state[name] = value.T if value.ndim == 2 else value
    report = load_weights(model, state, strict=True)
    assert report.origin == "mmpretrain names, Linear weights (out, in)" and not report.unexpected
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), ours[name], name)


@pytest.mark.parametrize("is_table", [True, False])
def test_first_position_beside_registers_is_the_class_tokens_only_without_a_table(is_table):
    tokens = np.arange(36 + (not is_table))[:, None] * np.ones(4)
    name = "embeddings.position_embeddings"
    state = {f"{name}.weight": tokens} if is_table else {name: tokens[None]}
    state |= {"embeddings.cls_token": np.full((1, 1, 4), 100), "embeddings.register_tokens": np.zeros((1, 4, 4))}
    ours = TO_OURS({**state, "layernorm.weight": np.ones(4)})
    np.testing.assert_array_equal(ours["pos_embed"], tokens[None, (0 if is_table else 1) :])
    assert ours["cls_token"].max() == 100 and ours["cls_token"].shape == (1, 1, 4)


def _make_dinov2_classifier(registers: int, num_classes: int) -> tuple[VisionTransformer, dict[str, np.ndarray]]:
    """A network without a classifier, and its weights with a classifier of twice its width."""
    paddle.seed(5)
    options = {"image_size": 28, "patch_size": 14, "embed_dim": 8, "depth": 1, "num_heads": 2, "init_values": 1.0}
    body = VisionTransformer(num_classes=0, registers=registers, **options)
    state = {f"backbone.{name}": value.numpy() for name, value in body.state_dict().items()}
    rng = np.random.default_rng(0)
    state["head.weight"] = rng.standard_normal((16, num_classes)).astype("f4")
    state["head.bias"] = rng.standard_normal(num_classes).astype("f4")
    return body, {name.removeprefix("backbone."): value for name, value in state.items()}


@pytest.mark.parametrize("registers", [0, 3])
def test_a_classifier_of_twice_the_width_reads_class_token_and_mean_patch(registers):
    body, state = _make_dinov2_classifier(registers, num_classes=3)
    whole = VisionTransformer(
        num_classes=3,
        registers=registers,
        **{name: getattr(body.config, name) for name in ("embed_dim", "depth", "num_heads", "init_values")},
        image_size=28,
        patch_size=14,
    )
    report = load_weights(whole, state, strict=True, follows=True)
    images = paddle.to_tensor(np.random.default_rng(1).standard_normal((2, 3, 28, 28)).astype("f4"))
    tokens = body.tokens(images).numpy()
    pooled = np.concatenate([tokens[:, 0], tokens[:, 1 + registers :].mean(1)], 1)
    np.testing.assert_allclose(whole(images).numpy(), pooled @ state["head.weight"] + state["head.bias"], atol=1e-5)
    assert any("class token and the mean of the patches" in line for line in report.notices)


def test_only_where_it_may_is_a_classifier_made_anew():
    _, state = _make_dinov2_classifier(0, num_classes=3)
    options = {"image_size": 28, "patch_size": 14, "depth": 1, "num_heads": 2, "init_values": 1.0}
    model = VisionTransformer(num_classes=3, embed_dim=8, **options)
    before = model.head.weight
    assert {"head.weight", "head.bias"} <= set(load_weights(model, state).reinitialized)  # as in a training
    assert model.head.weight is before and model.config.pool == "token"
    assert VisionTransformer(num_classes=3, embed_dim=16, **options).follow_source(state) == []  # of another width
    with pytest.raises(UserError, match="pool 'token_and_average' needs the class token"):
        VisionTransformer(embed_dim=8, pool="token_and_average", class_token=False, **options)


@pytest.mark.parametrize("side", [28, 84])
def test_positions_of_transformers_are_loaded_as_its_network_of_the_trained_size_computes_them(side):
    config = {"model_type": "dinov2", "image_size": 56, "patch_size": 14, "hidden_size": 8, "num_hidden_layers": 1}
    options = VisionTransformer.read_described({**config, "num_attention_heads": 2, "mlp_ratio": 4})
    trained = VisionTransformer(num_classes=0, **options)
    other = VisionTransformer(num_classes=0, **{**options, "image_size": side})
    assert load_weights(other, {name: value.numpy() for name, value in trained.state_dict().items()}).resized
    images = paddle.to_tensor(np.random.default_rng(1).standard_normal((1, 3, side, side)).astype("f4"))
    np.testing.assert_allclose(other(images).numpy(), trained(images).numpy(), atol=1e-5)
