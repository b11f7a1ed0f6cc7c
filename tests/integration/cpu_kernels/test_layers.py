"""The fast layers on CPUs compute what Paddle's layers compute, and leave to these what is not theirs."""

import contextlib
import copy
import pickle
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers

from paddlevit_dist.cpu_kernels import accelerate as accelerate_module
from paddlevit_dist.cpu_kernels.accelerate import _FAST, accelerate, can_use_fast_path, is_available
from paddlevit_dist.images.detection.rtdetr.encoder import PositionAttention
from paddlevit_dist.images.models import layers
from paddlevit_dist.images.models.convnext import ConvNeXtBlock as ConvNeXtBlock
from paddlevit_dist.images.models.layers import ChannelsLastConv, ChannelsLastDepthwiseConv, Mlp, PatchEmbedding
from paddlevit_dist.images.models.pvt_v2 import SpatialReductionAttention
from paddlevit_dist.images.models.segformer import SegFormerHead
from paddlevit_dist.images.models.swin import SwinBlock
from paddlevit_dist.images.models.vit import Attention, ViTBlock
from paddlevit_dist.losses import resized_cross_entropy
from paddlevit_dist.runtime.lazy_names import import_object
from paddlevit_dist.tasks.model_factory import build_model, create_model

pytestmark = pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")
RELATIVE = 4e-6  # of the largest entry


class FirstTokens(paddle.nn.Layer):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x, 2)


def vit_block(drop_path=0.0, qkv_bias=True, head_dim=8):
    return ViTBlock(
        24, 96, 0.0, drop_path, num_heads=3, head_dim=head_dim, qkv_bias=qkv_bias, attention_dropout=0.0
    )  # fmt: skip


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
    "layer norm": (lambda: layers.LayerNorm(24, epsilon=1e-6), (3, 70, 24)),
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


def test_a_model_on_a_gpu_keeps_its_classes(monkeypatch):
    monkeypatch.setattr(accelerate_module, "is_on_gpu", lambda: True)
    layer = Mlp(8, 16)
    accelerate(layer)
    assert type(layer) is Mlp and type(layer.fc1) is layers.Linear


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


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_plain_layers(case):
    layer, values = made(case)
    with plain_layers():
        expected = computed(layer, values)
    results = computed(layer, values)
    assert_close(results, expected)
    if case not in ("linear without bias", "a product"):  # one product, the same
        assert any((results[name] != value).any() for name, value in expected.items())  # it was computed another way
    for name, value in computed(layer, values).items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@pytest.mark.parametrize("case", ["linear", "layer norm", "gelu", "mlp", "block", "windows", "volumes"])
def test_views_are_read_in_their_order(case):
    layer, values = made(case)
    assert_close(computed(layer, values, transposed=True), computed(layer, values))


@pytest.mark.parametrize(
    "case",
    [
        "linear",
        "layer norm",
        "mlp",
        "patches",
        "block",
        "block, first tokens",
        "windows",
        "ConvNeXt's block",
        "depthwise, whole tiles of 7 columns",
        "a product",
        "volumes",
    ],
)
def test_frozen_parameters_get_no_gradient_and_the_others_the_same(case):
    layer, values = made(case)
    expected = computed(layer, values)
    for number, (_, parameter) in enumerate(layer.named_parameters()):
        parameter.clear_gradient(False)
        parameter.stop_gradient = number % 2 == 0
    layer.train()
    paddle.seed(1)
    out = layer(paddle.to_tensor(values))  # whose gradient is not wanted, either
    (out * paddle.to_tensor(np.random.default_rng(2).standard_normal(out.shape).astype(np.float32))).sum().backward()
    for name, parameter in layer.named_parameters():
        if parameter.stop_gradient:
            assert parameter.grad is None
        else:
            np.testing.assert_array_equal(parameter.grad.numpy(), expected[name], err_msg=name)


@pytest.mark.parametrize("case", ["mlp", "block", "block, first tokens", "shifted windows, dropped paths"])
def test_gradients_can_be_taken_twice(case):
    layer, values = made(case)
    out = (layer(paddle.to_tensor(values)) ** 2).sum()
    first = paddle.grad(out, layer.parameters(), retain_graph=True)
    for once, again in zip(first, paddle.grad(out, layer.parameters())):
        np.testing.assert_array_equal(once.numpy(), again.numpy())


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="Paddle 2.6 takes no list of tensors in a PyLayer")
@pytest.mark.parametrize("case", CASES)
def test_gradients_by_some_tensors_are_those_by_all(case):
    layer, values = made(case)
    x = paddle.to_tensor(values, stop_gradient=False)
    tensors = [x, *layer.parameters()]

    def gradients(wanted):
        paddle.seed(1)
        return paddle.grad((layer(x) ** 2).sum(), wanted, allow_unused=True)

    for tensor, expected in zip(tensors, gradients(tensors)):
        if expected is not None:
            np.testing.assert_array_equal(gradients([tensor])[0].numpy(), expected.numpy())


