"""Sparse convolutions and their gradients, against loops, dense convolution and finite differences."""

import itertools
import os
import threading

import numpy as np
import paddle
import pytest
from support.networks import sparse_reference as reference

from paddlevit_dist.points.sparse import (
    Convolution,
    MapKey,
    Plan,
    SparseTensor,
    TransposedConvolution,
    build_plan,
    cat,
    convolution,
)
from paddlevit_dist.points.sparse.convolution import convolve
from paddlevit_dist.points.sparse.coordinate_plan import CoordinatePlan, PlanSpec, group_sizes
from paddlevit_dist.points.sparse.device_plan import batch_products, preferred_block_rows
from paddlevit_dist.points.sparse.layers import StridedConv3D

SHAPES = [(1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 5, 1), (1, 3, 2), (2, 2, 1), (2, 3, 1), (2, 1, 1), (3, 3, 2), (2, 5, 1)]
TOLERANCE = 1e-9


@pytest.fixture(autouse=True)
def float64():
    paddle.set_default_dtype("float64")
    paddle.seed(0)
    yield
    paddle.set_default_dtype("float32")


@pytest.fixture(params=["one thread", "three threads", "batched"])
def way(request):
    """How convolutions cut their work: as on CPUs, or as on GPUs."""
    if request.param == "batched":
        with batch_products(True):
            yield
    else:
        yield from given_threads({"one thread": 1, "three threads": 3}[request.param])


@pytest.fixture
def two_threads():
    yield from given_threads(2)


def given_threads(number):
    name = "FLAGS_paddle_num_threads"
    before = paddle.get_flags([name])
    paddle.set_flags({name: number})
    yield number
    paddle.set_flags(before)


def make_plan(coordinates, *keys, block_rows=16, num_scenes=None):
    """A packed plan with blocks so small that there are several, or with groups where products are batched."""
    spec = PlanSpec(keys, (), preferred_block_rows() and block_rows)
    return Plan.of_batch(build_plan(coordinates, spec, num_scenes))


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def differentiable(array):
    tensor = paddle.to_tensor(array)
    tensor.stop_gradient = False
    return tensor


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("stride, kernel_size, dilation", SHAPES)
@pytest.mark.parametrize("transposed", [False, True], ids=["down", "up"])
def test_values_and_gradients_are_those_of_the_loops(dimension, stride, kernel_size, dilation, transposed, way):
    coordinates = reference.scene(np.random.default_rng(kernel_size), 80, dimension)
    key = MapKey(1, stride, kernel_size, dilation)
    plan = make_plan(coordinates, key)
    kind = TransposedConvolution if transposed else Convolution
    layer = kind(3, 4, kernel_size, stride, dilation, bias=True, dimension=dimension)
    x = differentiable(numbers(plan.rows(stride if transposed else 1), 3))
    y = layer(SparseTensor(x, plan=plan, stride=stride if transposed else 1))
    slope = numbers(*y.features.shape)
    y.features.backward(paddle.to_tensor(slope))

    coarse = coordinates if stride == 1 else reference.coarse(coordinates, stride)
    found = reference.pairs(coordinates, coarse, kernel_size, dilation)
    weight = layer.kernel.numpy().reshape(-1, 3, 4)
    assert y.stride == (1 if transposed else stride)
    expected = reference.convolve(x.numpy(), weight, found, len(y.features), transposed) + layer.bias.numpy()
    assert np.abs(y.features.numpy() - expected).max() < TOLERANCE
    of_x = reference.convolve(slope, weight.transpose(0, 2, 1), found, len(x), not transposed)
    assert np.abs(x.grad.numpy() - of_x).max() < TOLERANCE
    of_weight = np.zeros_like(weight)
    for k, meetings in found.items():
        for u, v in meetings:
            of_weight[k] += np.outer(x.numpy()[u if transposed else v], slope[v if transposed else u])
    assert np.abs(layer.kernel.grad.numpy().reshape(weight.shape) - of_weight).max() < TOLERANCE
    assert np.abs(layer.bias.grad.numpy() - slope.sum(axis=0)).max() < TOLERANCE


@pytest.mark.parametrize("voxels", [0, 1])
def test_no_voxel_and_one_voxel(voxels):
    x = differentiable(numbers(voxels, 3) if voxels else np.zeros((0, 3)))
    tensor = SparseTensor(x, np.ones((voxels, 4), np.int32), num_scenes=3)
    layers = [Convolution(3, 4, 3), Convolution(4, 4, 2, 2), TransposedConvolution(4, 4, 2, 2), Convolution(4, 2, 1)]
    for layer in layers:
        tensor = layer(tensor)
    assert tuple(tensor.features.shape) == (voxels, 2)
    tensor.features.backward(paddle.ones_like(tensor.features))
    for layer in layers:
        assert layer.kernel.grad is not None and bool(paddle.isfinite(layer.kernel.grad).all())
        assert bool((layer.kernel.grad != 0).any()) == bool(voxels)


