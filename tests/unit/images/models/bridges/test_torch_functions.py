"""What the files of timm call by PyTorch's names computes what PyTorch's documentation says, by NumPy."""

import numpy as np
import paddle
import pytest
from PIL import Image
from support.networks.timm_zoo import needs_compat

pytestmark = needs_compat
RANDOM = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def functions():
    from paddlevit_dist.images.models.bridges import torch_functions

    torch_functions.install_methods()
    return torch_functions


@pytest.fixture(scope="module")
def initial():
    """``torch.nn.init`` as timm's files see it."""
    from paddlevit_dist.images.models.bridges import torch_names

    return torch_names._modules()["torch.nn.init"]


@pytest.fixture(scope="module")
def layers():
    from paddlevit_dist.images.models.bridges import torch_layers

    return torch_layers


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def in_timm(expression: str, **names):
    """Evaluate an expression as a file of timm does."""
    return eval(expression, {"__name__": "timm.models.made_up", **names})


def test_methods_are_pytorchs_in_timm_alone():
    x = paddle.to_tensor(normal(6, 4))
    assert [tuple(part.shape) for part in in_timm("x.split(4)", x=x)] == [(4, 4), (2, 4)]
    assert [tuple(part.shape) for part in x.split(3)] == [(2, 4)] * 3
    values, places = in_timm("x.max(dim=1)", x=x)
    assert (places.numpy() == x.numpy().argmax(1)).all() and (values.numpy() == x.numpy().max(1)).all()
    assert tuple(x.max(axis=1).shape) == (6,)
    assert in_timm("x.dtype.is_floating_point", x=x) and not hasattr(x.dtype, "is_floating_point")


def test_a_view_has_the_shape_that_is_asked_for():
    """Paddle's own ``view`` returns the tensor unchanged where it has no views (FLAGS_use_stride_kernel 0)."""
    x = paddle.to_tensor(normal(2, 3, 4))
    before = paddle.get_flags("FLAGS_use_stride_kernel")
    try:
        for flag in (False, True):
            paddle.set_flags({"FLAGS_use_stride_kernel": flag})
            assert (in_timm("x.view(2, -1)", x=x).numpy() == x.numpy().reshape(2, -1)).all()
    finally:
        paddle.set_flags(before)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x.chunk(4, dim=1)", lambda x: np.array_split(x, [2, 4], axis=1)),
        ("x.div(2.5)", lambda x: x / 2.5),
        ("i.div(2)", lambda x: np.array([0.5, 1.0, 1.5])),
        ("i.mul(0.5)", lambda x: np.array([0.5, 1.0, 1.5])),
        ("x.add(x, alpha=2)", lambda x: 3 * x),
        ("x.norm(p=2, dim=(1, 2), keepdim=True)", lambda x: np.sqrt((x**2).sum((1, 2), keepdims=True))),
        ("x.unfold(2, 3, 2)", lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=2)[:, :, ::2]),
        ("x.clone().mul_(2.0).add_(1)", lambda x: 2 * x + 1),
        ("x.numel()", lambda x: x.size),
        ("x.reshape_as(x.flatten())", lambda x: x.ravel()),
    ],
)
def test_methods_of_a_tensor(expression, expected):
    x = normal(2, 5, 7)
    found = in_timm(expression, x=paddle.to_tensor(x), i=paddle.to_tensor([1, 2, 3]))
    wanted = expected(x)
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
    for one, other in zip(found, wanted) if isinstance(wanted, list) else [(found, wanted)]:
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-6)


def test_arguments_have_pytorchs_order(layers):
    """Paddle has the dilation of a transposed convolution before its groups, and no dilation of a pool."""
    transposed = layers.ConvTranspose2d(4, 6, 2, 2, 0, 0, 2, False)
    assert tuple(transposed.weight.shape) == (4, 3, 2, 2) and transposed.bias is None
    x = paddle.to_tensor(normal(1, 1, 5, 5))
    assert tuple(layers.max_pool2d(x, 2, 2, 0, 1, True).shape) == (1, 1, 3, 3)
    assert tuple(layers.MaxPool2d(2, 2, 0, 1, False, True)(x).shape) == (1, 1, 3, 3)
    assert tuple(layers.Conv2d(4, 6, 3, 1, 1, 1, 2, False).weight.shape) == (6, 2, 3, 3)


def test_dropout_takes_training_as_its_third_argument(functions):
    x = paddle.ones([100])
    assert (functions.dropout(x, 0.5, False).numpy() == 1).all()
    assert (functions.dropout(x, 0.5, True).numpy() == 0).any()


