"""Any number of axes; voxels that are given, made, joined or pruned; spconv's rule, points, dense arrays: against loops
over dictionaries."""

import itertools

import numpy as np
import paddle
import pytest
from paddle import nn
from support.networks import sparse_reference as reference
from support.networks.sparse_reference import given_by, list_offsets, sides

from paddlevit_dist.points import sparse, sparse_collate
from paddlevit_dist.points.sparse import functional
from paddlevit_dist.points.sparse.device_plan import batch_products

TOLERANCE = 1e-10


@pytest.fixture(autouse=True)
def float64():
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


@pytest.fixture(params=[False, True], ids=["blocks", "groups of a GPU"])
def products(request):
    with batch_products(request.param):
        yield


def make_tensor(dimension=3, channels=3, voxels=120, seed=0, stride=1, **options):
    coordinates = reference.scene(np.random.default_rng(seed), voxels, dimension, **options)
    coordinates[:, 1:] *= np.array(stride, np.int32)
    features = paddle.to_tensor(np.random.default_rng(seed + 1).standard_normal((len(coordinates), channels)))
    features.stop_gradient = False
    return sparse.SparseTensor(features, coordinates, stride=stride)


def by_voxel(coordinates, features):
    return {tuple(voxel): row for voxel, row in zip(coordinates.tolist(), features)}


def check(layer, x, y, pairs, kernel, transposed=False):
    """Values and both gradients of ``y = layer(x)``; kernel (K, C_in, C_out) in the order of the pairs' numbers."""
    slope = np.random.default_rng(9).standard_normal(y.features.shape)
    expected, of_x, of_kernel = np.zeros(slope.shape), np.zeros(x.features.shape), np.zeros(kernel.shape)
    source = x.features.numpy()
    for k, u, v in pairs:
        out_row, in_row = (v, u) if transposed else (u, v)
        expected[out_row] += source[in_row] @ kernel[k]
        of_x[in_row] += kernel[k] @ slope[out_row]
        of_kernel[k] += np.outer(source[in_row], slope[out_row])
    assert np.abs(y.features.numpy() - expected).max() < TOLERANCE
    (y.features * paddle.to_tensor(slope)).sum().backward()
    assert np.abs(x.features.grad.numpy() - of_x).max() < TOLERANCE
    return of_kernel


CASES = [(1, 3, 1, 1), (1, 5, 2, 1), (2, (3, 1), (2, 1), 1), (2, (2, 3), 1, (2, 1)), (3, (3, 1, 2), (1, 1, 2), 1)]
CASES += [(3, (1, 3, 3), (1, 2, 3), (1, 2, 1)), (4, 3, 1, 1), (4, (1, 1, 1, 3), 1, 1), (4, 2, 2, 1), (4, 3, 2, 2)]