TWICE = ["linear", "linear without bias", "layer norm", "gelu", "mlp", "patches", "ConvNeXt's block", "volumes"]
TWICE += ["depthwise, less high than the kernel", "depthwise without bias", "PVTv2's first", "convolution without bias"]
TWICE += ["volumes, sides and padding by axis", "volumes, an even kernel", "volumes, one channel, no bias"]


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="Paddle 2.6 takes no list of tensors in a PyLayer")
@pytest.mark.parametrize("case", TWICE)
def test_gradients_of_gradients_are_the_slopes_of_the_plain_layers_gradients(case):
    layer, values = made(case)
    random = np.random.default_rng(3)
    weights = random.standard_normal(layer(paddle.to_tensor(values)).shape)
    others = random.standard_normal(values.shape)
    along = [random.standard_normal(shape) for shape in (values.shape, *(p.shape for p in layer.parameters()))]

    def product(step, dtype):
        """Of the gradient by the input, this far along the direction, and ``others``."""
        own = copy.deepcopy(layer).to(dtype=dtype)
        for parameter, direction in zip(own.parameters(), along[1:]):
            parameter.set_value((parameter.numpy() + step * direction).astype(dtype))
        x = paddle.to_tensor((values + step * along[0]).astype(dtype), stop_gradient=False)
        total, tensors = (own(x) * paddle.to_tensor(weights, dtype)).sum(), [x, *own.parameters()]
        # Of all where Paddle computes: its layer norm gives its input a wrong gradient where the weight gets none.
        gradient = paddle.grad(total, x if dtype == "float32" else tensors, create_graph=dtype == "float32")[0]
        return (gradient * paddle.to_tensor(others, dtype)).sum(), tensors

    total, tensors = product(0.0, "float32")
    found = paddle.grad(total, tensors, allow_unused=True)
    slope = sum(float((one.numpy() * direction).sum()) for one, direction in zip(found, along) if one is not None)
    ahead, behind = (product(step, "float64")[0].item() for step in (1e-5, -1e-5))
    sizes = [np.abs(one.numpy() * direction).sum() for one, direction in zip(found, along) if one is not None]
    assert slope == pytest.approx((ahead - behind) / 2e-5, abs=1e-5 * sum(sizes))
    assert sum(sizes) > 0


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="Paddle 2.6 takes no list of tensors in a PyLayer")
@pytest.mark.parametrize("case", ["block", "windows", "fewer keys", "SegFormer's head"])
def test_branches_refuse_gradients_of_gradients_and_say_what_helps(case):
    layer, values = made(case)
    x = paddle.to_tensor(values, stop_gradient=False)
    with pytest.raises(Exception, match="set PADDLEVIT_DIST_PLAIN_LAYERS=1"):
        paddle.grad((layer(x) ** 2).sum(), x, create_graph=True)


def test_large_and_not_finite_numbers():
    values = np.array([[-1e4, -60.0, -12.0, -3.0, -0.0, 3.0, 60.0, 1e4]], dtype=np.float32)
    expected = paddle.nn.functional.gelu(paddle.to_tensor(values)).numpy()
    np.testing.assert_allclose(made("gelu")[0](paddle.to_tensor(values)).numpy(), expected, rtol=1e-6, atol=1e-6)
    for case in ("gelu", "mlp", "block", "windows"):
        layer, values = made(case)
        values[0, 1] = np.nan
        assert np.isnan(layer(paddle.to_tensor(values)).numpy()).any()


class Doubled(Attention):
    def forward(self, x):
        return 2 * super().forward(x)


class Rectified(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.dropout = layers.Linear(24, 96), layers.Linear(96, 24), paddle.nn.Dropout(0.0)

    def forward(self, x):
        return self.fc2(paddle.nn.functional.relu(self.fc1(x)))


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("attn", lambda: Doubled(24, 3, 8, True, dropout=0.0, attention_dropout=0.0)),
        ("mlp", Rectified),
        ("drop_path", paddle.nn.Identity),
    ],
)
def test_parts_of_ones_own_in_a_block_compute_as_they_are_written(name, own):
    layer, values = made("block")
    setattr(layer, name, own())
    accelerate(layer)
    with plain_layers():
        expected = computed(layer, values)
    assert_close(computed(layer, values), expected)


