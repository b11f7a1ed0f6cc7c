"""Networks for images that are not square, against timm's own files, with weights of another size where timm has them.

timm does not resize CaiT's positions and Mixer's layers, and resizes Swin's biases in another way: their weights are of
the same size.
"""

import numpy as np
import paddle
import pytest
from support.networks.timm_zoo import needs_compat

from paddlevit_dist import UserError, create_model, load_weights
from paddlevit_dist.core.checkpoint.foreign_names import to_torch_names

NAMES = {
    "vit_tiny_patch16_224": ((96, 64), 224),
    "deit_tiny_distilled_patch16_224": ((64, 96), 224),
    "eva02_tiny_patch14_224": ((98, 70), 224),
    "cait_xxs24_224": ((96, 64), (96, 64)),
    "mixer_s32_224": ((64, 96), (64, 96)),
    "swin_tiny_patch4_window7_224": ((224, 128), (224, 128)),  # windows of 7 x 7, and of 7 x 4 in the last stage
    "convnext_tiny": ((96, 64), 224),
    "resnet18": ((97, 64), 224),
    "pvt_v2_b0": ((96, 64), 224),
    "hgnetv2_b0": ((64, 97), 224),
}


@needs_compat
@pytest.mark.parametrize("name", NAMES)
def test_logits_of_rectangles_are_timms(name):
    size, trained_size = NAMES[name]
    draw = np.random.default_rng(0)
    source = to_torch_names(create_model(f"timm:{name}", 10, trained_size).state_dict())
    state = {key: tensor.numpy() for key, tensor in source.items()}
    for key, value in state.items():
        if value.dtype == np.float32 and not key.endswith(("running_mean", "running_var")):
            state[key] = value + draw.normal(0, 0.02, value.shape).astype(np.float32)
    images = paddle.to_tensor(draw.standard_normal((2, 3, *size)).astype(np.float32))
    logits = []
    for model in (create_model(name, 10, size), create_model(f"timm:{name}", 10, list(size))):
        report = load_weights(model, state)
        assert not report.reinitialized and not report.missing
        assert model.image_size == size
        model.eval()
        logits.append(model(images).numpy())
    assert np.abs(logits[0] - logits[1]).max() < 1e-5 * np.abs(logits[1]).max() < 1e-4


@needs_compat
def test_a_network_of_timm_that_takes_squares_alone_is_refused_in_one_line():
    with pytest.raises(UserError, match="model 'timm:convit_tiny' does not take images of 96 x 64: its files raise"):
        create_model("timm:convit_tiny", 5, (96, 64))
    assert create_model("timm:levit_128s", 5, (96, 64)).training
