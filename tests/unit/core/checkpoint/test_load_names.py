"""Weights under names without a golden file: the authors', Google's, older ones; and weights for other sizes.

PaddleViT's and Hugging Face's names are in the golden files.
"""

import numpy as np
import pytest
from PIL import Image
from support.networks.other_names import (
    REDUCED,
    arrays,
    in_torch_layout,
    logits,
    of_big_visions_vit,
    of_convnexts_authors,
    of_googles_mixer,
    of_googles_vit,
    of_paddlevits_swin,
    of_pvts_authors,
    of_swins_authors,
    of_torchvisions_resnet,
    of_transformers_resnet,
    small,
)

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.foreign_names import from_torch_names, rename_norms_like, to_torch_names
from paddlevit_dist.core.checkpoint.load import load_weights


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
        ("resnet50", of_torchvisions_resnet, "torchvision names, Linear weights (out, in)"),
        ("resnet50", of_transformers_resnet, "Hugging Face names, Linear weights (out, in)"),
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
            image = Image.fromarray(table[:, head].reshape(13, 13)).resize((width, height), Image.BICUBIC)
            np.testing.assert_allclose(resized[..., head], np.asarray(image), atol=1e-6)


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
    assert report.reinitialized == [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]
    assert report.missing == [] and f"re-initialized {layers[0]}.weight" in report.summary()
    line = f"re-initialized {layers[0]}.bias: (5,) in the source, (3,) in the model"
    assert line in report.text() and '"reinitialized"' in report.json()


def test_statistics_are_renamed_and_counts_of_batches_left_out():
    theirs = {"a.running_mean": 1, "a.running_var": 2, "a.num_batches_tracked": 3, "a.weight": 4, "running_mean": 5}
    ours = {"a._mean": 1, "a._variance": 2, "a.weight": 4, "_mean": 5}
    assert from_torch_names(theirs) == ours
    assert to_torch_names(ours) == {name: value for name, value in theirs.items() if not name.endswith("tracked")}


def test_each_norm_gets_the_level_that_the_model_has():
    def norm(layer):
        return {f"{layer}.{last}": f"{layer}.{last}" for last in ("weight", "bias", "_mean", "_variance")}

    targets = [*norm("a.bn"), *norm("b"), *norm("c"), "d.weight"]
    found = rename_norms_like(targets, {**norm("a"), **norm("b.bn"), **norm("c"), **norm("e"), "d.bn.weight": 1})
    expected = {f"a.bn.{last}": f"a.{last}" for last in ("weight", "bias", "_mean", "_variance")}
    expected |= {f"b.{last}": f"b.bn.{last}" for last in ("weight", "bias", "_mean", "_variance")}
    assert found == {**expected, **norm("c"), **norm("e"), "d.bn.weight": 1}
    both = {**norm("a"), **norm("a.bn"), **norm("b"), **norm("b.bn")}
    assert rename_norms_like(targets, both) == both  # what has the model's own names stays
