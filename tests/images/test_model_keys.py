"""Weights under names that have no golden file: the authors', Google's, older ones; and weights for other sizes.

Each test renames the other way round than our maps do. PaddleViT's and Hugging Face's names are in the golden files.
"""

from __future__ import annotations

import re

import numpy as np
import paddle
import pytest
from PIL import Image

from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.errors import UserError
from paddlevit_dist.models import create_model

REDUCED = {
    "vit": {"depth": 2, "embed_dim": 48, "num_heads": 4, "patch_size": 8, "image_size": 32},
    "deit_tiny_distilled_patch16_224": {"depth": 2, "embed_dim": 24, "image_size": 64},
    "swin_tiny_patch4_window7_224": {"depths": (2, 2, 1, 1), "embed_dim": 24, "image_size": 96},
    "cait_xxs24_224": {"depth": 2, "embed_dim": 32, "image_size": 64},
    "pvt_v2_b2_li": {"depths": (1, 2, 1, 1), "embed_dims": (8, 16, 40, 64), "image_size": 64},
    "mixer_s16_224": {"depth": 2, "embed_dim": 32, "image_size": 64},
    "convnext_tiny": {"depths": (1, 2, 1, 1), "dims": (8, 16, 24, 32), "image_size": 64},
}


def small(name, seed, **options):
    paddle.seed(seed)
    model = create_model(name, num_classes=options.pop("num_classes", 5), **{**REDUCED[name], **options})
    rng = np.random.default_rng(seed)
    for parameter in model.parameters():
        parameter.set_value((0.1 + 0.2 * rng.standard_normal(parameter.shape)).astype("float32"))
    model.eval()
    return model


def logits(model):
    pixels = np.random.default_rng(0).standard_normal((2, 3, *model.image_size)).astype("float32")
    with paddle.no_grad():
        return model(paddle.to_tensor(pixels)).numpy()


def arrays(model):
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def in_torch_layout(model):
    linear = {f"{name}.weight" for name, layer in model.named_sublayers() if isinstance(layer, paddle.nn.Linear)}
    return {name: value.T if name in linear else value for name, value in arrays(model).items()}


def replaced(state, *pairs):
    result = {}
    for name, value in state.items():
        for pattern, replacement in pairs:
            name = re.sub(pattern, replacement, name)
        result[name] = value
    return result


def of_swins_authors(model):
    state = replaced(
        in_torch_layout(model),
        (r"^layers\.(\d)\.downsample", lambda m: f"layers.{int(m[1]) - 1}.downsample"),
        (r"^head\.fc\.", "head."),
    )
    state["layers.0.blocks.1.attn_mask"] = np.zeros((4, 49, 49))
    state["layers.0.blocks.0.attn.relative_position_index"] = np.zeros((49, 49), "int64")
    return state


def of_paddlevits_swin(model):
    state = replaced(
        arrays(model),
        (r"^layers\.(\d)\.downsample", lambda m: f"stages.{int(m[1]) - 1}.downsample"),
        (r"^layers\.", "stages."),
        (r"^patch_embed\.proj", "patch_embedding.patch_embed"),
        (r"^patch_embed\.norm", "patch_embedding.norm"),
        (r"^head\.fc\.", "fc."),
    )
    state["stages.0.blocks.1.attn_mask"] = np.zeros((4, 49, 49), "float32")
    return state


def of_pvts_authors(model):
    return replaced(
        in_torch_layout(model),
        (r"^patch_embed\.", "patch_embed1."),
        (r"^stages\.(\d)\.downsample\.", lambda m: f"patch_embed{int(m[1]) + 1}."),
        (r"^stages\.(\d)\.blocks\.", lambda m: f"block{int(m[1]) + 1}."),
        (r"^stages\.(\d)\.norm\.", lambda m: f"norm{int(m[1]) + 1}."),
        (r"\.dwconv\.", ".dwconv.dwconv."),
    )


