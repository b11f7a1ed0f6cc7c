"""The hybrid encoder of RT-DETR and D-FINE: attention on the coarsest map, and convolutions that fuse all maps.

Sources: Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, section 4.2, with the authors'
``HybridEncoder``; D-FINE's blocks: Wang et al., YOLOv9, arXiv 2402.13616, figure 4 (GELAN), and YOLOv10, arXiv
2405.14458, section 3.2 (downsampling). Names are those in transformers 5.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant
from ...models.attention import MultiHeadAttention, attend, head_dim
from ...models.layers import Conv2D, LayerNorm
from ..detector import dense
from ..detr.transformer import xavier

_EPSILON = 1e-5
_TEMPERATURE = 10000.0
_UNIT_TEMPERATURE, _POSITION_EPSILON = 20.0, 1e-6

Block = Callable[[int, int], nn.Layer]  # of input and output channels
Positions = Callable[[int, int, int], np.ndarray]  # of height, width and dim; a function of a module, see ``constant``


class ConvNormSiLU(nn.Layer):
    """A convolution without bias, a batch norm, and SiLU if ``active``."""

    def __init__(
        self, inputs: int, outputs: int, kernel_size: int, stride: int = 1, groups: int = 1, active: bool = True
    ):
        super().__init__()
        deviation = math.sqrt(2.0 / (kernel_size * kernel_size * inputs // groups))
        self.conv = Conv2D(
            inputs,
            outputs,
            kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            groups=groups,
            weight_attr=paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, deviation)),
            bias_attr=False,
        )
        self.norm = nn.BatchNorm2D(outputs, epsilon=_EPSILON)
        self.active = active

    def forward(self, x):
        """Apply the layers to (batch, inputs, height, width)."""
        x = self.norm(self.conv(x))
        return F.silu(x) if self.active else x

    def folded(self) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return weight and bias of the convolution equivalent to both in evaluation."""
        scale = self.norm.weight / paddle.sqrt(self.norm._variance + _EPSILON)  # (outputs,)
        return self.conv.weight * scale.reshape([-1, 1, 1, 1]), self.norm.bias - self.norm._mean * scale


class RepVggBlock(nn.Layer):
    """Parallel convolutions of 3 x 3 and 1 x 1, merged into one in evaluation (Ding et al., RepVGG, CVPR 2021, 3.3)."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = ConvNormSiLU(channels, channels, 3, active=False)
        self.conv2 = ConvNormSiLU(channels, channels, 1, active=False)

    def forward(self, x):
        """Apply the block to (batch, channels, height, width)."""
        if self.training:
            return F.silu(self.conv1(x) + self.conv2(x))
        (weight, bias), (point, point_bias) = self.conv1.folded(), self.conv2.folded()
        weight = weight + F.pad(point, [1, 1, 1, 1])  # (channels, channels, 3, 3)
        return F.silu(F.conv2d(x, weight.astype(x.dtype), (bias + point_bias).astype(x.dtype), padding=1))


class CspLayer(nn.Layer):
    """Sum of two paths that start with a point-wise convolution each; one contains ``blocks`` blocks.

    ``expansion`` is the channels of the paths as a fraction of the outputs.
    """

    def __init__(self, inputs: int, outputs: int, blocks: int, expansion: float):
        super().__init__()
        hidden = int(outputs * expansion)
        self.conv1, self.conv2 = ConvNormSiLU(inputs, hidden, 1), ConvNormSiLU(inputs, hidden, 1)
        self.bottlenecks = nn.Sequential(*(RepVggBlock(hidden) for _ in range(blocks)))
        self.conv3 = nn.Identity() if hidden == outputs else ConvNormSiLU(hidden, outputs, 1)

    def forward(self, x):
        """Apply the layer to (batch, inputs, height, width)."""
        return self.conv3(self.bottlenecks(self.conv1(x)) + self.conv2(x))


class ElanLayer(nn.Layer):
    """D-FINE's fusion layer: half of the channels pass two consecutive paths, and all results are concatenated.

    Args:
        dim: channels of the output; the input has twice as many.
        blocks: number of blocks in a path.
        expansion: half the channels of a path, as a fraction of ``dim``.
    """

    def __init__(self, dim: int, blocks: int, expansion: float):
        super().__init__()
        path = int(expansion * dim // 2)
        self.conv1 = ConvNormSiLU(2 * dim, 2 * dim, 1)
        self.csp_rep1, self.conv2 = CspLayer(dim, path, blocks, 1.0), ConvNormSiLU(path, path, 3)
        self.csp_rep2, self.conv3 = CspLayer(path, path, blocks, 1.0), ConvNormSiLU(path, path, 3)
        self.conv4 = ConvNormSiLU(2 * dim + 2 * path, dim, 1)

    def forward(self, x):
        """Apply the layer to (batch, 2 * dim, height, width)."""
        x = self.conv1(x)
        first = self.conv2(self.csp_rep1(x[:, x.shape[1] // 2 :]))
        return self.conv4(paddle.concat([x, first, self.conv3(self.csp_rep2(first))], axis=1))


class SeparateDownsampling(nn.Layer):
    """D-FINE's downsampling: a point-wise, then a depth-wise convolution, without activation."""

    def __init__(self, dim: int):
        super().__init__()
        self.conv1 = ConvNormSiLU(dim, dim, 1, active=False)
        self.conv2 = ConvNormSiLU(dim, dim, 3, stride=2, groups=dim, active=False)

    def forward(self, x):
        """Return (batch, dim, height / 2, width / 2)."""
        return self.conv2(self.conv1(x))


