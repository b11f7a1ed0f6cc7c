"""Steps by lists: which optimizers have one, and what it promises to whoever queues it."""

import warnings

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers
from yacs.config import CfgNode

from paddlevit_dist import create_model
from paddlevit_dist.core.engine import multi_tensor
from paddlevit_dist.core.engine.optimizer import build_optimizer, decay_groups
from paddlevit_dist.core.engine.sharding import Shards

SETTINGS = {"EPS": 1e-8, "BETAS": (0.9, 0.99), "MOMENTUM": 0.8}


@pytest.mark.parametrize(
    "name, options, has_lists",
    [
        ("AdamW", {}, True),
        ("Adam", {}, False),  # Paddle has no operation for it
        ("SGD", {}, True),
        ("SGD", {"DAMPENING": 0.5}, False),
        ("Lion", {}, True),
        ("LAMB", {}, False),
    ],
)
@pytest.mark.parametrize("is_sharded", [False, True])
def test_each_optimizer_says_whether_it_has_a_step_by_lists(name, options, has_lists, is_sharded):
    exchanges = []

    class CountedShards(Shards):
        def exchange_trained(self):
            exchanges.append(1)

    model = paddle.nn.Linear(3, 2)
    shards = CountedShards(model) if is_sharded else None  # of one process: it owns all
    optimizer = build_optimizer(CfgNode({**SETTINGS, "NAME": name, **options}), model, None, 0.05, shards=shards)
    before = {key: p.numpy().copy() for key, p in model.named_parameters()}
    (model(paddle.randn([4, 3])) ** 2).sum().backward()
    step = optimizer.foreach_step()
    assert (step is not None) == has_lists
    if step is not None:
        gradients = step.gradients()
        assert step.accepts(gradients)
        step.apply(0.1, gradients)
        assert all((p.numpy() != before[key]).any() for key, p in model.named_parameters())
        assert len(exchanges) == is_sharded


@pytest.mark.parametrize(
    "name, options, decay, has_copies",
    [
        ("AdamW", {}, 0.05, False),
        ("AdamW", {"BETAS": (0.0, 0.99)}, 0.05, False),
        ("SGD", {}, 0.0, False),
        ("SGD", {"NESTEROV": True}, 0.0, False),
        ("SGD", {"MOMENTUM": 0.0}, 0.0, False),
        ("SGD", {}, 0.05, True),
        ("Lion", {}, 0.05, False),
        ("Muon", {}, 0.05, False),
    ],
)
def test_a_step_whose_gradients_are_not_finite_leaves_weights_and_moments(
    name, options, decay, has_copies, monkeypatch
):
    with plain_layers():
        model = create_model("vit", num_classes=3, image_size=8, patch_size=4, embed_dim=8, depth=2, num_heads=2)
    groups = decay_groups(model, decay)
    optimizer = build_optimizer(CfgNode({**SETTINGS, "NAME": name, **options}), model, groups, decay)
    generator = np.random.default_rng(0)

    def backward() -> None:
        optimizer.clear_grad(False)
        images = paddle.to_tensor(generator.standard_normal((2, 3, 8, 8)).astype("f4"))
        with plain_layers():
            model(images).square().sum().backward()

    for _ in range(2):
        backward()
        optimizer.foreach_step().apply(0.1, optimizer.foreach_step().gradients())
    before = {key: p.numpy().copy() for key, p in model.named_parameters()}
    columns = optimizer._accumulators
    moments = {key: {name: tensor.numpy().copy() for name, tensor in column.items()} for key, column in columns.items()}
    backward()
    step = optimizer.foreach_step()
    gradients = step.gradients()
    for p in model.parameters():
        p.grad.set_value(paddle.zeros_like(p))
    copies = []
    monkeypatch.setattr(
        multi_tensor, "flatten", lambda tensors, plain=multi_tensor.flatten: copies.append(1) or plain(tensors)
    )
    undo = step.prepare_undo(gradients)
    assert bool(copies) == has_copies
    step.apply(0.1, gradients, paddle.zeros([1]))
    undo()
    for key, p in model.named_parameters():
        assert p.numpy().tobytes() == before[key].tobytes()
    forgotten = {"velocity": options.get("MOMENTUM"), "moment1": options.get("BETAS", [None])[0]}  # a factor of 0
    for key, column in moments.items():
        for name, earlier in column.items():
            expected = np.zeros_like(earlier) if forgotten.get(key) == 0.0 else earlier
            np.testing.assert_array_max_ulp(columns[key][name].numpy(), expected, 1)


@pytest.mark.parametrize(
    "norm, largest, factor",
    [(3.0, None, 1.0), (3.0, 0.0, 1.0), (3.0, 1.5, 0.5), (3.0, 6.0, 1.0), (1e-6, 1e-6, 0.5), (0.0, 1e-6, 1.0)],
)
def test_gradients_are_scaled_to_the_largest_norm(norm, largest, factor):
    found = multi_tensor.clipping_factor(np.float32(norm), largest)
    assert found == pytest.approx(factor, rel=1e-6) and found.dtype == np.float32


def make_parameters(*gradients):
    parameters = [paddle.create_parameter([2, 3], "float32") for _ in gradients]
    for parameter, gradient in zip(parameters, gradients):
        if gradient is not None:
            parameter.grad = gradient
    return parameters


def test_gradients_are_copied_only_where_they_are_strided():
    plain, strided = paddle.ones([2, 3]), paddle.arange(6.0).reshape([3, 2]).t()
    parameters = make_parameters(None, plain, strided)
    before = parameters[1]._grad_ivar().data_ptr()
    first, second = multi_tensor.GradientList(parameters).present()
    assert first.data_ptr() == before and second.is_contiguous()
    np.testing.assert_array_equal(second.numpy(), [[0, 2, 4], [1, 3, 5]])
    assert multi_tensor.GradientList(make_parameters(None)).norm() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert multi_tensor.GradientList(make_parameters(paddle.full([2, 3], 1e30))).norm() == np.inf