def of_convnexts_authors(model):
    return replaced(
        in_torch_layout(model),
        (r"^stem\.", "downsample_layers.0."),
        (r"^stages\.(\d)\.downsample\.", r"downsample_layers.\1."),
        (r"\.blocks\.", "."),
        (r"\.conv_dw\.", ".dwconv."),
        (r"\.mlp\.fc", ".pwconv"),
        (r"^head\.norm\.", "norm."),
        (r"^head\.fc\.", "head."),
    )


def in_jax_layout(state):
    result = {}
    for name, value in state.items():
        if name.endswith("/weight"):
            kind = "scale" if value.ndim == 1 else "kernel"
            name = name[: -len("weight")] + kind
            value = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
        result[name] = value
    return result


def of_googles_vit(model, attention="MultiHeadDotProductAttention_1", second_norm="LayerNorm_2", mlp="MlpBlock_3"):
    heads, width = 4, 48
    state = {}
    for name, value in arrays(model).items():
        found = re.fullmatch(r"blocks\.(\d)\.attn\.(qkv|proj)\.(weight|bias)", name)
        if found is None:
            state[name] = value
        elif found[2] == "qkv":
            for part, piece in zip(("query", "key", "value"), np.split(value, 3, axis=-1)):
                shape = (width, heads, width // heads) if found[3] == "weight" else (heads, width // heads)
                state[f"blocks.{found[1]}.{attention}.{part}.{found[3]}"] = piece.reshape(shape)
        else:
            shape = (heads, width // heads, width) if found[3] == "weight" else (width,)
            state[f"blocks.{found[1]}.{attention}.out.{found[3]}"] = value.reshape(shape)
    state = replaced(
        state,
        (r"^cls_token$", "cls"),
        (r"^pos_embed$", "Transformer.posembed_input.pos_embedding"),
        (r"^patch_embed\.proj\.", "embedding."),
        (r"^norm\.", "Transformer.encoder_norm."),
        (r"^blocks\.(\d)\.norm1\.", r"blocks.\1.LayerNorm_0."),
        (r"^blocks\.(\d)\.norm2\.", rf"blocks.\1.{second_norm}."),
        (r"^blocks\.(\d)\.mlp\.fc([12])\.", lambda m: f"blocks.{m[1]}.{mlp}.Dense_{int(m[2]) - 1}."),
        (r"^blocks\.", "Transformer.encoderblock_"),
        (r"\.", "/"),
    )
    return in_jax_layout(state)


def of_big_visions_vit(model):
    state = of_googles_vit(model, "MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
    return {f"params/{name}": value for name, value in state.items()}


def of_googles_mixer(model):
    state = replaced(
        arrays(model),
        (r"^stem\.proj\.", "stem."),
        (r"^norm\.", "pre_head_layer_norm."),
        (r"\.norm([12])\.", lambda m: f".LayerNorm_{int(m[1]) - 1}."),
        (r"\.mlp_tokens\.fc([12])\.", lambda m: f".token_mixing.Dense_{int(m[1]) - 1}."),
        (r"\.mlp_channels\.fc([12])\.", lambda m: f".channel_mixing.Dense_{int(m[1]) - 1}."),
        (r"^blocks\.", "MixerBlock_"),
        (r"\.", "/"),
    )
    return in_jax_layout(state)


@pytest.mark.parametrize(
    "name, convert, origin",
    [
        ("vit", of_googles_vit, "Google names, Linear weights (in, out)"),
        ("vit", of_big_visions_vit, "Google names, Linear weights (in, out)"),
        ("mixer_s16_224", of_googles_mixer, "Google names, Linear weights (in, out)"),
        ("swin_tiny_patch4_window7_224", of_swins_authors, "the authors' names, Linear weights (out, in)"),
        ("swin_tiny_patch4_window7_224", of_paddlevits_swin, "PaddleViT names, Linear weights (in, out)"),
        ("pvt_v2_b2_li", of_pvts_authors, "the authors' names, Linear weights (out, in)"),
        ("convnext_tiny", of_convnexts_authors, "the authors' names, Linear weights (out, in)"),
        ("cait_xxs24_224", in_torch_layout, "timm names, Linear weights (out, in)"),
    ],
)
def test_other_names_give_the_same_logits(name, convert, origin, tmp_path):
    source, model = small(name, seed=1), small(name, seed=2)
    assert np.abs(logits(source) - logits(model)).max() > 1e-3
    report = load_weights(model, convert(source), strict=True)
    np.testing.assert_array_equal(logits(model), logits(source))
    assert report.origin == origin and report.unexpected == []
    if "Google" in origin:  # from the file that they are published in
        np.savez(tmp_path / "file.npz", **convert(source))
        again = small(name, seed=3)
        load_weights(again, tmp_path / "file.npz", strict=True)
        np.testing.assert_array_equal(logits(again), logits(source))


def test_parts_that_do_not_fit_together_stay_apart_and_are_said_to_be_missing():
    state = of_googles_vit(small("vit", seed=1))
    broken = "Transformer/encoderblock_0/MultiHeadDotProductAttention_1/key/kernel"
    state[broken] = state[broken][:, :2]
    report = load_weights(small("vit", seed=2), state, minimum_loaded=0.5)
    assert report.missing == ["blocks.0.attn.qkv.weight"] and len(report.unexpected) == 3


# Other sizes


def test_swins_bias_tables_are_resampled_to_larger_smaller_and_rectangular_windows():
    source = small("swin_tiny_patch4_window7_224", seed=1)
    table_name = "layers.0.blocks.1.attn.relative_position_bias_table"
    table = arrays(source)[table_name]
    assert table.shape == (13 * 13, 3)
    for options, window in (({"window_size": 9}, (9, 9)), ({"image_size": (20, 64)}, (5, 7))):
        model = small("swin_tiny_patch4_window7_224", seed=2, **options)
        report = load_weights(model, in_torch_layout(source), strict=True)
        assert table_name in report.resized
        height, width = (2 * side - 1 for side in window)
        resized = arrays(model)[table_name].reshape(height, width, 3)
        for head in range(3):
            picture = Image.fromarray(table[:, head].reshape(13, 13)).resize((width, height), Image.BICUBIC)
            np.testing.assert_allclose(resized[..., head], np.asarray(picture), atol=1e-6)


@pytest.mark.parametrize("name, prefix", [("vit", 1), ("deit_tiny_distilled_patch16_224", 2), ("cait_xxs24_224", 0)])
def test_position_embeddings_keep_the_tokens_in_front(name, prefix):
    source = small(name, seed=1)
    patch = source.patch_embed.patch_size
    model = small(name, seed=2, image_size=(3 * patch, 6 * patch))
    assert load_weights(model, in_torch_layout(source), strict=True).resized == ["pos_embed"]
    before, after = arrays(source)["pos_embed"], arrays(model)["pos_embed"]
    np.testing.assert_array_equal(after[:, :prefix], before[:, :prefix])
    old = before[0, prefix:, 0].reshape(4, 4)
    expected = np.asarray(Image.fromarray(old).resize((6, 3), Image.BICUBIC))
    np.testing.assert_allclose(after[0, prefix:, 0].reshape(3, 6), expected, atol=1e-6)


def test_a_mixer_for_another_size_is_refused_by_name():
    source = small("mixer_s16_224", seed=1)
    with pytest.raises(UserError, match="blocks.0.mlp_tokens.fc1.weight .* in the source.* in the model"):
        load_weights(small("mixer_s16_224", seed=2, image_size=32), in_torch_layout(source), strict=True)


@pytest.mark.parametrize("name", [name for name in REDUCED if name != "vit"])
def test_a_classifier_for_other_classes_starts_afresh_and_the_report_says_so(name):
    source, model = small(name, seed=1), small(name, seed=2, num_classes=3)
    report = load_weights(model, in_torch_layout(source))
    layers = model.classifier_layers
    assert report.reinitialised == [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    assert report.missing == [] and f"re-initialised {layers[0]}.weight" in report.summary()
    line = f"re-initialised {layers[0]}.bias: (5,) in the source, (3,) in the model"
    assert line in report.text() and '"reinitialised"' in report.json()