def test_an_empty_scene_in_a_batch_changes_nothing():
    coordinates = reference.scene(np.random.default_rng(0), 200, scenes=2)
    apart = coordinates * np.array([2, 1, 1, 1])  # scenes 0 and 2, none in 1
    features = paddle.to_tensor(numbers(len(coordinates), 3))
    layer = Convolution(3, 4, 3, stride=2)
    together = layer(SparseTensor(features, coordinates)).features.numpy()
    np.testing.assert_array_equal(
        together, layer(SparseTensor(features, apart, num_scenes=4)).features.numpy(), strict=True
    )


@pytest.mark.parametrize("frozen", ["features", "weight"])
def test_what_needs_no_gradient_gets_none(frozen):
    coordinates = reference.scene(np.random.default_rng(0), 50)
    layer = Convolution(3, 4, 3)
    x = differentiable(numbers(len(coordinates), 3))
    (x if frozen == "features" else layer.kernel).stop_gradient = True
    layer(SparseTensor(x, coordinates)).features.sum().backward()
    assert (x.grad is None) == (frozen == "features")
    assert (layer.kernel.grad is None) == (frozen == "weight")


def test_several_threads_give_the_same_bits_each_time(two_threads):
    coordinates = reference.scene(np.random.default_rng(0), 3000, reach=12)
    layer, x = Convolution(8, 8, 3), differentiable(numbers(len(coordinates), 8))
    plan = Plan.of_coordinates(coordinates)
    runs = []
    for _ in range(5):
        y = layer(SparseTensor(x, plan=plan)).features
        y.backward(paddle.ones_like(y))
        runs.append((y.numpy(), x.grad.numpy(), layer.kernel.grad.numpy()))
        x.clear_gradient()
        layer.clear_gradients()
    assert all(np.array_equal(one, first) for run in runs[1:] for one, first in zip(run, runs[0]))


def test_the_caller_is_one_of_the_threads_and_no_thread_is_without_blocks(monkeypatch):
    asked, executor = [], convolution._executor
    monkeypatch.setattr(convolution, "_threads", lambda: 3)
    monkeypatch.setattr(convolution, "_executor", lambda *given: asked.append(given) or executor(*given))
    for count, parts in ((1, [[0]]), (2, [[0], [1]]), (7, [[0, 3, 6], [1, 4], [2, 5]])):
        found = convolution._share(lambda part: (part, threading.get_ident()), list(range(count)))
        assert [part for part, _ in found] == parts and found[0][1] == threading.get_ident()
    assert asked == [(1, os.getpid()), (2, os.getpid())]


def test_arrays_and_tensors_make_the_same_sparse_tensor():
    coordinates = reference.scene(np.random.default_rng(0), 50)
    features = numbers(len(coordinates), 3)
    of_arrays, of_tensors = (
        SparseTensor(features, coordinates),
        SparseTensor(*map(paddle.to_tensor, (features, coordinates))),
    )
    layer = Convolution(3, 4, 3)
    np.testing.assert_array_equal(layer(of_arrays).features.numpy(), layer(of_tensors).features.numpy(), strict=True)
    np.testing.assert_array_equal(of_tensors.coordinates, coordinates, strict=True)


def test_float32_stays_float32():
    coordinates = reference.scene(np.random.default_rng(0), 50)
    paddle.set_default_dtype("float32")
    layer = Convolution(3, 4, 3)
    y = layer(SparseTensor(paddle.ones([len(coordinates), 3], dtype="float32"), coordinates))
    assert y.features.dtype == paddle.float32


def test_tensors_that_do_not_belong_together_are_refused():
    coordinates = reference.scene(np.random.default_rng(0), 50)
    x = SparseTensor(paddle.ones([len(coordinates), 3]), coordinates)
    with pytest.raises(ValueError, match="have different voxels"):
        cat(x, SparseTensor(paddle.ones([len(coordinates) - 1, 3]), coordinates[1:]))
    with pytest.raises(ValueError, match="have different voxels"):
        cat(x, x, SparseTensor(paddle.ones([len(coordinates), 3]), coordinates[::-1]))
    with pytest.raises(ValueError, match="features have shape"):
        SparseTensor(paddle.ones([3, 3]), coordinates)
    with pytest.raises(ValueError, match="cannot go from voxels of stride 1"):
        TransposedConvolution(3, 3, 2, 2)(x)
    with pytest.raises(ValueError, match="kernel_size is 0"):
        Convolution(3, 3, 0)


def test_lists_of_similar_lengths_are_multiplied_together():
    assert group_sizes([5000, 100, 4000, 3700, 10, 300]) == [[0, 2], [3], [5, 1], [4]]
    assert group_sizes([1 << 20, 1 << 20]) == [[0], [1]], "what is gathered at once has a limit"
    assert group_sizes([]) == []


