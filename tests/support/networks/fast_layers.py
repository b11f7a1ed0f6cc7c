"""Layers that are fast on CPUs, with random parameters and inputs of sides that differ; what they compute."""

import numpy as np
import paddle

from paddlevit_dist.core.distributed.batch_norm import unbias_running_variance
from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate
from paddlevit_dist.images.detection.rtdetr.encoder import PositionAttention
from paddlevit_dist.images.keypoints.heatmaps.network import ClassicDecoder
from paddlevit_dist.images.models import layers
from paddlevit_dist.images.models.convnext import ConvNeXtBlock
from paddlevit_dist.images.models.layers import ChannelsLastConv, ChannelsLastDepthwiseConv, Mlp, PatchEmbedding
from paddlevit_dist.images.models.pvt_v2 import SpatialReductionAttention
from paddlevit_dist.images.models.segformer import SegFormerHead
from paddlevit_dist.images.models.swin import SwinBlock
from paddlevit_dist.images.models.vit import ViTBlock
from paddlevit_dist.images.models.vit_blocks import ConfigurableAttention, ConfigurableBlock, TokenGrid, ViTConfig

RELATIVE = 4e-6  # of the largest entry


class FirstTokens(paddle.nn.Layer):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x, 2)


def vit_block(drop_path=0.0, qkv_bias=True, head_dim=8):
    return ViTBlock(ViTConfig(24, num_heads=3, attn_head_size=head_dim, qkv_bias=qkv_bias), drop_path)


def swin_block(is_shifted, drop_path=0.0):
    attention = {"num_heads": 3, "qkv_bias": True, "dropout": 0.0, "attention_dropout": 0.0}
    return SwinBlock(24, (8, 12), 4, is_shifted, 2.0, drop_path, **attention)


class OnGrid(paddle.nn.Layer):
    def __init__(self, attention, grid):
        super().__init__()
        self.attention, self.grid = attention, grid

    def forward(self, x):
        return self.attention(x, self.grid)


def reduction(side, grid, **others):
    options = {"is_linear": False, "patch_epsilon": 1e-5, "qkv_bias": True, "dropout": 0.0, "attention_dropout": 0.0}
    return OnGrid(SpatialReductionAttention(24, 3, side, **{**options, **others}), grid)


class OfMaps(paddle.nn.Layer):
    """What SegFormer's head does before its norm, with one map at three sizes."""

    def __init__(self):
        super().__init__()
        self.head = SegFormerHead((6, 6, 6), 16, 5, dropout=0.0)

    def forward(self, x):
        return self.head.summed([x, x[:, ::2, ::2], x[:, 1::3, ::4]])


class OfQueries(paddle.nn.Layer):
    """Attention of 4 x 7 tokens, with or without positions, two entries for each mask."""

    def __init__(self, has_position, is_masked):
        super().__init__()
        self.attention = PositionAttention(24, 3)
        self.attention.k_proj.bias.stop_gradient = True  # its gradient is 0 but for rounding
        random = np.random.default_rng(1)
        self.position = paddle.to_tensor(random.standard_normal((1, 7, 24)), "float32") if has_position else None
        blocked = (random.random((2, 7, 7)) < 0.4) & ~np.eye(7, dtype=bool)
        self.blocked = paddle.to_tensor(blocked, "float32") if is_masked else None

    def forward(self, x):
        return self.attention(x, self.position, self.blocked, copies=2)


class OfTokens(paddle.nn.Layer):
    """Attention of 3 x 4 patches behind two tokens, the first five of which may see some alone."""

    def __init__(self, is_masked=False, **extras):
        super().__init__()
        self.attention = ConfigurableAttention(ViTConfig(24, num_heads=3, **extras))
        if extras.get("separate_qkv"):
            self.attention.k_proj.bias.stop_gradient = True  # its gradient is 0 but for rounding
        hidden = np.where(np.random.default_rng(1).random((4, 1, 5, 14)) < 0.4, -3e4, 0.0)
        self.grid = TokenGrid((3, 4), 2, paddle.to_tensor(hidden, "float32") if is_masked else None)

    def forward(self, x):
        return self.attention(x, self.grid)


