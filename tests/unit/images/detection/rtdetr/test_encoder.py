"""The widths of the layers that fuse maps."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.rtdetr.encoder import Aifi, grid_waves


@pytest.mark.parametrize(("name", "width"), [("dfine_n", 21), ("dfine_s", 64), ("dfine_m", 128), ("dfine_x", 192)])
def test_paths_are_as_wide_as_in_the_published_weights(name, width):
    """The authors' round(expansion * hidden_dim // 2): 0.34 * 128 // 2 of D-FINE-N is 21."""
    with paddle.LazyGuard():  # names and shapes only
        encoder = create_model(name, backbone="hgnetv2_b0", decoder_layers=1).encoder  # neither matters to it
    for layer in (*encoder.fpn_blocks, *encoder.pan_blocks):
        assert [layer.conv2.conv.weight.shape, layer.conv3.conv.weight.shape] == [[width, width, 3, 3]] * 2


def test_waves_tell_the_row_then_the_column():
    waves = grid_waves(2, 3, 8)
    assert waves.shape == (1, 6, 8)
    for number, (row, column) in enumerate(np.ndindex(2, 3)):
        own = [wave(place / slower) for place in (row, column) for wave in (np.sin, np.cos) for slower in (1, 100)]
        np.testing.assert_allclose(waves[0, number], own, atol=1e-12)


def test_cells_pass_all_layers():
    paddle.seed(0)
    network, x = Aifi(8, 3, 2, 16), paddle.randn([2, 8, 2, 3])
    cells, position = x.flatten(2).transpose([0, 2, 1]), paddle.to_tensor(grid_waves(2, 3, 8).astype("float32"))
    for layer in network.layers:
        cells = layer(cells, position)
    np.testing.assert_allclose(network(x).flatten(2).numpy(), cells.transpose([0, 2, 1]).numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="^ENCODER_DIM 6: expected a multiple of 4 for the positions$"):
        Aifi(6, 1, 1, 2)