def test_padding_pairs_cycle_through_output_rows_and_read_zeros():
    coordinates = reference.scene(np.random.default_rng(0), 3000, reach=12)
    flat = coordinates[coordinates[:, 3] < 3]
    for key in (MapKey(1, 1, 3), MapKey(1, 2, 2)):
        plain = CoordinatePlan(flat, block_rows=1 << 20).kernel_map(key)[0]
        filled = CoordinatePlan(flat, block_rows=None).kernel_map(key)[0]
        num_in_rows = len(flat)
        is_pair = filled.in_rows < num_in_rows
        found = sorted(zip(filled.out_rows[is_pair].tolist(), filled.in_rows[is_pair].tolist()))
        assert found == sorted(zip(plain.out_rows.tolist(), plain.in_rows.tolist()))
        assert len(filled.out_rows) > len(found) and (filled.in_rows[~is_pair] == num_in_rows).all()
        rows = len(flat) if key.coarse == 1 else len(reference.coarse(flat, 2))
        additions = np.bincount(filled.out_rows[~is_pair], minlength=rows)
        assert additions.max() <= additions.min() + 1  # no row waits for more than its share


def test_groups_of_very_different_lengths_give_what_single_offsets_give():
    coordinates = reference.scene(np.random.default_rng(0), 3000, reach=12)
    flat = coordinates[coordinates[:, 3] < 3]  # lists across the layers are much shorter than those along them
    layer, found = Convolution(8, 8, 3), {}
    for wanted in (False, True):
        x = differentiable(numbers(len(flat), 8))
        layer.clear_gradients()
        with batch_products(wanted):
            y = layer(SparseTensor(x, flat)).features
            y.backward(paddle.to_tensor(numbers(*y.shape)))
        found[wanted] = (y.numpy(), x.grad.numpy(), layer.kernel.grad.numpy())
    assert all(np.abs(one - other).max() < TOLERANCE for one, other in zip(*found.values()))


@pytest.mark.parametrize("given", ["float64", "float32"])
def test_products_in_less_precision_are_summed_in_that_of_the_weight(monkeypatch, given, way):
    """As under mixed precision, with float32 for half precision and float64 for float32, which a CPU has."""
    monkeypatch.setattr(convolution, "product_dtype", lambda: paddle.float32)
    coordinates = reference.scene(np.random.default_rng(0), 300)
    weight, x = differentiable(numbers(27, 1, 4)), differentiable(numbers(len(coordinates), 1).astype(given))
    key = MapKey(1, 1, 3, 1)
    y = convolve(x, weight, make_plan(coordinates, key).kernel_map(key), len(coordinates))
    slope = numbers(*y.shape).astype(np.float32)
    y.backward(paddle.to_tensor(slope))

    found = reference.pairs(coordinates, coordinates, 3, 1)
    low = weight.numpy().astype(np.float32)
    expected = reference.convolve(x.numpy().astype(np.float32), low, found, len(y))  # sums in float64
    assert y.dtype == paddle.float32 and np.array_equal(y.numpy(), expected.astype(np.float32))
    assert x.grad.dtype == x.dtype and weight.grad.dtype == paddle.float64
    of_x = reference.convolve(slope, low.transpose(0, 2, 1), found, len(x), transposed=True)
    assert np.abs(x.grad.numpy() - of_x).max() < 1e-5
    of_weight = sum(np.outer(x.numpy()[v], slope[u]) for u, v in found[13])
    assert np.abs(weight.grad.numpy()[13] - of_weight).max() < 1e-4


@pytest.mark.parametrize("kernel_size, stride, padding", [(2, 2, 0), (3, 3, 0), (3, 2, 1)])
def test_strided_convolution_has_the_voxels_of_spconv_where_kernel_and_stride_are_equal(kernel_size, stride, padding):
    coordinates = reference.scene(np.random.default_rng(0), 200)
    coordinates[:, 1:] += 6  # spconv has none below 0
    reached = set()
    for scene, *voxel in coordinates.tolist():
        for offset in itertools.product(
            range(kernel_size), repeat=3
        ):  # of spconv: input = output * stride - padding + k
            steps = [value + padding - k for value, k in zip(voxel, offset)]
            if all(step % stride == 0 and step >= 0 for step in steps):
                reached.add((scene, *steps))
    ours = StridedConv3D(2, 3, kernel_size, stride)(SparseTensor(numbers(len(coordinates), 2), coordinates)).coordinates
    ours = set(map(tuple, ours.tolist()))
    assert ours == set(map(tuple, reference.coarse(coordinates, stride).tolist()))
    assert (ours == reached) == (kernel_size == stride) and len(reached) >= len(ours)