def test_fast_layers_are_called_what_the_plain_ones_are():
    for plain, location in _FAST.items():
        assert import_object(f".cpu_kernels.{location}").__name__ == plain.rpartition(".")[2]


def watch_by_hook(layer, seen):
    layer.register_forward_post_hook(lambda layer, inputs, output: seen.append(type(layer).__name__))


def watch_by_own_forward(layer, seen):
    forward = layer.forward

    def watched(*inputs):
        seen.append(type(layer).__name__)
        return forward(*inputs)

    layer.forward = watched


@pytest.mark.parametrize("watch", [watch_by_hook, watch_by_own_forward])
def test_hooks_and_own_functions_see_every_layer(watch):
    layer, values = made("block")
    seen = []
    for part in layer.sublayers():
        watch(part, seen)
    layer(paddle.to_tensor(values))
    assert sorted(set(seen)) == [
        "Attention",
        "DropPath",
        "Dropout",
        "GELU",
        "LayerNorm",
        "Linear",
        "MatrixProduct",
        "Mlp",
    ]


def test_other_types_are_left_to_paddle():
    linear, values = made("linear")
    x = paddle.to_tensor(values)
    assert can_use_fast_path(x, linear)
    assert not can_use_fast_path(x.astype("float64"), linear)
    assert not can_use_fast_path(x.astype("bfloat16"), linear)
    assert not can_use_fast_path(x[:0], linear)
    with plain_layers():
        assert not can_use_fast_path(x, linear)
    doubled = copy.deepcopy(linear).to(dtype="float64")
    assert doubled(x.astype("float64")).dtype == paddle.float64


def test_layers_are_copied_pickled_and_named_like_paddles():
    block, values = made("block")
    x = paddle.to_tensor(values)
    expected = block(x).numpy()
    np.testing.assert_array_equal(copy.deepcopy(block)(x).numpy(), expected)
    norm, values = made("layer norm")
    state = pickle.loads(pickle.dumps({name: value.numpy() for name, value in norm.state_dict().items()}))
    assert state.keys() == paddle.nn.LayerNorm(24).state_dict().keys()
    assert layers.Linear(2, 2).weight.name.startswith("linear_")
    assert norm.weight.name.startswith("layer_norm_")


@pytest.mark.parametrize(
    ("layer", "plain"),
    [
        (lambda: ChannelsLastDepthwiseConv(32, 7), lambda: paddle.nn.Conv2D(32, 32, 7, padding=3, groups=32)),
        (lambda: ChannelsLastConv(8, 32, 3, 2, 1), lambda: paddle.nn.Conv2D(8, 32, 3, stride=2, padding=1)),
    ],
)
def test_names_and_initial_values_are_those_of_paddles_convolution(layer, plain):
    states = []
    for make in (layer, plain):
        paddle.seed(4)
        states.append({name: value.numpy() for name, value in make().state_dict().items()})
    assert list(states[0]) == list(states[1]) == ["weight", "bias"]
    for name in states[0]:
        np.testing.assert_array_equal(states[0][name], states[1][name])


@pytest.mark.parametrize("channels", [16, 10])
def test_other_types_channels_and_views_of_images_are_computed_too(channels):
    layer, x = ChannelsLastDepthwiseConv(channels, 3), np.random.default_rng(0).standard_normal((2, 6, 4, channels))
    accelerate(layer)
    turned = paddle.to_tensor(x.transpose(0, 2, 1, 3).astype(np.float32)).transpose([0, 2, 1, 3])  # perhaps a view
    found = layer(turned).numpy()
    layer.to(dtype="float64")
    expected = paddle.nn.Conv2D.forward(layer, paddle.to_tensor(x.transpose(0, 3, 1, 2))).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(layer(paddle.to_tensor(x)).numpy(), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"stride": 2},
        {"stride": (1, 1, 2)},
        {"dilation": 2},
        {"groups": 2},
        {"padding": "SAME"},
        {"padding": (1, 0, 1, 1, 0, 2)},
        {"padding": 3},
        {"padding_mode": "reflect", "padding": 1},
        {"data_format": "NDHWC"},
        {"out_channels": 66},
        {"kernel_size": 1},
    ],
)
def test_other_convolutions_of_volumes_are_left_to_paddle(options):
    layer = paddle.nn.Conv3D(**{"in_channels": 6, "out_channels": 4, "kernel_size": 3, **options})
    accelerate(layer)
    values = np.random.default_rng(0).standard_normal((2, 6, 7, 6, 6)).astype(np.float32)
    expected = paddle.nn.Conv3D.forward(layer, paddle.to_tensor(values)).numpy()
    np.testing.assert_array_equal(layer(paddle.to_tensor(values)).numpy(), expected)
    assert not layer._fits(paddle.to_tensor(values))


