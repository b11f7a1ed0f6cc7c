"""The widths of the layers that fuse maps."""

import paddle
import pytest

from paddlevit_dist.tasks.model_factory import create_model


@pytest.mark.parametrize(("name", "width"), [("dfine_n", 21), ("dfine_s", 64), ("dfine_m", 128), ("dfine_x", 192)])
def test_paths_are_as_wide_as_in_the_published_weights(name, width):
    """The authors' round(expansion * hidden_dim // 2): 0.34 * 128 // 2 of D-FINE-N is 21."""
    with paddle.LazyGuard():  # names and shapes only
        encoder = create_model(name).encoder
    for layer in (*encoder.fpn_blocks, *encoder.pan_blocks):
        assert [layer.conv2.conv.weight.shape, layer.conv3.conv.weight.shape] == [[width, width, 3, 3]] * 2
