"""The network: sizes, parameters, and weights with a wrapper's prefix."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import create_model
from paddlevit_dist.runtime.errors import UserError


def counted_by_hand(width: int, depth: int, blocks: int, classes: int) -> int:
    """Convolutions without bias, normalizations with scale, shift and two statistics, a head with bias."""

    def convolution(a, b, kernel):
        return a * b * kernel**3 + 4 * b

    widths = [width * 2**level for level in range(depth + 1)]
    levels = [*widths, *widths[:-1]]
    total = convolution(1, width, 3) + sum(blocks * 2 * convolution(w, w, 3) for w in levels)
    total += sum(convolution(a, b, 2) + convolution(b, a, 1) for a, b in zip(widths, widths[1:]))
    return total + width * classes + classes


@pytest.mark.parametrize("width, depth, blocks", [(4, 1, 1), (8, 3, 1), (4, 2, 2)])
def test_width_depth_and_blocks_are_what_they_say(width, depth, blocks):
    model = create_model("unet3d", num_classes=5, width=width, depth=depth, blocks=blocks)
    assert sum(int(np.prod(p.shape)) for p in model.parameters()) == counted_by_hand(width, depth, blocks, 5)


@pytest.mark.parametrize("shape", [(8, 8, 8), (9, 12, 15), (1, 5, 2)])
def test_maps_have_the_size_of_the_volume(shape):
    model = create_model("unet3d", num_classes=3, width=4, depth=2)
    model.eval()
    assert model(paddle.randn([2, 1, *shape])).shape == [2, 3, *shape]
    assert model.forward_features(paddle.randn([2, 1, *shape])).shape == [2, 4, *shape]


def test_every_parameter_takes_part():
    paddle.seed(0)
    model = create_model("unet3d", num_classes=2, width=4, depth=2, blocks=2)
    (model(paddle.randn([2, 1, 8, 8, 8])) * paddle.randn([2, 2, 8, 8, 8])).sum().backward()
    for name, parameter in model.named_parameters():
        if not parameter.stop_gradient:
            assert np.abs(parameter.grad.numpy()).max() > 0, name


def test_the_head_can_be_replaced_or_left_out():
    model = create_model("unet3d", num_classes=2, width=4, depth=1, norm="instance")
    model.reset_classifier(6)
    assert model(paddle.randn([1, 1, 4, 4, 4])).shape == [1, 6, 4, 4, 4]
    model.reset_classifier(0)
    assert model(paddle.randn([1, 1, 4, 4, 4])).shape == [1, 4, 4, 4, 4]


def test_a_norm_that_is_not_known_is_told():
    with pytest.raises(UserError, match="unknown norm 'layer'; expected one of batch, instance"):
        create_model("unet3d", norm="layer")
