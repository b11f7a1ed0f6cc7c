"""Maps of transformers' HGNetV2, the backbone of its D-FINE, reproduced from weights under its names."""

import numpy as np
import paddle
import pytest
from support.networks.golden_rtdetr import ALLOWED, MODELS, has_hgnet, make_backbone, make_images, make_samples, stored

EXACT = 1e-10  # in float64


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("entry", [*filter(has_hgnet, MODELS)])
def test_golden_maps(entry, dtype, frozen):
    model = make_backbone(entry, dtype, frozen_batch_norm=frozen)
    model.train() if frozen else model.eval()  # fixed norms compute the same in training
    places = MODELS[entry]["config"]["backbone_config"]["out_indices"]  # of which the stem is the first
    for number, batch in enumerate(MODELS[entry]["batches"]):
        with paddle.no_grad():
            maps = model.features(make_images(entry, dtype, number))
        assert [one.shape[1] for one in maps] == list(model.feature_channels)
        errors, shapes = batch["float32_error"]["features"], batch["feature_shapes"]
        for level, (place, shape, error) in enumerate(zip(places, shapes, errors, strict=True)):
            found, expected = maps[place - 1], stored()[f"{entry}/batch{number}/features{level}"]
            assert list(found.shape) == shape
            error = EXACT if dtype == "float64" else ALLOWED * error
            assert np.abs(make_samples(found.numpy(), len(expected)) - expected).max() <= error
