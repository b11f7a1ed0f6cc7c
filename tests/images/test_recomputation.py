"""Blocks recomputed in the backward pass: less is kept, nothing else changes."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import settings
from paddlevit_dist.distributed import recompute_layers
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.models import create_model
from paddlevit_dist.runtime.errors import UserError

FAMILIES = {
    "vit_tiny_patch16_224": {"depth": 2, "embed_dim": 24, "dropout": 0.3, "attention_dropout": 0.3},
    "deit_tiny_distilled_patch16_224": {"depth": 2, "embed_dim": 24, "dropout": 0.3},
    "cait_xxs24_224": {"depth": 2, "embed_dim": 32},
    "swin_tiny_patch4_window7_224": {"depths": (2, 1, 1, 1), "embed_dim": 24},
    "pvt_v2_b0": {"depths": (2, 1, 1, 1)},
    "segformer_b0": {"backbone_options": {"depths": (2, 1, 1, 1)}, "channels": 16},
    "mixer_s16_224": {"depth": 2, "embed_dim": 32},
    "convnext_tiny": {"depths": (2, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "resnet18": {"depths": (2, 1, 1, 1), "dims": (8, 16, 24, 32), "frozen_batch_norm": True},
}
IMAGES = np.random.default_rng(0).standard_normal((4, 3, 64, 64)).astype("float32")


def build(name, **options):
    paddle.seed(1)
    model = create_model(name, num_classes=5, image_size=64, drop_path=0.5, **{**FAMILIES[name], **options})
    model.train()
    return model


def blocks_of(name, model):
    values = settings.load([f"MODEL.NAME={name}"]).values
    return Classification(values).recomputed_layers(model)


def gradients(model):
    paddle.seed(2)
    outputs = model(paddle.to_tensor(IMAGES))
    (outputs**2).sum().backward()
    return {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


class Counted:
    """A forward pass that notes each of its calls."""

    def __init__(self, forward, passes):
        self.forward, self.passes = forward, passes

    def __call__(self, *arguments):
        self.passes.append(self.forward)
        return self.forward(*arguments)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_with_dropout_are_the_same_to_the_bit(name):
    expected = gradients(build(name))
    model = build(name)
    blocks = blocks_of(name, model)
    passes = []
    for block in blocks:  # not with hooks: layers that are looked at compute as Paddle's do
        block.forward = Counted(block.forward, passes)
    gradients(model)
    once = len(passes)
    recompute_layers(blocks)
    model.clear_gradients()
    passes.clear()
    result = gradients(model)
    assert len(passes) == 2 * once  # they were computed twice
    assert result.keys() == expected.keys()
    for parameter, value in expected.items():
        np.testing.assert_array_equal(result[parameter], value, err_msg=parameter)


def test_blocks_behind_frozen_layers_still_learn():
    name = "vit_tiny_patch16_224"
    expected = {}
    for recomputed in (False, True):
        model = build(name)
        for parameter_name, parameter in model.named_parameters():
            parameter.stop_gradient = not parameter_name.startswith(("blocks.1", "head"))
        if recomputed:
            recompute_layers(blocks_of(name, model))
        result = gradients(model)
        assert {key.split(".")[0] for key in result} == {"blocks", "head"}
        for key, value in result.items():
            np.testing.assert_array_equal(value, expected.setdefault(key, value), err_msg=key)


def test_an_evaluation_and_the_state_are_as_before():
    model = build("vit_tiny_patch16_224")
    names = list(model.state_dict())
    model.eval()
    expected = model(paddle.to_tensor(IMAGES)).numpy()
    recompute_layers(blocks_of("vit_tiny_patch16_224", model))
    assert list(model.state_dict()) == names
    np.testing.assert_array_equal(model(paddle.to_tensor(IMAGES)).numpy(), expected)


def test_a_model_without_blocks_is_refused_by_name():
    with pytest.raises(UserError, match="convnext_tiny has no LayerList named 'blocks'"):
        blocks_of("convnext_tiny", paddle.nn.Linear(2, 2))
    with pytest.raises(UserError, match="RECOMPUTE: resnet18 has batch norms, which would count each batch twice"):
        blocks_of("resnet18", build("resnet18", frozen_batch_norm=False))