def with_gradients(*values):
    parameters = [paddle.create_parameter([len(value)], "float32") for value in values]
    for parameter, value in zip(parameters, values):
        parameter.grad = paddle.to_tensor(value.astype("float32"))
    return parameters


@pytest.mark.parametrize("largest, scale", [(None, 1.0), (1.5, 1.0), (1e6, 1.0), (1.5, 65536.0), (None, 65536.0)])
def test_the_norm_and_what_is_clipped_follow_the_formula(largest, scale):
    """As an update does it, with gradients that a loss scaler has multiplied."""
    generator = np.random.default_rng(7)
    values = [generator.standard_normal(size).astype("float32") for size in (1, 16, 1037)]
    parameters = with_gradients(*(value * np.float32(scale) for value in values))
    without = paddle.create_parameter([4], "float32")
    gradients = multi_tensor.GradientList([*parameters, without])
    norm = gradients.norm() / np.float32(scale)
    expected = np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in values))
    assert norm.dtype == np.float32 and norm == pytest.approx(expected, rel=1e-6)
    clipping = multi_tensor.clipping_factor(norm, largest)
    factor = 1.0 if largest is None else min(1.0, largest / (expected + 1e-6))
    assert (clipping < 1) == (largest == 1.5)
    gradients.scale(clipping / np.float32(scale))
    for parameter, value in zip(parameters, values):
        np.testing.assert_allclose(parameter.grad.numpy(), value * factor, rtol=2e-6)


def test_gradients_of_other_types_and_orders_count_and_are_scaled():
    parameters = with_gradients(np.array([3.0, 4.0]))
    other = paddle.create_parameter([2, 3], "float64")
    other.grad = paddle.to_tensor(np.arange(6.0).reshape(3, 2)).t()
    gradients = multi_tensor.GradientList([*parameters, other])
    assert gradients.norm() == pytest.approx(np.sqrt(25 + 55), rel=1e-6)
    gradients.scale(np.float32(0.5))
    np.testing.assert_array_equal(parameters[0].grad.numpy(), [1.5, 2.0])
    np.testing.assert_array_equal(other.grad.numpy(), np.arange(6.0).reshape(3, 2).T / 2)


@pytest.mark.parametrize(("scale", "on_host"), [(1.0, False), (1.0, True), (65536.0, False), (65536.0, True)])
def test_each_gradient_is_clipped_by_its_own_norm(scale, on_host):
    generator = np.random.default_rng(3)
    values = [factor * generator.standard_normal(shape) for factor, shape in ((5, (4, 3)), (0.01, (6,)), (9, (1,)))]
    kinds = [(value, dtype) for value in values for dtype in ("float32", "float64")]
    parameters = [paddle.create_parameter(value.shape, dtype) for value, dtype in kinds]
    for parameter, (value, dtype) in zip(parameters, kinds):
        parameter.grad = paddle.to_tensor((value * scale).T.copy(), dtype).t()  # strided in Paddle 3
    gradients = multi_tensor.GradientList(parameters)
    gradients.clip_each(gradients.present(), 1.5, scale, on_host)
    for parameter, (value, dtype) in zip(parameters, kinds):
        expected = value * min(1.0, 1.5 / (np.sqrt((value**2).sum()) + 1e-6))
        np.testing.assert_allclose(parameter.grad.numpy(), expected, rtol=1e-6 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e20])
def test_a_norm_that_float32_cannot_hold_is_not_finite(bad):
    assert not np.isfinite(multi_tensor.GradientList(with_gradients(np.array([1.0, bad, 2.0]))).norm())


def test_without_gradients_the_norm_is_0():
    gradients = multi_tensor.GradientList([paddle.create_parameter([4], "float32")])
    assert gradients.norm() == 0
    gradients.scale(np.float32(0.5))


def test_a_step_accepts_dense_float32_alone():
    model = paddle.nn.Linear(3, 2)
    optimizer = build_optimizer(CfgNode({**SETTINGS, "NAME": "SGD"}), model, None, 0.0)
    step = optimizer.foreach_step()
    single, double = paddle.ones([3, 2]), paddle.ones([3, 2], "float64")
    assert step.accepts([single, None]) and step.accepts([single, single])
    assert step.accepts([None, None])  # of a rank whose share is frozen
    assert not any(map(step.accepts, ([double, None], [single, double])))
    before = model.weight.numpy()
    assert not step(0.1, [double, None])
    np.testing.assert_array_equal(model.weight.numpy(), before, strict=True)
    assert step(0.1, [None, None])
    np.testing.assert_array_equal(model.weight.numpy(), before, strict=True)
    assert step(0.1, [single, None]) and (model.weight.numpy() != before).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lists_are_of_trained_parameters_if_all_are_float32(dtype):
    model = paddle.nn.Sequential(paddle.nn.Linear(3, 2), paddle.nn.Linear(2, 2))
    model[0].to(dtype="float64")
    model[1].to(dtype=dtype)
    for parameter in model[0].parameters():
        parameter.stop_gradient = True
    optimizer = build_optimizer(CfgNode({**SETTINGS, "NAME": "SGD"}), model, None, 0.0)
    step = optimizer.foreach_step()
    assert (step is not None) == (dtype == "float32")
    if step is not None:
        model[1](paddle.ones([1, 2])).sum().backward()
        assert [gradient.shape for gradient in step.gradients()] == [[2, 2], [2]]
