"""Feature maps of backbones: which families have them, in which precision, and Swin's of images of any size."""

import numpy as np
import paddle
import pytest
from support.networks.other_names import REDUCED, small

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model


def test_a_distilled_models_maps_are_its_patches_without_both_tokens():
    model = create_model("deit_tiny_distilled_patch16_224", image_size=(32, 48), depth=3, embed_dim=24)
    model.eval()
    image = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 32, 48)).astype("float32"))
    maps = model.feature_maps(image)
    assert [found.shape for found in maps] == [[2, 24, 2, 3]] * 3 and model.feature_strides == (16,) * 3
    tokens = model.encode(image).numpy()  # (2, 2 + 6, 24)
    np.testing.assert_array_equal(maps[-1].numpy()[1, :, 1, 2], tokens[1, 2 + 5])


@pytest.mark.parametrize("name", ["cait_xxs24_224", "mixer_s16_224"])
def test_a_family_without_maps_says_so(name):
    model = create_model(name, depth=1)
    assert model.feature_strides == ()
    with pytest.raises(UserError, match=f"{type(model).__name__} has no feature maps; choose a model with them"):
        model.feature_maps(paddle.zeros([1, 3, 224, 224]))


@pytest.mark.parametrize("name", [name for name in REDUCED if not name.startswith(("cait", "mixer"))])
def test_maps_are_as_described_and_the_same_in_float64(name):
    model = small(name, seed=1)
    image = np.random.default_rng(0).standard_normal((2, 3, *model.image_size))
    maps = [found.numpy() for found in model.feature_maps(paddle.to_tensor(image.astype("float32")))]
    model.to(dtype="float64")
    exact = [found.numpy() for found in model.feature_maps(paddle.to_tensor(image))]
    assert len(maps) == len(exact) == len(model.feature_strides)
    for found, expected, channels, stride in zip(maps, exact, model.feature_channels, model.feature_strides):
        assert found.shape == (2, channels, *(side // stride for side in model.image_size))
        assert expected.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


# Swin, any_size

SWIN = {"num_classes": 0, "embed_dim": 12, "depths": (2, 2), "num_heads": (3, 3), "any_size": True}


def swin(**options):
    """A float64 Swin in which everything counts."""
    model = create_model("swin_tiny_patch4_window7_224", **{**SWIN, **options})
    rng = np.random.default_rng(1)
    for _, parameter in model.named_parameters():
        parameter.set_value((0.3 * rng.standard_normal(parameter.shape)).astype("float32"))
    model.eval()
    return model.to(dtype="float64")


def features(model, *size):
    image = np.random.default_rng(2).standard_normal((2, 3, *size))
    with paddle.no_grad():
        return [found.numpy() for found in model.feature_maps(paddle.to_tensor(image))]


def test_where_windows_fit_any_size_is_the_plain_network():
    plain = swin(any_size=False, image_size=(112, 224))
    for found, expected in zip(features(swin(), 112, 224), features(plain, 112, 224)):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_one_model_takes_images_of_any_size_and_rounds_their_maps_up():
    model = swin()
    for size in ((1, 1), (30, 45), (97, 64)):
        maps = features(model, *size)
        grid = tuple(-(-side // 4) for side in size)
        assert maps[0].shape == (2, 12, *grid) and maps[1].shape == (2, 24, *(-(-side // 2) for side in grid))
        assert all(np.isfinite(found).all() for found in maps)


@pytest.mark.parametrize("number", [0, 1])
def test_a_block_attends_within_padded_windows_that_every_second_block_shifts(number):
    """Against each token's attention written out: zeros fill the grid up to whole windows, the window of a token is
    that of its place after the shift, and in it only those tokens are seen that lay together before."""
    side, height, width, dim, heads = 4, 5, 10, 12, 3
    block = swin(window_size=side).layers[0].blocks[number]
    shift = side // 2 if number else 0
    down, across = height + -height % side, width + -width % side
    x = np.random.default_rng(3).standard_normal((height, width, dim))
    normed = np.zeros((down, across, dim))
    normed[:height, :width] = block.norm1(paddle.to_tensor(x)).numpy()
    qkv = normed @ block.attn.qkv.weight.numpy() + block.attn.qkv.bias.numpy()
    qkv = qkv.reshape(down, across, 3, heads, dim // heads)
    table = block.attn.relative_position_bias_table.numpy().reshape(2 * side - 1, 2 * side - 1, heads)

    def window(place, length):
        """Window and region of a place along an axis: the places that the shift carries round are a region apart."""
        return (place - shift) % length // side, place < shift

    def attended(row, column):
        seen = [
            (r, c)
            for r in range(down)
            for c in range(across)
            if (window(r, down), window(c, across)) == (window(row, down), window(column, across))
        ]
        query = qkv[row, column, 0]  # (heads, channels)
        scores = np.stack(
            [
                (query * qkv[r, c, 1]).sum(-1) / np.sqrt(dim // heads)
                + table[row - r + side - 1, column - c + side - 1]
                for r, c in seen
            ]
        )  # (seen, heads)
        weights = np.exp(scores - scores.max(0))
        weights /= weights.sum(0)
        return sum(weight[:, None] * qkv[r, c, 2] for weight, (r, c) in zip(weights, seen)).reshape(dim)

    expected = np.stack([np.stack([attended(row, column) for column in range(width)]) for row in range(height)])
    expected = x + expected @ block.attn.proj.weight.numpy() + block.attn.proj.bias.numpy()
    expected = expected + block.mlp(block.norm2(paddle.to_tensor(expected))).numpy()
    with paddle.no_grad():
        found = block(paddle.to_tensor(x[None])).numpy()[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