def test_volumes_that_do_not_fit_are_refused_by_paddle():
    layer, _ = made("volumes as large as the kernel")
    for shape in ((1, 3, 4, 4, 4), (1, 64, 4, 4), (64, 4, 4, 4)):
        with pytest.raises(ValueError, match="InvalidArgument"):
            layer(paddle.zeros(shape))


def test_a_frozen_norm_hands_on_the_gradient_of_one_that_learns():
    """Paddle's own on a CPU forgets the weights where they ask for no gradient."""
    values = np.random.default_rng(0).standard_normal((3, 5, 8))
    factors = paddle.to_tensor(np.random.default_rng(1).standard_normal((3, 5, 8)))
    gradients = []
    for is_frozen in (False, True):
        norm = layers.LayerNorm(8).to(dtype="float64")
        norm.weight.set_value(paddle.to_tensor(np.linspace(0.5, 3.0, 8)))
        norm.weight.stop_gradient = norm.bias.stop_gradient = is_frozen
        x = paddle.to_tensor(values, stop_gradient=False)
        (norm(x) * factors).sum().backward()
        gradients.append(x.grad.numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("size, large", [((3, 5), (13, 20)), ((7, 9), (7, 9)), ((12, 9), (5, 4)), ((1, 1), (3, 2))])
@pytest.mark.parametrize("weights", [None, (0.5, 2.0, 0.0, *[1.0] * 16)])
def test_cross_entropy_at_the_size_of_the_labels(size, large, weights):
    random = np.random.default_rng(0)
    logits, labels = random.standard_normal((2, 19, *size)).astype(np.float32), random.integers(0, 19, (2, *large))
    labels[random.random(labels.shape) < 0.3] = 255
    found = []
    for _ in range(2):
        given = paddle.to_tensor(4 * logits, stop_gradient=False)
        loss = resized_cross_entropy(given, paddle.to_tensor(labels), 255, weights)
        with paddle.no_grad():
            alone = resized_cross_entropy(given, paddle.to_tensor(labels), 255, weights)
        (0.3 * loss).backward()
        found.append({"loss": loss.numpy(), "alone": alone.numpy(), "gradient": given.grad.numpy()})
        if len(found) == 1:
            stack = contextlib.ExitStack()
            stack.enter_context(plain_layers())
    stack.close()
    assert_close(*found)
    assert (found[0]["gradient"] != found[1]["gradient"]).any()


def test_a_label_that_is_no_class_is_refused():
    for label in (-1, 3, 254):
        with pytest.raises(ValueError, match=f"^label {label} is neither one of 3 classes nor 255"):
            resized_cross_entropy(paddle.zeros([1, 3, 2, 2]), paddle.full([1, 4, 4], label, "int64"), 255)


MODELS = {
    "vit_tiny_patch16_224": {"depth": 2},
    "deit_tiny_distilled_patch16_224": {"depth": 2},
    "swin_tiny_patch4_window7_224": {"depths": (2, 2), "num_heads": (3, 6), "embed_dim": 24},
}


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name):
    paddle.seed(0)
    model = create_model(name, num_classes=7, image_size=112, **MODELS[name])
    accelerate(model)
    values = np.random.default_rng(0).standard_normal((2, 3, 112, 112)).astype(np.float32)
    with plain_layers():
        expected = computed(model, values)
    assert_close(computed(model, values), expected, relative=1e-5)


def test_a_network_that_a_task_builds_by_itself_has_fast_layers_where_it_is_trained():
    class Own:
        def build_model(self):
            return Mlp(8, 16, 0.0)

    config = SimpleNamespace(SEED=0, TRAIN=SimpleNamespace(BATCH_NORM_MOMENTUM=None))
    assert type(build_model(config, Own())).__module__ == "paddlevit_dist.cpu_kernels.layers"