def test_means_count_padding(layers):
    x = paddle.ones([1, 1, 2, 2])
    assert float(layers.avg_pool2d(x, 3, 1, 1)[0, 0, 0, 0]) == pytest.approx(4 / 9)
    assert float(layers.avg_pool2d(x, 3, 1, 1, count_include_pad=False)[0, 0, 0, 0]) == 1.0


def test_norms(functions):
    x, weight, bias = normal(2, 4, 3), normal(4), normal(4)
    grouped = x.reshape(2, 2, 6)
    grouped = (grouped - grouped.mean(2, keepdims=True)) / np.sqrt(grouped.var(2, keepdims=True) + 1e-3)
    expected = grouped.reshape(2, 4, 3) * weight[:, None] + bias[:, None]
    found = functions.group_norm(
        *map(paddle.to_tensor, (x,)), 2, paddle.to_tensor(weight), paddle.to_tensor(bias), 1e-3
    )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
    rms = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(functions.rms_norm(paddle.to_tensor(x), (3,), None, 1e-3).numpy(), rms, rtol=1e-5)


def test_rows_are_divided_by_their_root_mean_square(functions):
    x, weight = normal(2, 3, 4), normal(3, 4)
    expected = x / np.sqrt((x**2).mean((1, 2), keepdims=True)) * weight
    found = functions.rms_norm(paddle.to_tensor(x), (3, 4), paddle.to_tensor(weight))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    assert functions.rms_norm(paddle.to_tensor([1e-3]), (1,)).item() == pytest.approx(
        1e-3 / np.sqrt(1e-6 + np.finfo(np.float32).eps), rel=1e-5
    )


@pytest.mark.parametrize("training", [False, True])
def test_channels_are_normalized_by_running_or_batch_statistics(functions, training):
    x, weight, bias, old_mean, old_variance = normal(4, 3, 5), normal(3), normal(3), normal(3), normal(3) ** 2
    running = [paddle.to_tensor(old_mean), paddle.to_tensor(old_variance)]
    parts = (paddle.to_tensor(weight), paddle.to_tensor(bias))
    found = functions.batch_norm(paddle.to_tensor(x), *running, *parts, training, 0.25, 1e-3)
    mean, variance = (x.mean((0, 2)), x.var((0, 2))) if training else (old_mean, old_variance)
    scaled = (x - mean[:, None]) / np.sqrt(variance[:, None] + 1e-3) * weight[:, None] + bias[:, None]
    np.testing.assert_allclose(found.numpy(), scaled, rtol=1e-4, atol=1e-5)
    expected = 0.75 * old_mean + 0.25 * mean if training else old_mean
    np.testing.assert_allclose(running[0].numpy(), expected, rtol=1e-5, atol=1e-6)
    plain = functions.batch_norm(paddle.to_tensor(x), None, None, bias=parts[1]).numpy()
    mean, variance = x.mean((0, 2))[:, None], x.var((0, 2))[:, None]
    np.testing.assert_allclose(plain, (x - mean) / np.sqrt(variance + 1e-5) + bias[:, None], rtol=1e-4, atol=1e-5)


X, Y = np.array([[7.0, -7.0, 5.0], [1.0, 2.0, -4.0]], np.float32), np.array([[2.0, 2.0, 3.0]], np.float32)


@pytest.mark.parametrize(
    ("name", "arguments", "options", "expected"),
    [
        ("add", (X, Y), {}, X + Y),
        ("add", (X, Y), {"alpha": 3}, X + 3 * Y),
        ("sub", (X, Y), {}, X - Y),
        ("sub", (X, Y), {"alpha": 3}, X - 3 * Y),
        ("div", (X, Y), {}, X / Y),
        ("div", (X, Y), {"rounding_mode": "floor"}, np.floor(X / Y)),
        ("div", (X, Y), {"rounding_mode": "trunc"}, np.trunc(X / Y)),
        ("addcmul", (X, Y, Y), {}, X + Y * Y),
        ("addcmul", (X, Y, Y), {"value": 0.5}, X + 0.5 * Y * Y),
        ("var_mean", (X, 1), {}, (X.var(1, ddof=1), X.mean(1))),
        ("var_mean", (X, 1, False, True), {}, (X.var(1, keepdims=True), X.mean(1, keepdims=True))),
        ("norm", (X, 1, 1), {}, np.abs(X).sum(1)),
        ("one_hot", (np.array([2, 0]), 3), {}, np.eye(3)[[2, 0]]),
        ("interpolate", (X[None, None], None, 2.0), {}, X[None, None].repeat(2, 2).repeat(2, 3)),
        ("interpolate", (X[None, None], 6), {}, X[None, None].repeat(3, 2).repeat(2, 3)),
        ("interpolate", (X[None, None], (2, 5), None, "bilinear", True), {}, None),
        ("chunk", (X, 2, 1), {}, [X[:, :2], X[:, 2:]]),
        ("relu6", (X,), {}, np.clip(X, 0, 6)),
    ],
)
def test_functions_compute_what_pytorch_documents(functions, name, arguments, options, expected):
    given = [paddle.to_tensor(part) if isinstance(part, np.ndarray) else part for part in arguments]
    found = getattr(functions, name)(*given, **options)
    if expected is None:  # corners stay corners
        expected = np.stack([np.interp(np.linspace(0, 2, 5), range(3), row) for row in X])[None, None]
    pairs = zip(found, expected) if isinstance(expected, (tuple, list)) else [(found, expected)]
    for one, other in pairs:
        assert one.numpy().shape == np.shape(other)
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)