def scaled_block(drop_path=0.0):
    block = ConfigurableBlock(ViTConfig(24, num_heads=3, init_values=0.5), drop_path)
    return OnGrid(block, TokenGrid((3, 4), 2))


IMAGES = {
    "depthwise, whole tiles of 7 columns": (lambda: ChannelsLastDepthwiseConv(16, 7), (2, 14, 14, 16)),
    # a last tile that overlaps; five vectors of 16 channels, copied four and one
    "depthwise, a last tile that overlaps": (lambda: ChannelsLastDepthwiseConv(80, 7), (2, 9, 11, 80)),
    "depthwise, less high than the kernel": (lambda: ChannelsLastDepthwiseConv(16, 7), (1, 3, 20, 16)),
    "depthwise, narrower than kernel and tile": (lambda: ChannelsLastDepthwiseConv(32, 7), (3, 20, 2, 32)),
    "depthwise, one pixel": (lambda: ChannelsLastDepthwiseConv(16, 7), (1, 1, 1, 16)),
    "depthwise, copied in two bands": (lambda: ChannelsLastDepthwiseConv(32, 3), (1, 90, 52, 32)),
    "depthwise, three vectors": (lambda: ChannelsLastDepthwiseConv(48, 3), (2, 7, 5, 48)),
    "depthwise without bias": (lambda: ChannelsLastDepthwiseConv(16, 3, bias_attr=False), (2, 6, 5, 16)),
    "ConvNeXt's first": (lambda: ChannelsLastConv(3, 32, 4, 4, 0, False), (2, 3, 16, 24)),
    "between its stages, a column left over": (lambda: ChannelsLastConv(10, 6, 2, 2), (2, 7, 5, 10)),
    "PVTv2's first": (lambda: ChannelsLastConv(3, 8, 7, 4, 3, False), (2, 3, 17, 22)),
    "less high than the kernel": (lambda: ChannelsLastConv(2, 5, 3, 2, 1), (1, 9, 4, 2)),
    "a product": (lambda: ChannelsLastConv(6, 6, 1), (2, 4, 4, 6)),
    "convolution without bias": (lambda: ChannelsLastConv(16, 4, 2, bias_attr=False), (2, 6, 5, 16)),
    "ConvNeXt's block": (lambda: ConvNeXtBlock(32, 0.7, 0.0), (3, 9, 8, 32)),
    "ConvNeXt's block, dropped paths": (lambda: ConvNeXtBlock(32, 0.7, 0.5), (6, 9, 8, 32)),
}
VOLUMES = {
    # 3,400 numbers a channel, in four parts
    "volumes": (lambda: paddle.nn.Conv3D(2, 10, 3, padding=1), (2, 2, 9, 15, 18)),
    "volumes, one channel, no bias": (lambda: paddle.nn.Conv3D(1, 8, 3, padding=1, bias_attr=False), (2, 1, 5, 7, 40)),
    "volumes, sides and padding by axis": (
        lambda: paddle.nn.Conv3D(9, 17, (1, 3, 5), padding=(0, 1, 3)),
        (1, 9, 4, 6, 7),
    ),
    "volumes, an even kernel": (lambda: paddle.nn.Conv3D(5, 1, 2, padding=1), (2, 5, 6, 1, 4)),
    "volumes as large as the kernel": (lambda: paddle.nn.Conv3D(64, 64, 3), (2, 64, 3, 3, 3)),
}
CASES = {
    "linear": (lambda: layers.Linear(24, 40), (3, 70, 24)),
    "linear without bias": (lambda: layers.Linear(24, 40, bias_attr=False), (5, 24)),
    "layer norm": (lambda: layers.LayerNorm(24, epsilon=1e-3), (3, 70, 24)),
    "gelu": (layers.GELU, (3, 70, 24)),
    "mlp": (lambda: Mlp(24, 96), (3, 70, 24)),
    "patches": (lambda: PatchEmbedding((8, 12), 4, 3, 24), (5, 3, 8, 12)),
    "block": (vit_block, (3, 17, 24)),
    "block, wide heads, no bias": (lambda: vit_block(qkv_bias=False, head_dim=11), (3, 17, 24)),
    "block, dropped paths": (lambda: vit_block(drop_path=0.5), (6, 17, 24)),
    "block, first tokens": (lambda: FirstTokens(vit_block(drop_path=0.5)), (6, 17, 24)),
    "block, first tokens, wide heads, no bias": (
        lambda: FirstTokens(vit_block(qkv_bias=False, head_dim=11)),
        (3, 17, 24),
    ),
    "windows": (lambda: swin_block(False), (3, 8, 12, 24)),
    "shifted windows, dropped paths": (lambda: swin_block(True, 0.5), (6, 8, 12, 24)),
    "queries": (lambda: OfQueries(False, False), (4, 7, 24)),
    "queries at positions": (lambda: OfQueries(True, False), (4, 7, 24)),
    "queries in groups": (lambda: OfQueries(False, True), (4, 7, 24)),
    "queries at positions in groups": (lambda: OfQueries(True, True), (4, 7, 24)),
    "tokens": (OfTokens, (4, 14, 24)),
    "tokens, some hidden": (lambda: OfTokens(True), (4, 14, 24)),
    "tokens at positions, some hidden": (lambda: OfTokens(True, separate_qkv=True, rotary="axial"), (4, 14, 24)),
    "scaled block": (scaled_block, (4, 14, 24)),
    "scaled block, dropped paths": (lambda: scaled_block(0.5), (6, 14, 24)),
    "fewer keys": (lambda: reduction(2, (8, 6)), (3, 48, 24)),
    "fewer keys, linear form, no bias": (lambda: reduction(1, (9, 8), is_linear=True, qkv_bias=False), (2, 72, 24)),
    "keys of all, queries in two bands": (lambda: reduction(1, (20, 19)), (1, 380, 24)),
    "SegFormer's head": (OfMaps, (2, 11, 9, 6)),
    **IMAGES,
    **VOLUMES,
}


