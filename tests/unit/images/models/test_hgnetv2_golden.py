"""Maps of transformers' HGNetV2, the backbone of its D-FINE, reproduced from weights under its names."""

import numpy as np
import paddle
import pytest
from support.networks.every_classifier import images, small_model
from support.networks.golden_networks import sample
from support.networks.golden_rtdetr import ALLOWED, MODELS, has_hgnet, make_backbone, make_images, stored

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
            maps = model.feature_maps(make_images(entry, dtype, number))
        assert [one.shape[1] for one in maps] == list(model.feature_channels)
        errors, shapes = batch["float32_error"]["features"], batch["feature_shapes"]
        for level, (place, shape, error) in enumerate(zip(places, shapes, errors, strict=True)):
            found, expected = maps[place - 1], stored()[f"{entry}/batch{number}/features{level}"]
            assert list(found.shape) == shape
            error = EXACT if dtype == "float64" else ALLOWED * error
            assert np.abs(sample(found.numpy(), len(expected)) - expected).max() <= error


def test_a_classifier_reads_the_widened_mean_of_the_last_map():
    model, x = small_model("hgnetv2_b0", dropout=0.25, stem_dims=(5, 7)), images("hgnetv2_b0")
    model.eval()
    mean = model.feature_maps(x)[-1].numpy().mean((2, 3))
    assert len(np.unique(mean)) > 9 and model.head.dropout.p == 0.25
    wide = np.maximum(mean @ model.head.last_conv[0].weight.numpy()[:, :, 0, 0].T, 0)
    np.testing.assert_allclose(model.forward_features(x).numpy(), wide, rtol=1e-3, atol=1e-5)
    expected = wide @ model.head.fc.weight.numpy() + model.head.fc.bias.numpy()
    np.testing.assert_allclose(model(x).numpy(), expected, rtol=1e-3, atol=1e-5)
    assert model.recomputed_layers() == [] and model.embed_dim == wide.shape[1] == 2048
    model.reset_classifier(0)
    np.testing.assert_allclose(model(x).numpy(), wide, rtol=1e-3, atol=1e-5)  # as timm's with num_classes=0
    assert model.embed_dim == wide.shape[1]
    fixed = small_model("hgnetv2_b0", frozen_batch_norm=True)
    assert fixed.recomputed_layers() == [block for stage in fixed.stages for block in stage.blocks]