def test_grids_and_initial_values_have_pytorch_s_arguments(functions, initial):
    grid = functions.affine_grid(paddle.to_tensor([[[1.0, 0, 0], [0, 1, 0]]]), [1, 1, 1, 4]).numpy()
    np.testing.assert_allclose(grid[0, 0, :, 0], [-0.75, -0.25, 0.25, 0.75], atol=1e-6)
    weights = paddle.zeros([400, 50])
    functions.kaiming(False)(weights, 1.0, "fan_out")
    assert float(weights.std()) == pytest.approx(1 / 20, rel=0.03)  # the gain of a slope of 1 is 1
    initial.xavier_uniform_(weights, 2.0)
    assert float(weights.abs().max()) == pytest.approx(2 * np.sqrt(6 / 450), rel=0.01)
    assert functions.fans(paddle.zeros([2, 3, 4, 5])) == (60, 40)
    with pytest.raises(ValueError, match="fewer than two axes"):
        functions.fans(paddle.zeros([3]))


def test_standardized_weights_have_gradients_of_their_gain(functions):
    x, gain = paddle.to_tensor(normal(1, 4, 9)), paddle.to_tensor(normal(4))
    gain.stop_gradient = x.stop_gradient = False
    functions.batch_norm(x, None, None, gain, training=True, momentum=0.0, eps=1e-5).square().sum().backward()
    variance = x.numpy()[0].var(axis=1)
    # The sum of squares of a standardized row of 9 is 9 gain^2, less the share of epsilon.
    np.testing.assert_allclose(gain.grad.numpy(), 18 * gain.numpy() * variance / (variance + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), 0, atol=1e-3)


def test_attention_of_five_axes_and_with_shared_keys(functions):
    q, k, v = normal(2, 3, 4, 5, 8), normal(2, 3, 4, 6, 8), normal(2, 3, 4, 6, 8)

    def reference(q, k, v):
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return shares / shares.sum(-1, keepdims=True) @ v

    found = functions.attend(*map(paddle.to_tensor, (q, k, v)))
    np.testing.assert_allclose(found.numpy(), reference(q, k, v), rtol=1e-4, atol=1e-5)
    q, k, v = q[0], k[0, :, :1], v[0, :, :1]
    found = functions.attend(*map(paddle.to_tensor, (q, k, v)))
    np.testing.assert_allclose(found.numpy(), reference(q, k, v), rtol=1e-4, atol=1e-5)


MASKS = {
    "positions": (5, 6),
    "heads": (4, 5, 6),
    "heads of one image": (1, 4, 5, 6),
    "images": (3, 1, 5, 6),
    "windows of one image": (1, 3, 4, 5, 6),
    "windows": (2, 3, 1, 1, 6),
}


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("is_boolean", [False, True])
def test_masks_are_not_given_to_flash_attention(functions, name, is_boolean, scale):
    """Flash attention has no gradient for a mask; where it alone is allowed, Paddle's choice fails on a CPU."""
    from paddle.nn.attention import SDPBackend, sdpa_kernel

    shape = MASKS[name]
    mask = normal(*shape) > -0.5 if is_boolean else normal(*shape)
    leading = (2, 3) if len(shape) == 5 else (3,)
    arrays = normal(*leading, 4, 5, 8), normal(*leading, 4, 6, 8), normal(*leading, 4, 6, 8), mask
    tensors = [paddle.to_tensor(array, stop_gradient=array.dtype == bool) for array in arrays]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        with pytest.raises(RuntimeError, match="No available backend"):
            functions.attend(*tensors[:3])
        with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal"):
            functions.attend(*tensors, is_causal=True)
        found = functions.attend(*tensors[:3], attn_mask=tensors[3], is_causal=False, scale=scale)
    q, k, v, mask = (array if array.dtype == bool else array.astype("f8") for array in arrays)
    scores = q @ k.swapaxes(-1, -2) * (scale or 8**-0.5)
    scores = np.where(mask, scores, -np.inf) if is_boolean else scores + mask
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    np.testing.assert_allclose(found.numpy(), shares @ v, rtol=1e-4, atol=1e-5)
    if not is_boolean:
        found.sum().backward()
        slopes = v.sum(-1)[..., None, :]  # of the sum, by each share
        slopes = shares * (slopes - (shares * slopes).sum(-1, keepdims=True))
        added = tuple(axis for axis, size in enumerate(mask.shape) if size == 1 < slopes.shape[axis - mask.ndim])
        slopes = slopes.sum(tuple(range(slopes.ndim - mask.ndim))).sum(added, keepdims=True)
        np.testing.assert_allclose(tensors[3].grad.numpy(), slopes, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("mode", "filter"), [("bicubic", Image.Resampling.BICUBIC), ("bilinear", Image.Resampling.BILINEAR)]
)
def test_resizing_with_antialias_is_pillows(functions, mode, filter):
    """PyTorch's documentation says that the two agree."""
    x = normal(9, 13)
    expected = np.asarray(Image.fromarray(x).resize((5, 4), filter))
    found = functions.interpolate(paddle.to_tensor(x[None, None]), (4, 5), mode=mode, antialias=True)
    np.testing.assert_allclose(found.numpy()[0, 0], expected, rtol=1e-4, atol=1e-5)


