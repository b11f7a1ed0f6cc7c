"""Feature maps of timm's backbones, reproduced from weights under its names."""

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden import FOLDER, description, recipe

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model, variant_options

GOLDEN = description("pyramid_features")
TOLERANCE = 1e-4  # torch's own float32 run is off by up to 1e-5


@weights_of_zero()
@pytest.mark.parametrize("name", GOLDEN["models"])
def test_golden_feature_maps_are_reproduced(name):
    about, golden, seed = GOLDEN["models"][name], recipe(), GOLDEN["seed"]
    state = {key: golden.golden_weight(seed, key, tuple(shape)) for key, shape in about["state"].items()}
    patch = variant_options(name).get("patch_size", 1)
    for size, expected in about["sizes"].items():
        # Patches that an image does not fill are left out in timm's ViT and Swin; ours refuse such an image.
        height, width = (side - side % patch for side in map(int, size.split("x")))
        model = create_model(name, image_size=(height, width))
        model.eval()
        load_weights(model, state, strict=True)
        images = golden.golden_image(seed, 2, max(map(int, size.split("x"))))[:, :, :height, :width]
        with paddle.no_grad():
            maps = [found.numpy() for found in model.feature_maps(paddle.to_tensor(images))]

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