def made(case):
    """The layer with random parameters, and an input."""
    make, shape = CASES[case]
    layer, random = make(), np.random.default_rng(0)
    accelerate(layer)
    for parameter in layer.parameters():
        parameter.set_value((0.3 * random.standard_normal(parameter.shape) + 0.1).astype(np.float32))
    return layer, random.standard_normal(shape).astype(np.float32)


def computed(layer, values, transposed=False):
    """Result, gradient by the input and by the parameters, and the result of an evaluation."""
    layer.train()
    layer.clear_gradients()
    paddle.seed(1)
    x = paddle.to_tensor(np.ascontiguousarray(values.swapaxes(0, 1)) if transposed else values, stop_gradient=False)
    out = layer(x.transpose([1, 0, *range(2, x.ndim)]) if transposed else x)
    weights = np.random.default_rng(2).standard_normal(out.shape).astype(np.float32)
    (out * paddle.to_tensor(weights)).sum().backward()
    result = {"result": out.numpy(), "input": x.grad.numpy().swapaxes(0, 1) if transposed else x.grad.numpy()}
    learned = {name: parameter.grad for name, parameter in layer.named_parameters() if parameter.grad is not None}
    assert all(gradient.is_contiguous() for gradient in learned.values())  # Paddle averages no views over ranks
    result.update({name: gradient.numpy() for name, gradient in learned.items()})
    layer.eval()
    with paddle.no_grad():
        result["evaluation"] = layer(paddle.to_tensor(values)).numpy()
    return result


def assert_close(results, expected, relative=RELATIVE):
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        assert results[name].shape == value.shape
        assert np.abs(results[name] - value).max() <= relative * max(np.abs(value).max(), 1e-3), name


def build_decoder(scale=4, unbias=True):
    paddle.seed(3)
    decoder = ClassicDecoder(12, 5, scale, 10)
    random = np.random.default_rng(0)
    for name, parameter in decoder.named_parameters():
        values = random.standard_normal(parameter.shape)
        parameter.set_value((values**2 + 0.2 if "_variance" in name else 0.3 * values).astype(np.float32))
    if unbias:
        unbias_running_variance(decoder)
    accelerate(decoder)
    assert type(decoder) is not ClassicDecoder
    return decoder