@pytest.mark.parametrize("dimension, kernel, stride, dilation", CASES)
def test_one_to_four_axes_with_numbers_for_each(products, dimension, kernel, stride, dilation):
    x = make_tensor(dimension, voxels=60 if dimension == 4 else 120, reach=2 if dimension == 4 else 5)
    layer = sparse.Convolution(3, 4, kernel, stride, dilation, dimension=dimension)
    y = layer(x)
    steps = sides(stride, dimension)
    coarse = {(s, *(c // step * step for c, step in zip(voxel, steps))) for s, *voxel in x.coordinates.tolist()}
    assert sorted(map(tuple, y.coordinates.tolist())) == sorted(coarse)
    offsets = np.array(list_offsets(kernel, dimension)) * sides(dilation, dimension)
    pairs = list(given_by(offsets.tolist(), x.coordinates, y.coordinates))
    kernel_values = layer.kernel.numpy()
    of_kernel = check(layer, x, y, pairs, kernel_values)
    assert np.abs(layer.kernel.grad.numpy() - of_kernel).max() < TOLERANCE

    x = x.with_features(x.features.detach())
    x.features.stop_gradient = False
    up = sparse.TransposedConvolution(4, 3, kernel, stride, dilation, dimension=dimension)
    z = up(y.with_features(y.features.detach()))
    expected = np.zeros((len(x.coordinates), 3))
    for k, u, v in pairs:
        expected[v] += y.features.numpy()[u] @ up.kernel.numpy()[k]
    np.testing.assert_array_equal(z.coordinates, x.coordinates, strict=True)
    assert np.abs(z.features.numpy() - expected).max() < TOLERANCE


def test_a_plan_of_a_loader_holds_numbers_for_each_axis():
    x = make_tensor(4, voxels=60, reach=2)
    network = nn.Sequential(
        sparse.Convolution(3, 4, (1, 1, 3, 3), (1, 1, 1, 2), dimension=4), sparse.MaxPooling((1, 2, 1, 2), (1, 2, 1, 1))
    )
    expected = network(x)
    spec = x.plan.get_used_spec(64)
    batch = sparse.build_plan(x.coordinates, spec, x.plan.num_scenes)
    found = network(sparse.SparseTensor(x.features, plan=sparse.Plan.of_batch(batch)))
    assert found.stride == expected.stride == (1, 2, 1, 2)
    np.testing.assert_allclose(found.features.numpy(), expected.features.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("transposed", [False, True])
def test_onto_given_voxels(products, transposed):
    x = make_tensor(stride=2 if transposed else 1, seed=3)
    wanted = reference.scene(np.random.default_rng(5), 150, reach=8)  # far beyond, in other scenes' places too
    wanted[:, 1:] *= 1 if transposed else 2
    kind = sparse.TransposedConvolution if transposed else sparse.Convolution
    layer = kind(3, 4, 3, stride=2)
    y = layer(x, wanted)
    assert np.array_equal(y.coordinates, wanted) and y.stride == (1 if transposed else 2)
    fine, coarse = (wanted, x.coordinates) if transposed else (x.coordinates, wanted)
    of_kernel = check(layer, x, y, list(given_by(list_offsets(3, 3), fine, coarse)), layer.kernel.numpy(), transposed)
    assert np.abs(layer.kernel.grad.numpy() - of_kernel).max() < TOLERANCE
    same = sparse.Convolution(4, 4, 1)(y, y)
    assert same.plan is y.plan and (same + y).plan is y.plan


@pytest.mark.parametrize("kernel, stride", [(2, 2), (3, 2), (3, 1)])
def test_voxels_are_made_wherever_the_kernel_reaches(products, kernel, stride):
    x = make_tensor(voxels=40, stride=stride)
    layer = sparse.GenerativeConvolution(3, 4, kernel, stride)
    y = layer(x)
    reached = {
        (s, *(c + step for c, step in zip(voxel, offset)))
        for s, *voxel in x.coordinates.tolist()
        for offset in list_offsets(kernel, 3)
    }
    assert sorted(map(tuple, y.coordinates.tolist())) == sorted(reached) and y.stride == 1
    pairs = list(given_by(list_offsets(kernel, 3), y.coordinates, x.coordinates))
    of_kernel = check(layer, x, y, pairs, layer.kernel.numpy(), True)
    assert np.abs(layer.kernel.grad.numpy() - of_kernel).max() < TOLERANCE
    z = sparse.Convolution(4, 2, 3)(sparse.prune(y, np.arange(len(y.coordinates)) % 3 > 0))
    assert len(z.coordinates) == np.count_nonzero(np.arange(len(y.coordinates)) % 3)


@pytest.mark.parametrize(
    "kernel, stride, padding, dilation, shape",
    [
        *((3, 2, 1, 1, None), (2, 2, 0, 1, None), (1, 1, (1, 0, 2), 1, None)),  # the last moves the voxels
        *((3, 2, 0, 1, (11, 12, 13)), (3, 1, 0, 2, (11, 12, 13))),
        ((3, 1, 2), (2, 1, 1), (1, 0, 1), 1, (11, 12, 13)),
    ],
)
def test_spconvs_rule(products, kernel, stride, padding, dilation, shape):
    coordinates = reference.scene(np.random.default_rng(0), 100)
    coordinates[:, 1:] += 5  # a grid has no negative places
    features = paddle.to_tensor(np.random.default_rng(1).standard_normal((len(coordinates), 3)))
    features.stop_gradient = False
    x = sparse.SparseTensor(features, coordinates)
    layer = sparse.PaddedConvolution(3, 4, kernel, stride, padding, dilation, spatial_shape=shape)
    y = layer(x)

    full = 16 if shape is None else None  # beyond all voxels
    size, step, pad, gap = (sides(value, 3) for value in (kernel, stride, padding, dilation))
    outputs = [((full or shape[a]) + 2 * pad[a] - gap[a] * (size[a] - 1) - 1) // step[a] + 1 for a in range(3)]
    fine = {tuple(voxel): row for row, voxel in enumerate(coordinates.tolist())}
    expected = {}
    weight = layer.weight.numpy()
    for scene, *place in itertools.product(range(2), *map(range, outputs)):
        for k in itertools.product(*map(range, size)):
            row = fine.get((scene, *(p * s - q + d * i for p, s, q, d, i in zip(place, step, pad, gap, k))))
            if row is not None:
                out = expected.setdefault((scene, *(p * s for p, s in zip(place, step))), np.zeros(4))
                out += features.numpy()[row] @ weight[k]
    found = by_voxel(y.coordinates, y.features.numpy())
    assert found.keys() == expected.keys()
    assert max(np.abs(found[voxel] - expected[voxel]).max() for voxel in found) < TOLERANCE

    some = y.coordinates[::3]
    np.testing.assert_allclose(layer(x, some).features.numpy(), y.features.numpy()[::3], rtol=0, atol=TOLERANCE)

    pooled = sparse.PaddedMaxPooling(kernel, stride, padding, dilation, spatial_shape=shape)(x)
    of_x = np.zeros(features.shape)
    for (scene, *place), largest in by_voxel(pooled.coordinates, pooled.features.numpy()).items():
        rows = [
            fine.get((scene, *(p - q + d * i for p, q, d, i in zip(place, pad, gap, k))))
            for k in itertools.product(*map(range, size))
        ]
        rows = [row for row in rows if row is not None]
        np.testing.assert_array_equal(features.numpy()[rows].max(axis=0), largest, strict=True)
        of_x[np.array(rows)[features.numpy()[rows].argmax(axis=0)], range(3)] += 1
    assert pooled.coordinates.tolist() == y.coordinates.tolist() and pooled.stride == y.stride
    pooled.features.sum().backward()
    np.testing.assert_array_equal(features.grad.numpy(), of_x, strict=True)

    back = sparse.PaddedInverseConvolution(4, 3, kernel, stride, padding, dilation)
    z = back(y, x)
    transposed = np.zeros((len(coordinates), 3))
    for (scene, *place), row in by_voxel(y.coordinates, y.features.numpy()).items():
        for k in itertools.product(*map(range, size)):
            own = fine.get((scene, *(p - q + d * i for p, q, d, i in zip(place, pad, gap, k))))
            if own is not None:
                transposed[own] += row @ back.weight.numpy()[k]
    assert z.plan is x.plan and np.abs(z.features.numpy() - transposed).max() < TOLERANCE


def test_the_two_rules_of_strides_differ():
    coordinates = np.array([[0, 5, 5, 5]])
    x = sparse.SparseTensor(paddle.ones([1, 1]), coordinates)
    assert len(sparse.StridedConv3D(1, 1, 3, 2)(x).coordinates) == 1
    assert sorted(sparse.PaddedConvolution(1, 1, 3, 2, 1)(x).coordinates[:, 1].tolist()) == [4] * 4 + [6] * 4


@pytest.mark.parametrize("kernel, stride, dilation", [(3, 1, 1), ((3, 1, 3), 1, 2), (2, 2, 1), (3, 2, 1)])
def test_each_channel_by_itself(products, kernel, stride, dilation):
    x = make_tensor()
    layer = sparse.DepthwiseConvolution(3, kernel, stride, dilation)
    y = layer(x)
    offsets = (np.array(list_offsets(kernel, 3)) * dilation).tolist()
    kernels = np.stack([np.diag(row) for row in layer.kernel.numpy()])
    of_kernel = check(layer, x, y, list(given_by(offsets, x.coordinates, y.coordinates)), kernels)
    diagonals = np.stack([np.diag(matrix) for matrix in of_kernel])
    assert np.abs(layer.kernel.grad.numpy() - diagonals).max() < TOLERANCE


def test_arithmetic_on_equal_and_on_different_voxels():
    x, y = make_tensor(seed=0), make_tensor(seed=7)
    one, other = by_voxel(x.C, x.F.numpy()), by_voxel(y.C, y.F.numpy())
    assert 0 < len(one.keys() & other.keys()) < len(one)
    zero = np.zeros(3)
    for sign, z in ((1, x + y), (-1, x - y)):
        expected = {voxel: one.get(voxel, zero) + sign * other.get(voxel, zero) for voxel in one.keys() | other.keys()}
        found = by_voxel(z.coordinates, z.features.numpy())
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[voxel], expected[voxel]) for voxel in found)
    product = by_voxel((x * y).C, (x * y).F.numpy())
    assert all(np.array_equal(row, one.get(v, zero) * other.get(v, zero)) for v, row in product.items())
    (x - y).features.sum().backward()
    np.testing.assert_array_equal(x.features.grad.numpy(), np.ones(x.features.shape), strict=True)
    np.testing.assert_array_equal(y.features.grad.numpy(), -np.ones(y.features.shape), strict=True)

    again = sparse.SparseTensor(x.features, x.coordinates)
    assert (x + again).plan is x.plan and np.array_equal((2.0 * x - again).F.numpy(), x.F.numpy())
    np.testing.assert_array_equal((1.0 - x).F.numpy(), 1.0 - x.F.numpy(), strict=True)
    row = np.arange(3.0)
    np.testing.assert_array_equal((row - x).F.numpy(), row - x.F.numpy(), strict=True)
    narrow = sparse.SparseTensor(x.features.astype("float32"), x.coordinates)
    np.testing.assert_array_equal((narrow * row).F.numpy(), narrow.F.numpy() * row.astype("f4"), strict=True)
    with pytest.raises(ValueError, match="different strides"):
        x + sparse.SumPooling(2, 2)(x)


def test_union_and_intersection():
    tensors = [make_tensor(seed=seed, channels=2, reach=3) for seed in (0, 7, 9)]
    rows = [by_voxel(x.C, x.F.numpy()) for x in tensors]
    for combine, choose in ((sparse.union, set.union), (sparse.intersection, set.intersection)):
        z = combine(*tensors)
        expected = choose(*(set(one) for one in rows))
        found = by_voxel(z.C, z.F.numpy())
        assert found.keys() == expected and expected
        for voxel in found:
            np.testing.assert_allclose(found[voxel], sum(one.get(voxel, np.zeros(2)) for one in rows))
        more = [sparse.SparseTensor(x.features, x.coordinates, num_scenes=n) for x, n in zip(tensors, (7, 4, 9))]
        assert combine(*more).plan.num_scenes == combine(*more[::-1]).plan.num_scenes == 9  # the last ones are empty
        alone = by_voxel(combine(tensors[1]).C, combine(tensors[1]).F.numpy())
        assert alone.keys() == rows[1].keys() and all(np.array_equal(alone[voxel], rows[1][voxel]) for voxel in alone)


@pytest.mark.parametrize("far", [2e9, np.nan])
def test_what_is_far_away_has_no_voxels_and_spoils_none(far):
    x = make_tensor()
    before = sparse.features_at(x, x.coordinates).numpy()
    strays = np.array([[0, far, -far, far], [-1, 0, 0, 0], [99, 0, 0, 0]])
    with np.errstate(invalid="ignore"):
        assert not np.nan_to_num(sparse.features_at(x, strays).numpy()).any()
    np.testing.assert_array_equal(sparse.features_at(x, x.coordinates).numpy(), before, strict=True)
    y = sparse.Convolution(3, 4, 3)(x, np.array([[0, 2**20, -(2**20), 2**20], x.coordinates[0].tolist()]))
    assert not y.F.numpy()[0].any() and y.F.numpy()[1].any()
    for point, shown in (([0, 1, np.nan, 0], "nan"), ([0.5, 1, 2], "0.5")):  # the second has no scene number in front
        with pytest.raises(ValueError, match=f"point 0 is .*{shown}.* expected finite numbers, with an int"):
            sparse.PointFeatures(np.ones((1, 2)), np.array([point]))
    with pytest.raises(ValueError, match="this layer is for 2-D voxels, but gets .*3-D"):
        sparse.PaddedMaxPooling(dimension=2)(x)


def test_the_sum_of_no_voxels_has_gradients_for_all():
    """Ranks wait for the gradients of all parameters."""
    layers = [sparse.Convolution(3, 4, 1) for _ in range(3)]
    x = make_tensor()
    x = sparse.prune(x, np.zeros(len(x.C), bool))
    total = sparse.union(*(layer(x) for layer in layers)).F
    total.backward(paddle.zeros_like(total))  # Paddle 2.6 has no sum of nothing
    assert all(layer.kernel.grad is not None for layer in layers)


def test_pruning_keeps_rows_their_gradients_and_empty_scenes():
    x = make_tensor(scenes=2)
    keep = x.coordinates[:, 0] == 1
    y = sparse.prune(x, paddle.to_tensor(keep))
    assert np.array_equal(y.coordinates, x.coordinates[keep]) and y.plan.num_scenes == 2
    y.features.sum().backward()
    np.testing.assert_array_equal(x.features.grad.numpy()[:, 0], keep.astype(float), strict=True)
    assert sparse.GlobalPooling()(y).numpy()[0].tolist() == [0, 0, 0]
    nothing = sparse.prune(x, np.zeros(len(keep), bool))
    assert sparse.Convolution(3, 2, 3)(nothing).features.shape == [0, 2]
    for minimum in (None, (2, 4, -6)):
        dense, first = sparse.to_dense(nothing, minimum=minimum)
        assert first.tolist() == list(minimum or (0, 0, 0))
        np.testing.assert_array_equal(dense.numpy(), np.zeros((2, 3, 1, 1, 1)), strict=True)
    with pytest.raises(ValueError, match="keep is float64"):
        sparse.prune(x, keep.astype(float))


@pytest.mark.parametrize("dimension, stride", [(1, 1), (2, 2), (3, (1, 2, 1)), (4, 1)])
def test_dense_and_back(dimension, stride):
    x = make_tensor(dimension, voxels=50, reach=3, stride=stride)
    dense, first = sparse.to_dense(x)
    for (scene, *voxel), row in by_voxel(x.coordinates, x.features.numpy()).items():
        place = (np.array(voxel) - first) // sides(stride, dimension)
        np.testing.assert_array_equal(dense.numpy()[(scene, slice(None), *place)], row, strict=True)
    assert np.count_nonzero(dense.numpy()) == np.count_nonzero(x.features.numpy())
    back = sparse.from_dense(dense, minimum=first.tolist(), stride=stride)
    one, other = by_voxel(back.coordinates, back.features.numpy()), by_voxel(x.coordinates, x.features.numpy())
    assert one.keys() == other.keys() and all(np.array_equal(one[voxel], other[voxel]) for voxel in one)
    chosen = sparse.from_dense(dense, x.coordinates[:5], minimum=first.tolist(), stride=stride)
    np.testing.assert_array_equal(chosen.features.numpy(), x.features.numpy()[:5], strict=True)
    back.features.sum().backward()
    np.testing.assert_array_equal(x.features.grad.numpy(), np.ones(x.features.shape), strict=True)
    with pytest.raises(ValueError, match="is outside of"):
        sparse.to_dense(x, shape=np.ones(dimension, int))
    with pytest.raises(ValueError, match="is outside of"):
        sparse.from_dense(dense, np.full((1, 1 + dimension), 1000) * [0, *[1] * dimension], stride=stride)


def make_points(number=80, dimension=3):
    generator = np.random.default_rng(2)
    points = np.concatenate([generator.integers(0, 2, (number, 1)), generator.uniform(-3, 3, (number, dimension))], 1)
    features = paddle.to_tensor(generator.standard_normal((number, 2)))
    features.stop_gradient = False
    return sparse.PointFeatures(features, points)


@pytest.mark.parametrize("mode", ["mean", "sum", "first"])
def test_points_to_voxels_and_back(mode):
    field = make_points()
    x, inverse = field.voxels(mode)
    owners = {}
    for row, point in enumerate(field.points):
        owners.setdefault((int(point[0]), *np.floor(point[1:]).astype(int).tolist()), []).append(row)
    combine = {"mean": np.mean, "sum": np.sum, "first": lambda rows, axis: rows[0]}[mode]
    found = by_voxel(x.C, x.F.numpy())
    assert found.keys() == owners.keys()
    for voxel, rows in owners.items():
        np.testing.assert_allclose(found[voxel], combine(field.features.numpy()[rows], axis=0))
    own = x.slice(inverse).numpy()
    assert all(np.array_equal(own[row], found[voxel]) for voxel, rows in owners.items() for row in rows)


def test_interpolation_and_its_transpose():
    x, field = make_tensor(channels=2, reach=3), make_points()
    rows = by_voxel(x.C, x.F.numpy())
    expected = np.zeros((len(field.points), 2))
    nearest = np.zeros_like(expected)
    for number, (scene, *point) in enumerate(field.points.tolist()):
        lower = np.floor(point).astype(int)
        nearest[number] = rows.get((int(scene), *lower.tolist()), 0.0)
        for corner in itertools.product((0, 1), repeat=3):
            share = np.prod(1 - np.abs(np.array(point) - (lower + corner)))
            expected[number] += share * rows.get((int(scene), *(lower + corner).tolist()), np.zeros(2))
    found = sparse.features_at(x, field.points)
    assert np.abs(found.numpy() - expected).max() < TOLERANCE
    np.testing.assert_array_equal(sparse.features_at(x, field.points, "nearest").numpy(), nearest, strict=True)
    # <interpolated x, features of the points> = <x, splatted features of the points>
    inner = float((found * field.features).sum())
    splatted = field.splat()
    of_x = sum(
        float(row @ rows.get(voxel, np.zeros(2))) for voxel, row in by_voxel(splatted.C, splatted.F.numpy()).items()
    )
    assert inner == pytest.approx(of_x)
    found.sum().backward()
    assert x.features.grad.numpy().sum() > 0
    splatted.features.sum().backward()
    np.testing.assert_allclose(field.features.grad.numpy(), 1.0)


def test_interpolation_between_coarse_voxels():
    steps = np.array([1, 2, 3])
    x = make_tensor(channels=2, reach=3, stride=(1, 2, 3))
    rows = by_voxel(x.C, x.F.numpy())
    points = make_points().points
    linear, nearest = np.zeros((2, len(points), 2))
    for number, (scene, *point) in enumerate(points.tolist()):
        lower = np.floor(point / steps).astype(int) * steps
        nearest[number] = rows.get((int(scene), *lower.tolist()), 0.0)
        for corner in itertools.product((0, 1), repeat=3):
            voxel = lower + corner * steps
            share = np.prod(1 - np.abs(np.array(point) - voxel) / steps)
            linear[number] += share * rows.get((int(scene), *voxel.tolist()), np.zeros(2))
    assert np.abs(sparse.features_at(x, points).numpy() - linear).max() < TOLERANCE
    np.testing.assert_array_equal(sparse.features_at(x, points, "nearest").numpy(), nearest, strict=True)


def test_vectors_of_scenes_and_normalization_over_them():
    x = make_tensor(scenes=3, channels=2)
    x = sparse.SparseTensor(x.features, x.coordinates, num_scenes=4)
    vectors = paddle.to_tensor(np.arange(8.0).reshape(4, 2))
    own = vectors.numpy()[x.coordinates[:, 0]]
    np.testing.assert_array_equal(sparse.broadcast(x, vectors).F.numpy(), x.F.numpy() + own, strict=True)
    np.testing.assert_array_equal(sparse.broadcast(x, vectors, "multiply").F.numpy(), x.F.numpy() * own, strict=True)
    np.testing.assert_array_equal(
        sparse.broadcast(x, vectors, "concatenate").F.numpy(), np.concatenate([x.F.numpy(), own], 1), strict=True
    )
    norm = sparse.InstanceNorm(2)
    norm.weight.set_value(paddle.to_tensor([[2.0, 3.0]]))
    norm.bias.set_value(paddle.to_tensor([[-1.5, 0.25]]))
    y = norm(x)
    for scene in range(3):
        rows = x.coordinates[:, 0] == scene
        values = x.features.numpy()[rows]
        expected = (values - values.mean(0)) / np.sqrt(values.var(0) + 1e-8) * [2, 3] + [-1.5, 0.25]
        np.testing.assert_allclose(y.features.numpy()[rows], expected, atol=1e-9)
    assert [len(one) for one in x.decomposed_coordinates] == np.bincount(x.C[:, 0], minlength=4).tolist()
    np.testing.assert_array_equal(x.decomposed_features[1].numpy(), x.F.numpy()[x.C[:, 0] == 1], strict=True)


def test_any_layer_and_function_of_rows():
    x = make_tensor()
    np.testing.assert_array_equal(
        sparse.Pointwise(nn.GELU())(x).F.numpy(), nn.functional.gelu(x.F).numpy(), strict=True
    )
    np.testing.assert_array_equal(
        functional.leaky_relu(x, 0.2).F.numpy(), nn.functional.leaky_relu(x.F, 0.2).numpy(), strict=True
    )
    assert not hasattr(functional, "__path__") and not hasattr(functional, "no_function")
    layer = sparse.Pointwise(nn.Linear(3, 5))
    nothing = sparse.prune(x, np.zeros(len(x.C), bool))
    assert functional.gelu(nothing).F is nothing.F  # no call: Paddle 2.6 takes no tensor of no rows
    empty = layer(nothing)
    empty.F.backward(paddle.ones_like(empty.F))
    assert empty.F.shape == [0, 5] and layer.layer.weight.grad is not None


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
def test_collated_voxels_of_any_type_make_the_same_tensor(dtype):
    generator = np.random.default_rng(0)
    scenes = [np.unique(generator.integers(-9, 9, (50, 3)), axis=0) for _ in range(2)]
    rows = [generator.standard_normal((len(voxels), 2)) for voxels in scenes]
    coordinates, features = sparse_collate([voxels.astype(dtype) for voxels in scenes], rows, dtype=dtype)
    for given in (coordinates, paddle.to_tensor(coordinates)):
        x = sparse.SparseTensor(features, given)
        assert x.C.dtype == np.int32 and [len(part) for part in x.decomposed_coordinates] == list(map(len, scenes))
        np.testing.assert_array_equal(x.coordinates_at(1), scenes[1])
        assert sparse.Convolution(2, 3, 3)(x).features.shape == [len(coordinates), 3]
    plain = sparse_collate(scenes, dtype=dtype)  # batched_coordinates of MinkowskiEngine
    np.testing.assert_array_equal(sparse.SparseTensor(features, plain).C, x.C, strict=True)
