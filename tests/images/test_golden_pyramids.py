"""Feature maps of timm's backbones, reproduced from weights under its names."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support.golden import FOLDER, description, recipe

from paddlevit_dist.checkpoint.load import load_weights
from paddlevit_dist.errors import UserError
from paddlevit_dist.models import create_model

GOLDEN = description("pyramid_features")
TOLERANCE = 1e-4  # torch's own float32 run is off by up to 1e-5


@pytest.mark.usefixtures("weights_of_zero")
@pytest.mark.parametrize("name", GOLDEN["models"])
def test_golden_feature_maps_are_reproduced(name):
    about, golden, seed = GOLDEN["models"][name], recipe(), GOLDEN["seed"]
    state = {key: golden.golden_weight(seed, key, tuple(shape)) for key, shape in about["state"].items()}
    for size, expected in about["sizes"].items():
        height, width = map(int, size.split("x"))
        model = create_model(name, image_size=(height, width))
        model.eval()
        load_weights(model, state, strict=True)
        images = golden.golden_image(seed, 2, max(height, width))[:, :, :height, :width]
        with paddle.no_grad():
            maps = [found.numpy() for found in model.features(paddle.to_tensor(images))]

        assert len(maps) == len(expected["float32_error"]) == len(model.feature_strides) == len(model.feature_channels)
        with np.load(FOLDER / "pyramid_features.npz") as arrays:
            for number, found in enumerate(maps):
                facts, samples = expected[f"feature{number}"], arrays[f"{name}/{size}/feature{number}"]
                stride = model.feature_strides[number]
                assert list(found.shape) == facts["shape"] and found.shape[1] == model.feature_channels[number]
                assert found.shape[2] in (height // stride, -(-height // stride))  # patches round down, padding up
                assert abs(found.mean(dtype=np.float64) - facts["mean"]) <= TOLERANCE
                assert abs(found.std(dtype=np.float64) - facts["std"]) <= TOLERANCE
                places = np.arange(len(samples)) * 2654435761 % found.size
                assert np.abs(found.ravel()[places] - samples).max() <= TOLERANCE


def test_a_distilled_models_maps_are_its_patches_without_both_tokens():
    model = create_model("deit_tiny_distilled_patch16_224", image_size=(32, 48), depth=3, embed_dim=24)
    model.eval()
    image = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 32, 48)).astype("float32"))
    maps = model.features(image)
    assert [found.shape for found in maps] == [[2, 24, 2, 3]] * 3 and model.feature_strides == (16,) * 3
    tokens = model.encode(image).numpy()  # (2, 2 + 6, 24)
    np.testing.assert_array_equal(maps[-1].numpy()[1, :, 1, 2], tokens[1, 2 + 5])


@pytest.mark.parametrize("name", ["cait_xxs24_224", "mixer_s16_224"])
def test_a_family_without_maps_says_so(name):
    model = create_model(name, depth=1)
    assert model.feature_strides == ()
    with pytest.raises(UserError, match=f"{type(model).__name__} has no feature maps; choose a model that has"):
        model.features(paddle.zeros([1, 3, 224, 224]))