class PositionAttention(MultiHeadAttention):
    """Self-attention with positions added to queries and keys only."""

    def __init__(self, dim: int, num_heads: int):
        super().__init__(num_heads, head_dim("EMBED_DIM", dim, num_heads), 0.0, attention_dropout=0.0)
        self.q_proj, self.k_proj, self.v_proj = (xavier(dim, dim, together=3) for _ in range(3))
        self.o_proj = xavier(dim, dim)

    def forward(self, x, position=None, blocked: paddle.Tensor | None = None, copies: int = 1):
        """Return the output (batch, tokens, dim) of ``x`` at ``position`` (batch or 1, tokens, dim), if there is one.

        ``blocked`` is (batch / copies, tokens, tokens), 1 if a row must not attend to a column; each holds for
        ``copies`` consecutive entries of the batch.
        """
        x_with_position = x if position is None else x + position
        parts = [
            self.heads(part) for part in (self.q_proj(x_with_position), self.k_proj(x_with_position), self.v_proj(x))
        ]
        if blocked is None:
            return self.o_proj(attend(self, *parts))
        # float16 can represent -1e4, and its exponential is 0 in every precision. Expanded for each head, since
        # Paddle's addition on CPUs takes seven times as long if it broadcasts a middle axis.
        bias = (-1e4 * blocked.unsqueeze(1)).expand([-1, copies * self.num_heads, -1, -1])
        bias = bias.reshape([-1, self.num_heads, *blocked.shape[1:]])
        return self.o_proj(attend(self, *parts, before=lambda weights: weights.astype(bias.dtype) + bias))


class EncoderMlp(nn.Layer):
    """Two dense layers with an activation between them."""

    def __init__(self, dim: int, hidden: int, activation: Callable[[paddle.Tensor], paddle.Tensor]):
        super().__init__()
        self.fc1, self.fc2, self._activation = dense(dim, hidden), dense(hidden, dim), activation

    def forward(self, x):
        """Apply the layers to (..., dim)."""
        return self.fc2(self._activation(self.fc1(x)))


class AifiLayer(nn.Layer):
    """Transformer layer on cells."""

    def __init__(self, dim: int, num_heads: int, feedforward: int):
        super().__init__()
        self.self_attn = PositionAttention(dim, num_heads)
        self.self_attn_layer_norm, self.final_layer_norm = (LayerNorm(dim, epsilon=_EPSILON) for _ in range(2))
        self.mlp = EncoderMlp(dim, feedforward, F.gelu)

    def forward(self, x, position):
        """Return (batch, cells, dim) of cells and positions of this shape."""
        x = self.self_attn_layer_norm(x + self.self_attn(x, position))
        return self.final_layer_norm(x + self.mlp(x))