def test_sampling_of_a_grid_takes_borders_as_edges_of_pixels(functions):
    """With align_corners false, PyTorch's default, -1 and 1 are the edges of the image: its pixels are at -1/2, 1/2."""
    x = paddle.to_tensor([[[[0.0, 1.0]]]])
    grid = paddle.to_tensor([[[[-0.5, 0.0], [0.0, 0.0], [0.5, 0.0]]]])
    np.testing.assert_allclose(functions.grid_sample(x, grid).numpy().ravel(), [0, 0.5, 1], atol=1e-6)


def test_one_hot_numbers_are_whole(functions):
    assert functions.one_hot(paddle.to_tensor([1]), 3).dtype == paddle.int64


@pytest.mark.parametrize(
    ("name", "deviation"),
    [("xavier", np.sqrt(2 / 450)), ("kaiming", np.sqrt(2 / 50))],
)
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_initial_values_count_inputs_on_the_second_axis(initial, name, deviation, kind):
    """Weights (out, in) of 50 inputs and 400 outputs; He's with the gain sqrt(2) of a ReLU."""
    weights = paddle.create_parameter([400, 50], "float32")  # in which a gradient would stand in the way
    fill = getattr(initial, f"{name}_{kind}_")
    fill(weights) if name == "xavier" else fill(weights, nonlinearity="relu")
    assert float(weights.std()) == pytest.approx(deviation, rel=0.03)


def test_truncated_values_stay_between_their_bounds(initial):
    weights = paddle.zeros([20000])
    initial.trunc_normal_(weights, std=0.5, a=-1.0, b=1.0)
    assert float(weights.abs().max()) <= 1.0
    assert float(weights.std()) == pytest.approx(0.4398, rel=0.02)  # of a normal cut at two deviations, 0.8796


def test_values_are_filled_without_a_gradient(initial):
    weights = paddle.create_parameter([2000], "float32")
    initial.uniform_(weights)
    assert 0 <= float(weights.min()) < 0.01 and 0.99 < float(weights.max()) <= 1
    initial.normal_(weights, 3.0, std=0.1)
    assert float(weights.mean()) == pytest.approx(3, abs=0.02) and float(weights.std()) == pytest.approx(0.1, rel=0.1)
    for fill, value in ((initial.ones_, 1), (initial.zeros_, 0), (lambda tensor: initial.constant_(tensor, 0.5), 0.5)):
        fill(weights)
        assert weights.unique().tolist() == [value] and not weights.stop_gradient and weights.is_leaf


@pytest.mark.parametrize("is_inplace", [False, True])
@pytest.mark.parametrize("name", ["hard_swish", "hard_sigmoid", "hard_mish", "swish", "mish", "gelu", "relu6"])
def test_activations_have_gradients(name, is_inplace):
    """Also if they change in place what they have computed."""
    from paddlevit_dist.images.models.bridges.timm_model import load_timm

    layer, step = load_timm().layers.create_act_layer(name, inplace=is_inplace), 1e-2
    values = np.array([-4, -2.5, -1.2, 0.6, 1.7, 2.6, 4, 7], np.float32)
    x = paddle.to_tensor(values, stop_gradient=False)
    layer(x * 1.0).sum().backward()
    above, below = (layer(paddle.to_tensor(values + change)).numpy() for change in (step, -step))
    np.testing.assert_allclose(x.grad.numpy(), (above - below) / (2 * step), atol=2e-3)


# ---- recorded tensors, whose batch is not known ---------------------------------------------------------------------
