"""Blocks recomputed in the backward pass: less is kept, nothing else changes."""

import numpy as np
import paddle
import pytest
from support.networks.small_classifiers import FAMILIES, IMAGES, build, gradients

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import recompute_layers
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Recomputable
from paddlevit_dist.images.classification.task import Classification

WIDTHS = (8, 16, 40, 64)
NARROW = {
    "pvt_v2_b0": {"embed_dims": WIDTHS},
    "segformer_b0": {"backbone_options": {"depths": (2, 1, 1, 1), "embed_dims": WIDTHS}},
}


def make_blocks(name, model):
    values = settings.load([f"MODEL.NAME={name}"]).values
    return get_aspect(Classification(values), Recomputable).recomputed_layers(model)


class Counted:
    """A forward pass that notes each of its calls."""

    def __init__(self, forward, passes):
        self.forward, self.passes = forward, passes

    def __call__(self, *arguments):
        self.passes.append(self.forward)
        return self.forward(*arguments)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_with_dropout_are_the_same_to_the_bit(name):
    model = build(name, **NARROW.get(name, {}))
    blocks = make_blocks(name, model)
    passes = []
    for block in blocks:  # not with hooks: layers that are looked at compute as Paddle's do
        block.forward = Counted(block.forward, passes)
    expected = gradients(model)
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
            recompute_layers(make_blocks(name, model))
        result = gradients(model)
        assert {key.split(".")[0] for key in result} == {"blocks", "head"}
        for key, value in result.items():
            np.testing.assert_array_equal(value, expected.setdefault(key, value), err_msg=key)


def test_an_evaluation_and_the_state_are_as_before():
    model = build("vit_tiny_patch16_224")
    names = list(model.state_dict())
    model.eval()
    expected = model(paddle.to_tensor(IMAGES)).numpy()
    recompute_layers(make_blocks("vit_tiny_patch16_224", model))
    assert list(model.state_dict()) == names
    np.testing.assert_array_equal(model(paddle.to_tensor(IMAGES)).numpy(), expected)


def test_a_model_without_blocks_is_refused_by_name():
    with pytest.raises(UserError, match="convnext_tiny has no LayerList named 'blocks'"):
        make_blocks("convnext_tiny", paddle.nn.Linear(2, 2))
    with pytest.raises(UserError, match="RECOMPUTE: resnet18 has batch norms, whose running statistics"):
        make_blocks("resnet18", build("resnet18", frozen_batch_norm=False))


def test_a_layer_whose_class_is_replaced_afterwards_is_computed_by_the_new_one():
    class Doubled(paddle.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    layer, x = paddle.nn.Linear(3, 2), paddle.ones([4, 3])
    expected = 2 * layer(x)
    recompute_layers([layer])
    layer.__class__ = Doubled
    np.testing.assert_array_equal(layer(x).numpy(), expected.numpy())