def grid_waves(height: int, width: int, dim: int) -> np.ndarray:
    """Return sine and cosine of each cell's row, then column, row by row, float64 (1, height * width, dim).

    (The authors' positions equal these for square maps; they mix up rows and columns of others.)
    """
    frequencies = _TEMPERATURE ** -(np.arange(dim // 4) / (dim / 4))
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    down, across = (axis.reshape(-1, 1) * frequencies for axis in (rows, columns))
    return np.concatenate([np.sin(down), np.cos(down), np.sin(across), np.cos(across)], axis=1)[None]


def unit_waves(height: int, width: int, dim: int) -> np.ndarray:
    """Return alternating sine and cosine of each cell's row, then column, float64 (1, height * width, dim).

    Rows and columns count from 1 and end at 2 pi in a map of any size. Angles and values are rounded to float32 as
    in the encoder of DETRPose's authors, the source.
    """
    exponents = np.float32(2) * np.arange(dim // 4, dtype=np.float32) / np.float32(dim // 2)
    wavelengths = (_UNIT_TEMPERATURE ** exponents.astype(np.float64)).astype(np.float32)
    down, across = _unit_angles(height) / wavelengths, _unit_angles(width) / wavelengths  # (side, dim / 4)
    rows = np.repeat(_alternate(down), width, axis=0)  # (cells, dim / 2)
    return np.concatenate([rows, np.tile(_alternate(across), (height, 1))], axis=1)[None].astype(np.float64)


def _unit_angles(side: int) -> np.ndarray:
    """Return the angles of the cells of a side, float32 (side, 1)."""
    numbers = np.arange(1, side + 1, dtype=np.float32)[:, None]
    return numbers / np.float32(side + _POSITION_EPSILON) * np.float32(2 * math.pi)


def _alternate(angles: np.ndarray) -> np.ndarray:
    """Return sine and cosine of each angle (n, m) in turn, float32 (n, 2 m)."""
    exact = angles.astype(np.float64)
    return np.stack([np.sin(exact), np.cos(exact)], axis=2).reshape(len(exact), -1).astype(np.float32)


class Aifi(nn.Layer):
    """Attention-based intra-scale feature interaction: a transformer on the cells of one map.

    ``positions`` makes the cells' positions from height, width and dim, as ``grid_waves``.
    """

    def __init__(self, dim: int, layers: int, num_heads: int, feedforward: int, positions: Positions = grid_waves):
        super().__init__()
        self._positions = positions
        if dim % 4:
            raise UserError(f"ENCODER_DIM {dim}: expected a multiple of 4 for the positions")
        self.layers = nn.LayerList([AifiLayer(dim, num_heads, feedforward) for _ in range(layers)])

    def forward(self, x):
        """Apply the layers to a map (batch, dim, height, width)."""
        _, dim, height, width = x.shape
        cells = x.flatten(2).transpose([0, 2, 1])  # (batch, cells, dim)
        position = constant(self._positions, height, width, dim).astype(cells.dtype)
        for layer in self.layers:
            cells = layer(cells, position)
        return cells.transpose([0, 2, 1]).reshape([-1, dim, height, width])


class HybridEncoder(nn.Layer):
    """Fuses a backbone's maps into maps of one width that each depend on all inputs.

    Args:
        dim: channels of the maps.
        levels: number of maps.
        layers: number of transformer layers on the coarsest map.
        feedforward: hidden width of the transformer's MLPs.
        blocks: number of blocks in a fusion layer.
        expansion: see ``CspLayer`` and ``ElanLayer``.
        is_fine: use D-FINE's fusion layers and downsampling.
        positions: see ``Aifi``.
        active_laterals: whether the convolutions before upsampling have an activation; None: RT-DETR's have one.
    """

    def __init__(
        self,
        dim: int,
        levels: int,
        layers: int,
        num_heads: int,
        feedforward: int,
        blocks: int,
        expansion: float,
        is_fine: bool,
        positions: Positions = grid_waves,
        active_laterals: bool | None = None,
    ):
        super().__init__()
        self.aifi = nn.LayerList([Aifi(dim, layers, num_heads, feedforward, positions)])
        steps = range(levels - 1)

        def fuse() -> nn.Layer:
            return ElanLayer(dim, blocks, expansion) if is_fine else CspLayer(2 * dim, dim, blocks, expansion)

        is_active = not is_fine if active_laterals is None else active_laterals
        self.lateral_convs = nn.LayerList([ConvNormSiLU(dim, dim, 1, active=is_active) for _ in steps])
        self.fpn_blocks = nn.LayerList([fuse() for _ in steps])
        self.downsample_convs = nn.LayerList(
            [SeparateDownsampling(dim) if is_fine else ConvNormSiLU(dim, dim, 3, stride=2) for _ in steps]
        )
        self.pan_blocks = nn.LayerList([fuse() for _ in steps])

    def forward(self, maps: Sequence[paddle.Tensor]) -> list[paddle.Tensor]:
        """Return maps of the shapes of ``maps``, (batch, dim, height, width) from fine to coarse, each halved."""
        down = [self.aifi[0](maps[-1])]  # from the coarsest on
        for finer, lateral, block in zip(reversed(maps[:-1]), self.lateral_convs, self.fpn_blocks):
            down[-1] = lateral(down[-1])
            above = F.interpolate(down[-1], scale_factor=2, mode="nearest").astype(finer.dtype)
            down.append(block(paddle.concat([above, finer], axis=1)))
        up = [down.pop()]
        for coarser, smaller, block in zip(reversed(down), self.downsample_convs, self.pan_blocks):
            up.append(block(paddle.concat([smaller(up[-1]), coarser], axis=1)))
        return up
