"""Batch normalization in one process: against Paddle's layer, and gradients against finite differences."""

import contextlib

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device
from support.thread_ranks import acting_as

from paddlevit_dist.core.distributed import (
    DistributedBatchNorm,
    batch_moments,
    batch_norm,
    batch_norm_kind,
    communicates_in_forward,
    convert_batch_norm,
    has_batch_norm,
    running_statistics,
    unbias_running_variance,
)
from paddlevit_dist.core.tasks.model_factory import create_model

SHAPES = [(7, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 4, 3)]
PLAIN = {2: paddle.nn.BatchNorm1D, 3: paddle.nn.BatchNorm1D, 4: paddle.nn.BatchNorm2D, 5: paddle.nn.BatchNorm3D}


def mean_of(layer) -> paddle.Tensor:
    return running_statistics(layer)[0]


def variance_of(layer) -> paddle.Tensor:
    return running_statistics(layer)[1]


def rows(shape, seed=0) -> np.ndarray:
    return 2.0 * np.random.default_rng(seed).standard_normal(shape) + 1.0


def with_own_path(plain: paddle.nn.Layer, dtype: str) -> DistributedBatchNorm:
    """The same parameters and statistics in new tensors, computed by our operations instead of Paddle's kernel."""
    layer = DistributedBatchNorm(3, plain._momentum, plain._epsilon).to(dtype=dtype)
    layer._normalize = lambda x: batch_norm._NormalizeFunction.apply(x, layer.weight, layer.bias, layer, False)
    layer.set_state_dict(plain.state_dict())
    return layer


def run(layer, x: np.ndarray, slope: np.ndarray, dtype: str) -> dict:
    inputs = paddle.to_tensor(x, dtype=dtype, stop_gradient=False)
    outputs = layer(inputs)
    (outputs * paddle.to_tensor(slope, dtype=dtype)).sum().backward()
    gradients = {"x": inputs.grad, "weight": layer.weight.grad, "bias": layer.bias.grad}
    return {
        "y": outputs,
        **gradients,
        "mean": mean_of(layer),
        "variance": variance_of(layer),
    }


def randomized(plain: paddle.nn.Layer) -> paddle.nn.Layer:
    for name, tensor in plain.state_dict().items():
        tensor.set_value(np.random.default_rng(len(name)).uniform(0.5, 1.5, tensor.shape).astype("float32"))
    return plain


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-5), ("float64", 1e-11)])
def test_own_operations_agree_with_paddles_layer(shape, dtype, tolerance):
    # Paddle keeps the momentum in float32, where 0.75 is exact.
    plain = randomized(PLAIN[len(shape)](3, momentum=0.75)).to(dtype=dtype)
    layer = with_own_path(plain, dtype)
    slope = rows(shape, seed=1)
    before = variance_of(plain).numpy().copy()
    ours, theirs = run(layer, rows(shape), slope, dtype), run(plain, rows(shape), slope, dtype)
    count = np.prod(shape) // 3
    unbiased = 0.75 * before + (theirs.pop("variance").numpy() - 0.75 * before) * count / (count - 1)
    np.testing.assert_allclose(ours.pop("variance").numpy(), unbiased, rtol=tolerance)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name].numpy(), value.numpy(), rtol=tolerance, atol=tolerance, err_msg=name)


