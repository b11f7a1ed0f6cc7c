"""Weights of a run on images of another size, also of another one with as many patches."""

import numpy as np
import paddle
import pytest
import yaml

from paddlevit_dist import UserError, create_model, load_weights
from paddlevit_dist.images.models.resampling import bicubic_matrix

NETWORKS = {
    "vit": ({"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}, "pos_embed"),
    "cait_xxs24_224": (
        {"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2, "class_depth": 1},
        "pos_embed",
    ),
    "swin_tiny_patch4_window7_224": (
        {"patch_size": 4, "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2]},
        "layers.1.blocks.0.attn.relative_position_bias_table",
    ),
}


def save(folder, name, size, settings, **facts):
    """Weights of a network for images of a size, with the metadata of a run."""
    paddle.seed(1)
    model = create_model(name, 3, size, **NETWORKS[name][0])
    paddle.save(model.state_dict(), str(folder / "model.pdparams"))
    (folder / "about.yaml").write_text(yaml.safe_dump({**facts, "settings": settings}))
    return model.state_dict()[NETWORKS[name][1]].numpy()


@pytest.mark.parametrize("name", NETWORKS)
def test_positions_follow_the_size_that_the_run_says(name, tmp_path):
    """From 16 x 24 pixels to 24 x 16: 2 x 3 patches of 8, or windows of 2 x 3 tokens after one merge of 4 pixels."""
    before = save(tmp_path, name, (16, 24), {"DATA": {"IMAGE_SIZE": [16, 24]}})
    options, parameter = NETWORKS[name]
    model = create_model(name, 3, (24, 16), **options)
    report = load_weights(model, tmp_path / "model.pdparams", strict=True)
    found = model.state_dict()[parameter].numpy()
    assert found.shape == before.shape and parameter in report.resized and "resized" in report.summary()
    old, new = ((3, 5), (5, 3)) if "swin" in name else ((2, 3), (3, 2))
    down, across = bicubic_matrix(old[0], new[0]), bicubic_matrix(old[1], new[1])
    places = old[0] * old[1]
    table = before.reshape(-1, before.shape[-1])
    expected = np.einsum("yh,xw,hwc->yxc", down, across, table[len(table) - places :].reshape(*old, -1))
    after = found.reshape(-1, before.shape[-1])
    np.testing.assert_allclose(after[len(table) - places :].reshape(*new, -1), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(after[: len(table) - places], table[: len(table) - places])


def test_the_size_of_the_network_comes_before_a_setting(tmp_path):
    """4 x 9 patches are as many as 6 x 6, which is what the setting, unused by the run's task, would say."""
    before = save(tmp_path, "vit", (32, 72), {"DATA": {"IMAGE_SIZE": 48}}, image_size=[32, 72])
    model = create_model("vit", 3, (48, 48), **NETWORKS["vit"][0])
    assert load_weights(model, tmp_path / "model.pdparams", strict=True).resized == ["pos_embed"]
    patches = before[:, 1:].reshape(4, 9, -1)
    expected = np.einsum("yh,xw,hwc->yxc", bicubic_matrix(4, 6), bicubic_matrix(9, 6), patches).reshape(1, 36, -1)
    np.testing.assert_allclose(model.pos_embed.numpy()[:, 1:], expected, rtol=1e-4, atol=1e-6)
    (tmp_path / "about.yaml").write_text("image_size: null\nsettings: {DATA: {IMAGE_SIZE: [32, 72]}}")
    assert not load_weights(model, tmp_path / "model.pdparams").resized  # a network of any size; as many patches
    np.testing.assert_array_equal(model.pos_embed.numpy(), before)
    (tmp_path / "about.yaml").write_text("image_size: [32]")
    with pytest.raises(UserError, match=r"about.yaml: .*image_size"):
        load_weights(model, tmp_path / "model.pdparams")


@pytest.mark.parametrize("options, sides", [({"window_size": 2}, (3, 3)), ({"any_size": True}, (13, 13))])
def test_windows_that_a_small_image_made_rectangular_are_known_in_other_windows(options, sides, tmp_path):
    """Of 16 x 24 pixels, 2 x 3 tokens after one merge: 3 x 5 relative places, for windows of 2 x 2 and 7 x 7 tokens."""
    name = "swin_tiny_patch4_window7_224"
    small, parameter = NETWORKS[name]
    before = save(tmp_path, name, (16, 24), {}, image_size=[16, 24])
    model = create_model(name, 3, (16, 24), **{**small, **options})
    assert parameter in load_weights(model, tmp_path / "model.pdparams", strict=True).resized
    down, across = bicubic_matrix(3, sides[0]), bicubic_matrix(5, sides[1])
    expected = np.einsum("yh,xw,hwc->yxc", down, across, before.reshape(3, 5, -1))
    found = model.state_dict()[parameter].numpy().reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size, grid", [((24, 24), (6, 6)), ((32, 72), (8, 18)), ((20, 28), (5, 7))])
def test_patches_of_another_size_leave_the_old_grid_its_proportions(size, grid, tmp_path):
    """From 4 x 9 patches of 8 pixels to patches of 4: the first has as many, the second is of equal images."""
    before = save(tmp_path, "vit", (32, 72), {}, image_size=[32, 72])
    model = create_model("vit", 3, size, **{**NETWORKS["vit"][0], "patch_size": 4})
    load_weights(model, tmp_path / "model.pdparams", strict=True)
    down, across = bicubic_matrix(4, grid[0]), bicubic_matrix(9, grid[1])
    expected = np.einsum("yh,xw,hwc->yxc", down, across, before[:, 1:].reshape(4, 9, -1))
    found = model.pos_embed.numpy()[:, 1:].reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"DATA": {"IMAGE_SIZE": [16, 24]}}])
def test_weights_of_the_same_or_an_unknown_size_are_copied(settings, tmp_path):
    before = save(tmp_path, "vit", (16, 24), settings)
    model = create_model("vit", 3, (16, 24), **NETWORKS["vit"][0])
    report = load_weights(model, tmp_path / "model.pdparams", strict=True)
    assert not report.resized
    np.testing.assert_array_equal(model.pos_embed.numpy(), before)


def test_a_mixer_of_another_rectangle_is_refused(tmp_path):
    options = {"patch_size": 8, "embed_dim": 16, "depth": 1}
    model = create_model("mixer_s16_224", 3, (16, 24), **options)
    paddle.save(model.state_dict(), str(tmp_path / "model.pdparams"))
    (tmp_path / "about.yaml").write_text(yaml.safe_dump({"settings": {"DATA": {"IMAGE_SIZE": [16, 24]}}}))
    assert not load_weights(create_model("mixer_s16_224", 3, (16, 24), **options), tmp_path / "model.pdparams").resized
    with pytest.raises(UserError, match="the weights are for images of 16 x 24 pixels, the model for 24 x 16 pixels"):
        load_weights(create_model("mixer_s16_224", 3, (24, 16), **options), tmp_path / "model.pdparams")
    sizes = r"mlp_tokens.fc1.weight \(\(6, 8\) in the source, \(9, 8\) in the model\)"
    with pytest.raises(UserError, match=sizes):
        load_weights(create_model("mixer_s16_224", 3, (24, 24), **options), tmp_path / "model.pdparams", strict=True)


def test_a_square_run_is_resized_as_before(tmp_path):
    save(tmp_path, "vit", (24, 24), {"DATA": {"IMAGE_SIZE": 24}})
    positions = []
    for source in (str(tmp_path / "model.pdparams"), dict(paddle.load(str(tmp_path / "model.pdparams")))):
        model = create_model("vit", 3, (16, 40), **NETWORKS["vit"][0])
        assert load_weights(model, source).resized == ["pos_embed"]
        positions.append(model.pos_embed.numpy())
    np.testing.assert_array_equal(*positions)
