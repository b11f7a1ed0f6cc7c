"""The fast layers on CPUs compute what Paddle's layers compute, and leave to these what is not theirs."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.networks.fast_layers import CASES, assert_close, computed, made
from support.networks.plain_layers import plain_layers

from paddlevit_dist.core.runtime.lazy_names import import_object
from paddlevit_dist.core.tasks.model_factory import build_model, create_model
from paddlevit_dist.extensions.cpu_kernels import accelerate as accelerate_module
from paddlevit_dist.extensions.cpu_kernels.accelerate import _FAST, accelerate, can_use_fast_path, is_available
from paddlevit_dist.images.models import layers
from paddlevit_dist.images.models.layers import ChannelsLastConv, ChannelsLastDepthwiseConv, Mlp
from paddlevit_dist.images.models.vit import Attention
from paddlevit_dist.images.models.vit_blocks import ViTConfig

pytestmark = pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")


def test_a_model_on_a_gpu_keeps_its_classes(monkeypatch):
    monkeypatch.setattr(accelerate_module, "is_on_gpu", lambda: True)
    layer = Mlp(8, 16)
    accelerate(layer)
    assert type(layer) is Mlp and type(layer.fc1) is layers.Linear


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


@pytest.mark.parametrize("case", ["tokens, some hidden", "tokens at positions, some hidden", "scaled block"])
@pytest.mark.parametrize("is_fast", [True, False])
def test_a_traced_layer_computes_what_it_computes_untraced(case, is_fast):
    """A method that calls a function of its own name would call itself once it is traced."""
    layer, values = made(case) if is_fast else (CASES[case][0](), made(case)[1])
    layer.eval()
    with paddle.no_grad():
        expected = layer(paddle.to_tensor(values)).numpy()
        described = [paddle.static.InputSpec(values.shape, "float32")]
        traced = paddle.jit.to_static(layer, input_spec=described, full_graph=True, backend=None)
        np.testing.assert_allclose(traced(paddle.to_tensor(values)).numpy(), expected, rtol=1e-4, atol=1e-5)


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
@pytest.mark.parametrize("case", ["linear", "mlp", "block", "windows", "fewer keys", "patches", "volumes", "a product"])
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
@pytest.mark.parametrize("case", [case for case in TWICE if case not in ("depthwise without bias", "volumes")])
def test_gradients_with_a_graph_are_those_without_whatever_needs_none(case):
    layer, values = made(case)
    tensors = [paddle.to_tensor(values), *layer.parameters()]
    for frozen in range(len(tensors)):
        for number, tensor in enumerate(tensors):
            tensor.stop_gradient = number == frozen
        learned = [tensor for tensor in tensors if not tensor.stop_gradient] or tensors[:1]
        tensors[0].stop_gradient = tensors[0].stop_gradient and len(tensors) > 1
        weights = np.random.default_rng(4).standard_normal(layer(tensors[0]).shape).astype(np.float32)
        both = (
            paddle.grad((layer(tensors[0]) * paddle.to_tensor(weights)).sum(), learned, create_graph=with_graph)
            for with_graph in (False, True)
        )
        for plain, found in zip(*both):
            expected = plain.numpy()
            assert np.abs(found.numpy() - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1e-3)


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
        ("attn", lambda: Doubled(ViTConfig(24, num_heads=3))),
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


class HalvedLinear(layers.Linear):
    def forward(self, x):
        return super().forward(x) / 2


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("act", paddle.nn.ReLU),
        ("fc1", lambda: HalvedLinear(24, 96)),
        ("fc2", lambda: HalvedLinear(96, 24)),
        ("fc1", lambda: layers.Linear(24, 96, bias_attr=False)),
        ("fc2", lambda: layers.Linear(96, 24, bias_attr=False)),
        ("dropout", lambda: paddle.nn.Dropout(0.5)),
    ],
)
def test_parts_of_ones_own_in_an_mlp_compute_as_they_are_written(name, own):
    layer, values = made("mlp")
    setattr(layer, name, own())
    accelerate(layer)
    with plain_layers():
        expected = computed(layer, values)
    assert_close(computed(layer, values), expected)


def test_fast_layers_are_called_what_the_plain_ones_are():
    for plain, location in _FAST.items():
        assert import_object(f".extensions.cpu_kernels.{location}").__name__ == plain.rpartition(".")[2]


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


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("vit_tiny_patch16_224", 32, {"depth": 2}),
        ("deit_tiny_distilled_patch16_224", 32, {"depth": 2}),
        ("swin_tiny_patch4_window7_224", 56, {"depths": (2, 2), "num_heads": (3, 6), "embed_dim": 24}),
    ],
)
def test_whole_models(name, size, options):
    paddle.seed(0)
    model = create_model(name, num_classes=7, image_size=size, **options)
    accelerate(model)
    values = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    with plain_layers():
        expected = computed(model, values)
    assert_close(computed(model, values), expected, relative=1e-5)


def test_a_network_that_a_task_builds_by_itself_has_fast_layers_where_it_is_trained():
    class Own:
        def build_model(self):
            return Mlp(8, 16, 0.0)

    train, model = SimpleNamespace(BATCH_NORM_MOMENTUM=None), SimpleNamespace(NAME=None, OPTIONS=None)
    config = SimpleNamespace(SEED=0, TRAIN=train, MODEL=model)
    assert type(build_model(config, Own())).__module__ == "paddlevit_dist.extensions.cpu_kernels.layers"