def test_a_layer_of_one_device_counts_its_own_rows_on_any_number_of_devices(act_as):
    """Not of all devices: otherwise its running variance would hardly be corrected."""
    act_as(0, 3)
    layer = unbias_running_variance(paddle.nn.BatchNorm1D(3, momentum=0.75))
    values = rows((4, 3))
    layer(paddle.to_tensor(values, dtype="float32"))
    np.testing.assert_allclose(variance_of(layer).numpy(), 0.75 + 0.25 * values.var(axis=0, ddof=1), rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_agree_with_finite_differences(shape):
    layer = with_own_path(randomized(PLAIN[len(shape)](3)).to(dtype="float64"), "float64")
    x, slope = rows(shape), rows(shape, seed=1)
    gradient = run(layer, x, slope, "float64")["x"].numpy()

    def loss(values):
        return float((layer(paddle.to_tensor(values)).numpy() * slope).sum())

    for position in np.random.default_rng(2).integers(0, x.size, 12):
        step = np.zeros(x.size)
        step[position] = 1e-5
        step = step.reshape(shape)
        difference = (loss(x + step) - loss(x - step)) / 2e-5
        assert gradient.reshape(-1)[position] == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_a_mean_far_from_zero_costs_no_digits():
    layer = DistributedBatchNorm(3).to(dtype="float64")
    x = np.random.default_rng(0).standard_normal((50, 3))
    far = layer(paddle.to_tensor(x + 1e7)).numpy()
    np.testing.assert_allclose(far, layer(paddle.to_tensor(x)).numpy(), atol=1e-7)


@pytest.mark.parametrize("shape", [(80_000, 3), (2, 3, 160, 250), (1, 3, 20, 50, 40)], ids=["rows", "maps", "volumes"])
@pytest.mark.parametrize("path", ["Paddle's layer", "one process", "ranks"])
def test_statistics_of_many_equal_values_lose_no_digits(shape, path):
    """Against float64; float32 sums are off by 1e-5 to 1e-3, because all roundings have one direction."""
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    x = np.full(shape, 0.37, np.float32)
    x.reshape(-1)[: x.size // 50] = np.random.default_rng(0).standard_normal(x.size // 50)
    slope = np.full(shape, 0.3, np.float32)
    slope.reshape(-1)[: x.size // 100] = 1.0
    plain = PLAIN[len(shape)](3, momentum=0.0)
    if path == "Paddle's layer":
        layer = batch_norm.unbias_running_variance(plain)
    elif path == "one process":
        layer = convert_batch_norm(plain)
    else:
        layer = with_own_path(plain, "float32")
    found = {name: value.numpy() for name, value in run(layer, x, slope, "float32").items()}
    exact, rows_per_channel = x.astype(np.float64), x.size // 3
    mean, variance = exact.mean(axes, keepdims=True), exact.var(axes, keepdims=True)
    normalized = (exact - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(found["mean"], mean.reshape(-1), rtol=1e-6)
    unbiased = variance.reshape(-1) * rows_per_channel / (rows_per_channel - 1)
    np.testing.assert_allclose(found["variance"], unbiased, rtol=1e-6)
    np.testing.assert_allclose(found["y"], normalized, rtol=1e-5, atol=1e-6)
    sums = [(slope.astype(np.float64) * factor).sum(axes, keepdims=True) for factor in (1.0, normalized)]
    np.testing.assert_allclose(found["bias"], sums[0].reshape(-1), rtol=1e-6)
    np.testing.assert_allclose(found["weight"], sums[1].reshape(-1), rtol=1e-5, atol=1e-3)
    gradient = (slope - sums[0] / rows_per_channel - normalized * sums[1] / rows_per_channel) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(found["x"], gradient, rtol=1e-4, atol=2e-6)


def test_statistics_never_pass_through_the_host(other_paddle):
    # Paddle 2.6 copies the value to the host and back.
    other_paddle({"Tensor.set_value": lambda *_: pytest.fail("by the host")})
    layer, x = DistributedBatchNorm(3), rows((7, 3))
    layer(paddle.to_tensor(x, dtype="float32"))
    expected = 0.9 + 0.1 * x.var(axis=0, ddof=1)
    np.testing.assert_allclose(variance_of(layer).numpy(), expected, rtol=1e-5)


def test_channels_last():
    x = rows((2, 4, 5, 3))
    last = DistributedBatchNorm(3, data_format="NHWC").to(dtype="float64")
    first = paddle.nn.BatchNorm2D(3).to(dtype="float64")
    expected = first(paddle.to_tensor(x.transpose(0, 3, 1, 2))).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(last(paddle.to_tensor(x)).numpy(), expected, rtol=1e-11)
    last.eval(), first.eval()
    assert last(paddle.to_tensor(x)).shape == list(x.shape)


def test_conversion_keeps_tensors_names_and_shared_layers():
    shared = paddle.nn.BatchNorm2D(4, data_format="NHWC", momentum=0.7, epsilon=1e-3)
    model = paddle.nn.Sequential(
        paddle.nn.Linear(3, 4),
        paddle.nn.Sequential(shared, paddle.nn.BatchNorm(4, act="relu", use_global_stats=True)),
        shared,
        paddle.nn.BatchNorm1D(4, weight_attr=False, bias_attr=False),
        paddle.nn.SyncBatchNorm(4),
    )
    before = {name: id(tensor) for name, tensor in model.state_dict().items()}
    assert convert_batch_norm(model) is model
    assert {name: id(tensor) for name, tensor in model.state_dict().items()} == before
    assert model[1][0] is model[2] and isinstance(model[2], DistributedBatchNorm)
    assert (model[2]._momentum, model[2]._epsilon, model[2]._channels_last) == (float(np.float32(0.7)), 1e-3, True)
    assert [type(layer) for layer in (model[1][1], model[3], model[4])] == [DistributedBatchNorm] * 3
    assert model[1][1](paddle.to_tensor([[-1.0] * 4])).numpy().tolist() == [[0.0] * 4]
    assert all(tensor.stop_gradient for name, tensor in model.named_parameters() if name.endswith("_mean"))


def a_kernel(x, mean, variance, weight, bias, is_test, momentum, epsilon, layout, *flags):
    """Paddle's ``sync_batch_norm_`` of one process, which only GPUs have, by numpy."""
    values = x.numpy() if layout == "NCHW" else np.moveaxis(x.numpy(), -1, 1)
    flat = np.moveaxis(values, 1, -1).reshape(-1, values.shape[1])
    normal = (flat - flat.mean(axis=0)) / np.sqrt(flat.var(axis=0) + epsilon) * weight.numpy() + bias.numpy()
    for running, new in ((mean, flat.mean(axis=0)), (variance, flat.var(axis=0))):
        paddle.assign((momentum * running.numpy() + (1 - momentum) * new).astype("float32"), output=running)
    y = np.moveaxis(normal.reshape(np.moveaxis(values, 1, -1).shape), -1, 1)
    return (paddle.to_tensor(y if layout == "NCHW" else np.moveaxis(y, 1, -1)), *[None] * 5)


def test_on_gpus_dense_layers_become_paddles_own(other_paddle):
    settings = {"momentum": 0.7, "epsilon": 1e-3}
    model = paddle.nn.Sequential(
        randomized(paddle.nn.BatchNorm2D(3, **settings)),
        paddle.nn.BatchNorm3D(3),
        paddle.nn.BatchNorm1D(3),
        paddle.nn.BatchNorm2D(3, weight_attr=False, bias_attr=False),
        paddle.nn.BatchNorm2D(3, use_global_stats=True),
        DistributedBatchNorm(3),
        paddle.nn.BatchNorm2D(3, data_format="NHWC"),
    )
    before = {name: id(tensor) for name, tensor in model.state_dict().items()}
    alone = batch_norm.unbias_running_variance(randomized(paddle.nn.BatchNorm2D(3, **settings)))
    assert convert_batch_norm(model, native=True) is model
    assert {name: id(tensor) for name, tensor in model.state_dict().items()} == before
    native = paddle.nn.SyncBatchNorm
    assert [isinstance(layer, native) for layer in model] == [True, True, *[False] * 4, True]
    assert all(layer.synchronized for layer in model if isinstance(layer, DistributedBatchNorm))
    assert has_batch_norm(model[:1]) and not communicates_in_forward(model[:1])
    with acting_as(0, 2):
        assert communicates_in_forward(model[:1])
    assert convert_batch_norm(model, native=True)[0] is model[0]
    other_paddle({"_C_ops.sync_batch_norm_": a_kernel})
    x = paddle.to_tensor(rows((4, 3, 2, 2)).astype("float32"))
    np.testing.assert_allclose(model[0](x).numpy(), alone(x).numpy(), rtol=1e-4, atol=1e-5)
    for name, value in alone.state_dict().items():
        np.testing.assert_allclose(model[0].state_dict()[name].numpy(), value.numpy(), rtol=1e-5, err_msg=name)
    last = paddle.transpose(x, [0, 2, 3, 1])
    expected = paddle.nn.BatchNorm2D(3, data_format="NHWC")(last).numpy()
    np.testing.assert_allclose(model[6](last).numpy(), expected, rtol=1e-4, atol=1e-5)


def test_paddles_layer_is_taken_only_where_it_is_seen_to_exchange(other_paddle, act_as):
    def exchanging(x, mean, *others):
        return a_kernel(x * 0.0 + 1.0 / 3, mean, *others)  # the mean over the three ranks

    calls = []  # of each rank: a collective, which makes the communicator, and what it holds

    def alone(x, mean, *others):
        calls.append(x.numpy().max())
        return a_kernel(x, mean, *others)

    with forced_device():
        other_paddle({"distributed.all_reduce": lambda tensor: calls.append("collective")})
        for kernel, expected in ((exchanging, True), (alone, False)):
            other_paddle({"_C_ops.sync_batch_norm_": kernel})
            for number in range(3):
                act_as(number, 3)
                assert batch_norm.native_synchronizes() is expected
        assert calls[-6:] == ["collective", 0, "collective", 0, "collective", 1]
        act_as(0, 1)
        assert not batch_norm.native_synchronizes()
    act_as(0, 3)
    assert not batch_norm.native_synchronizes()


class Counter(paddle.nn.Layer):
    """A user's layer, whose forward pass changes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", paddle.zeros([1]))

    def forward(self, x):
        self.calls.add_(paddle.ones([1]))
        return x


def buffers_changed_by(model, *inputs):
    """The names of the buffers and running statistics that a forward pass in training mode changes."""
    model.train()
    tensors = {**dict(model.named_buffers()), **{n: t for n, t in model.named_parameters() if t.stop_gradient}}
    before = {name: tensor.numpy().copy() for name, tensor in tensors.items()}
    model(*inputs)
    kept = {id(tensor) for tensor in running_statistics(model)}
    changed = {name for name, tensor in tensors.items() if not np.array_equal(tensor.numpy(), before[name])}
    return changed, {name for name, tensor in tensors.items() if id(tensor) in kept}


def test_kept_is_what_a_forward_pass_changes():
    normal = paddle.nn.utils.spectral_norm(paddle.nn.Conv2D(3, 3, 1))
    frozen = paddle.nn.BatchNorm2D(3, use_global_stats=True)
    model = paddle.nn.Sequential(Counter(), paddle.nn.BatchNorm2D(3), normal, frozen)
    changed, kept = buffers_changed_by(model, paddle.to_tensor(rows((2, 3, 4, 4)).astype("float32")))
    assert changed == {"0.calls", "1._mean", "1._variance", "2.weight_u", "2.weight_v"} == kept


@pytest.mark.parametrize(
    "name, options, statistics",
    [
        ("resnet18", {"frozen_batch_norm": True}, 0),
        ("resnet18", {"frozen_stages": 2}, 2 * 15),  # 20 layers, of which the stem and the first stage have 5
        ("swin_tiny_patch4_window7_224", {"image_size": 56, "depths": (1, 2), "num_heads": (1, 2)}, 0),
    ],
)
def test_constants_of_our_networks_are_not_kept(name, options, statistics):
    model = create_model(name, num_classes=2, **options)
    changed, kept = buffers_changed_by(model, paddle.randn([2, 3, 56, 56]))
    assert changed == kept and len(kept) == statistics and len(model.buffers()) > 0


def test_a_converted_layer_of_one_process_computes_what_paddles_does():
    plain, same = batch_norm.unbias_running_variance(paddle.nn.BatchNorm3D(3)), paddle.nn.BatchNorm3D(3)
    converted = convert_batch_norm(same)
    x = paddle.to_tensor(rows(SHAPES[3]).astype("float32"))
    assert np.array_equal(plain(x).numpy(), converted(x).numpy())
    assert np.array_equal(variance_of(plain).numpy(), variance_of(converted).numpy())
    plain.eval(), converted.eval()
    assert np.array_equal(plain(x).numpy(), converted(x).numpy())


def test_no_rows_leave_the_statistics_and_give_zero_gradients():
    from paddlevit_dist.core.distributed import build_zero

    layer = DistributedBatchNorm(3)
    x = paddle.zeros([0, 3])
    x.stop_gradient = False
    y = layer(x)
    assert y.shape == [0, 3]
    build_zero(y, layer.weight).backward()
    assert layer.weight.grad.numpy().tolist() == [0.0] * 3 == layer.bias.grad.numpy().tolist()
    assert mean_of(layer).numpy().tolist() == [0.0] * 3 and variance_of(layer).numpy().tolist() == [1.0] * 3
    layer.eval()
    assert layer(x).shape == [0, 3]


def test_a_single_row_gives_the_bias():
    layer = DistributedBatchNorm(3)
    layer.bias.set_value(paddle.to_tensor([1.0, 2.0, 3.0]))
    assert layer(paddle.to_tensor([[5.0, -5.0, 0.0]])).numpy().tolist() == [[1.0, 2.0, 3.0]]
    np.testing.assert_allclose(mean_of(layer).numpy(), [0.5, -0.5, 0.0], rtol=1e-6)


@pytest.mark.parametrize(
    "given, of_task, processes, batch, on_gpu, kind",
    [
        (None, "local", 2, 31, True, "sync"),
        (None, "local", 2, 32, True, "local"),
        (None, "local", 1, 8, True, "local"),
        (None, "local", 2, 8, False, "local"),
        (None, "sync", 2, 64, False, "sync"),
        ("local", "local", 8, 2, True, "local"),
        ("local", "sync", 8, 2, True, "local"),
        ("sync", "local", 8, 64, False, "sync"),
    ],
)
def test_small_batches_on_several_gpus_share_their_statistics(given, of_task, processes, batch, on_gpu, kind):
    found, why = batch_norm_kind(given, of_task, processes, batch, on_gpu)
    assert found == kind and ("TRAIN.BATCH_NORM" in why) == (given is not None)


ROUTES = {
    "Paddle's layer": lambda: batch_norm.unbias_running_variance(paddle.nn.BatchNorm2D(3)),
    "ours": lambda: DistributedBatchNorm(3),
    "converted": lambda: convert_batch_norm(paddle.nn.BatchNorm2D(3)),
    "with an activation": lambda: batch_norm.unbias_running_variance(paddle.nn.BatchNorm(3, act="relu")),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("divisor", ["rows", "rows - 1"])
def test_the_running_variance_divides_by_rows_less_1_whatever_the_kernel_stores(route, divisor, other_paddle):
    """As torch's; for images a GPU's kernel is cuDNN's, which does so by itself."""
    plain, rows_of = paddle.nn.functional.batch_norm, 2 * 4 * 5

    def kernel(x, mean, variance, *others, **options):
        if not options["training"]:
            return plain(x, mean, variance, *others, **options)
        before = variance.numpy().copy()  # 3.3 lends its own memory
        y = plain(x, mean, variance, *others, **options)
        added = variance.numpy() - 0.9 * before
        paddle.assign(paddle.to_tensor(0.9 * before + added * rows_of / (rows_of - 1)), output=variance)
        return y

    if divisor == "rows - 1":
        other_paddle({"nn.functional.batch_norm": kernel, "nn.layer.norm.batch_norm": kernel})
        if route == "with an activation":
            pytest.skip("it calls the operation itself")
    layer, x = ROUTES[route](), rows((2, 3, 4, 5))
    with forced_device() if divisor == "rows - 1" else contextlib.nullcontext():
        layer(paddle.to_tensor(x, dtype="float32"))
    expected = 0.9 + 0.1 * np.var(x, axis=(0, 2, 3), ddof=1)
    np.testing.assert_allclose(variance_of(layer).numpy(), expected, rtol=1e-6)
    layer.eval()
    layer(paddle.to_tensor(x, dtype="float32"))
    np.testing.assert_allclose(variance_of(layer).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("route", ["Paddle's layer", "ours", "converted"])
def test_a_single_row_leaves_the_running_variance_as_it_is(route):
    layer = ROUTES[route]()
    layer(paddle.full([1, 3, 1, 1], 7.0))
    assert variance_of(layer).numpy().tolist() == [1.0] * 3


@pytest.mark.parametrize(
    "shape, layout, limit, is_wide",
    [
        ((65_536, 1), "NCHW", 0, False),
        ((65_537, 1), "NCHW", 0, True),
        ((1, 1, 128, 128), "NCHW", 0, False),
        ((1, 1, 128, 129), "NCHW", 0, True),
        ((2, 64, 16, 1), "NHWC", 1, False),
        ((3, 683, 1, 1), "NHWC", 1, True),
        ((70_000, 2, 1), "NCL", 0, False),
    ],
)
def test_many_rows_are_those_whose_sums_lose_digits(shape, layout, limit, is_wide):
    layer, x = DistributedBatchNorm(1, data_format=layout), paddle.zeros(shape)
    assert batch_norm.has_many_rows(layer, x) is is_wide
    assert not batch_norm.has_many_rows(layer, x.astype("float64"))
    if layout != "NHWC":
        flat = x.reshape([*shape[:2], -1]) if len(shape) > 2 else x
        assert (batch_moments.widen(flat).dtype == paddle.float64) is is_wide


@pytest.mark.parametrize(
    "layout, ndim, found",
    [
        ("NCHW", 2, "NC"),
        ("NCHW", 3, "NCL"),
        ("NCHW", 4, "NCHW"),
        ("NCDHW", 5, "NCDHW"),
        ("NC", 2, "NC"),
        ("NC", 3, "NCL"),
    ]
    + [("NHWC", 2, "NC"), ("NLC", 3, "NLC"), ("NHWC", 4, "NHWC"), ("NDHWC", 5, "NDHWC")],
)
def test_the_layout_follows_from_the_axes(layout, ndim, found):
    assert DistributedBatchNorm(3, data_format=layout)._find_format(paddle.zeros([1] * ndim)) == found


def test_settings_are_shown_and_the_momentum_of_all_is_set():
    layer = DistributedBatchNorm(3)
    assert layer.extra_repr() == f"num_features=3, momentum={float(np.float32(0.9))}, epsilon=1e-05"
    frozen = paddle.nn.BatchNorm2D(3, use_global_stats=True)
    model = paddle.nn.Sequential(layer, paddle.nn.Linear(3, 3), paddle.nn.BatchNorm1D(3), frozen)
    assert batch_norm.set_batch_norm_momentum(model, 0.1) == 3
    assert [each._momentum for each in (layer, model[2], frozen)] == [float(np.float32(0.1))] * 3
    assert batch_norm.list_batch_norms(model) == {"0": layer, "2": model[2]} and has_batch_norm(model)
    assert not has_batch_norm(paddle.nn.Sequential(frozen)) and batch_norm.list_batch_norms(layer) == {"": layer}
    assert not communicates_in_forward(model)
    layer.synchronized = True
    assert communicates_in_forward(model)
