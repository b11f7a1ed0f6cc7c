"""Pooling, normalization and the other layers on sparse tensors."""

import numpy as np
import paddle
import pytest
from support.networks import sparse_reference as reference

from paddlevit_dist.points import sparse
from paddlevit_dist.points.sparse import (
    AveragePooling,
    BatchNorm,
    Convolution,
    DepthwiseConvolution,
    Dropout,
    GlobalPooling,
    InstanceNorm,
    InverseConv3D,
    MaxPooling,
    NestedBatchNorm,
    Plan,
    PlanSpec,
    ReLU,
    SparseTensor,
    StridedConv3D,
    SubmanifoldConv3D,
    SumPooling,
    TransposedConvolution,
    Unpooling,
    broadcast,
    build_plan,
    cat,
)
from paddlevit_dist.points.sparse.device_plan import batch_products
from paddlevit_dist.points.sparse.tensor import empty_rows, scatter_rows


@pytest.fixture(autouse=True)
def float64():
    paddle.set_default_dtype("float64")
    yield
    paddle.set_default_dtype("float32")


def make_tensor(voxels=200, channels=3, **options):
    coordinates = reference.scene(np.random.default_rng(voxels), voxels, **options)
    features = paddle.to_tensor(np.random.default_rng(1).standard_normal((len(coordinates), channels)))
    features.stop_gradient = False
    return SparseTensor(features, coordinates)


POOLINGS = {SumPooling: np.sum, AveragePooling: np.mean, MaxPooling: np.max}


@pytest.mark.parametrize("kind", POOLINGS)
@pytest.mark.parametrize("stride, kernel_size", [(2, 2), (2, 3), (1, 3), (3, 2)])
def test_pooling_over_the_voxels_that_exist(kind, stride, kernel_size):
    x = make_tensor()
    y = kind(kernel_size, stride)(x)
    target = x.coordinates if stride == 1 else reference.coarse(x.coordinates, stride)
    meetings = [pair for pairs in reference.pairs(x.coordinates, target, kernel_size, 1).values() for pair in pairs]
    values, expected = x.features.numpy(), np.zeros((len(target), 3))
    for row in range(len(target)):
        in_rows = [v for u, v in meetings if u == row]
        if in_rows:
            expected[row] = POOLINGS[kind](values[in_rows], axis=0)
    assert np.abs(y.features.numpy() - expected).max() < 1e-12

    direction, step = np.random.default_rng(2).standard_normal(values.shape), 1e-6
    (y.features**2).sum().backward()
    sides = []
    for sign in (1, -1):
        moved = paddle.to_tensor(values + sign * step * direction)
        sides.append((kind(kernel_size, stride)(x.with_features(moved)).features ** 2).sum().item())
    slope = (sides[0] - sides[1]) / (2 * step)
    assert slope == pytest.approx(float((x.features.grad.numpy() * direction).sum()), rel=1e-5)


@pytest.mark.parametrize("kind", [*POOLINGS, Unpooling])
def test_pooling_reads_the_groups_of_a_gpus_plan(kind):
    found = []
    for wanted in (False, True):
        with batch_products(wanted):
            x = make_tensor()
            x = SumPooling(2, 2)(x) if kind is Unpooling else x
            y = kind(2, 2)(x)
            key = next(iter(x.plan.get_used_spec(None).maps))
            assert bool(x.plan.kernel_map(key).to_coarse.groups) is wanted
            found.append(y.features.numpy())
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)


@pytest.mark.parametrize("kind", [*POOLINGS, Unpooling, DepthwiseConvolution])
def test_pooling_reads_all_blocks_of_a_plan(kind):
    layer = kind(3, 2, 2) if kind is DepthwiseConvolution else kind(2, 2)
    x = make_tensor()
    stride = 2 if kind is Unpooling else 1
    rows = x.plan.rows(stride)
    features = np.random.default_rng(5).standard_normal((rows, 3))
    whole = SparseTensor(features, plan=x.plan, stride=stride)
    expected = layer(whole)
    (key,) = x.plan.get_used_spec(None).maps
    plan = Plan.of_batch(build_plan(x.coordinates, PlanSpec((key,), (), 16)))
    assert len(plan.kernel_map(key).to_coarse.blocks) > 2 < len(plan.kernel_map(key).to_fine.blocks)
    found = layer(SparseTensor(features, plan=plan, stride=stride))
    np.testing.assert_allclose(found.features.numpy(), expected.features.numpy(), rtol=0, atol=1e-12)


def test_unpooling_gives_each_voxel_its_parents_features():
    x = make_tensor()
    y = SumPooling(2, 2)(x)
    parents = {tuple(voxel): row for row, voxel in enumerate(y.coordinates.tolist())}
    rows = [parents[(s, *(value // 2 * 2 for value in voxel))] for s, *voxel in x.coordinates.tolist()]
    np.testing.assert_array_equal(Unpooling(2, 2)(y).features.numpy(), y.features.numpy()[rows], strict=True)


@pytest.mark.parametrize("mode, reduce", [("sum", np.sum), ("average", np.mean), ("max", np.max)])
def test_global_pooling_has_one_row_for_each_scene_and_zeros_for_an_empty_one(mode, reduce):
    coordinates = reference.scene(np.random.default_rng(0), 100, scenes=2) * np.array([2, 1, 1, 1])
    values = np.random.default_rng(1).standard_normal((len(coordinates), 3))
    features = paddle.to_tensor(values)
    features.stop_gradient = False
    pooled = GlobalPooling(mode)(SparseTensor(features, coordinates, num_scenes=4))
    expected = [reduce(values[coordinates[:, 0] == s], axis=0) if s in (0, 2) else np.zeros(3) for s in range(4)]
    assert np.abs(pooled.numpy() - np.stack(expected)).max() < 1e-12
    pooled.sum().backward()
    assert features.grad.numpy().sum() == pytest.approx({"sum": 3.0 * len(values), "average": 6.0, "max": 6.0}[mode])
    for own in (coordinates, coordinates[np.argsort(coordinates[:, 0], kind="stable")]):  # in a loader's plan
        plan = Plan.of_batch(build_plan(own, PlanSpec((), (1,)), 4))
        rows = [coordinates.tolist().index(voxel) for voxel in own.tolist()]
        again = GlobalPooling(mode)(SparseTensor(values[rows], plan=plan))
        assert np.abs(again.numpy() - np.stack(expected)).max() < 1e-12


def test_pooling_of_scenes_leaves_half_precision_where_sums_leave_its_range():
    coordinates = np.stack([np.zeros(70_000, int), np.arange(70_000)], axis=1)
    x = SparseTensor(paddle.ones([70_000, 1], dtype="float16"), coordinates)
    found = {mode: GlobalPooling(mode)(x) for mode in ("sum", "average", "max")}
    assert {mode: rows.item() for mode, rows in found.items()} == {"sum": 70_000, "average": 1, "max": 1}


def test_the_gradient_of_a_scenes_maximum_takes_linear_time(other_paddle):
    coordinates = np.stack([np.zeros(30_000, int), np.arange(30_000)], axis=1)
    features = paddle.randn([30_000, 16])
    features.stop_gradient = False
    other_paddle({"max": None, "Tensor.max": None})  # its gradient compares each row with each
    GlobalPooling("max")(SparseTensor(features, coordinates)).sum().backward()
    np.testing.assert_array_equal(features.grad.numpy().argmax(axis=0), features.numpy().argmax(axis=0), strict=True)


def test_scenes_are_summed_without_products_that_a_gpu_rounds(other_paddle):
    other_paddle({"matmul": None})
    x = make_tensor()
    same = x.with_features(paddle.full_like(x.features, 10.003))
    assert np.abs(InstanceNorm(3)(same).features.numpy()).max() < 1e-6
    assert np.abs(GlobalPooling("average")(same).numpy() - 10.003).max() < 1e-12


@pytest.mark.parametrize("frozen", ["features", "kernel"])
def test_what_needs_no_gradient_of_a_depthwise_convolution_gets_none(frozen):
    x, layer = make_tensor(), DepthwiseConvolution(3)
    (x.features if frozen == "features" else layer.kernel).stop_gradient = True
    layer(x).features.sum().backward()
    assert (x.features.grad is None) == (frozen == "features") and (layer.kernel.grad is None) == (frozen == "kernel")


@pytest.mark.parametrize("layer", [SumPooling(), AveragePooling(), MaxPooling(), ReLU(), Dropout()], ids=repr)
def test_no_voxels_pass_through(layer):
    x = SparseTensor(paddle.zeros([0, 3]), np.zeros((0, 4), np.int32))
    assert tuple(layer(x).features.shape) == (0, 3)


@pytest.mark.parametrize("kind", [BatchNorm, NestedBatchNorm])
def test_normalization_is_over_the_rows_and_its_running_variance_unbiased(kind):
    x = make_tensor()
    layer = kind(3)
    y = layer(x).features.numpy()
    values = x.features.numpy()
    expected = (values - values.mean(0)) / np.sqrt(values.var(0) + 1e-5)
    assert np.abs(y - expected).max() < 1e-6  # Paddle's kernels hold epsilon in float32
    running = layer.state_dict()["_variance" if kind is BatchNorm else "bn._variance"].numpy()
    assert np.abs(running - (0.9 + 0.1 * values.var(0, ddof=1))).max() < 1e-8


def test_cat_add_and_relu_work_on_features():
    x = make_tensor()
    values = x.features.numpy()
    np.testing.assert_array_equal(
        cat(x, x + x).features.numpy(), np.concatenate([values, 2 * values], axis=1), strict=True
    )
    np.testing.assert_array_equal(ReLU()(x).features.numpy(), np.maximum(values, 0), strict=True)


def test_half_precision_beside_float32_is_float32():
    x = make_tensor()
    half, single = (x.with_features(x.features.astype(dtype)) for dtype in ("bfloat16", "float32"))
    expected = np.concatenate([half.features.astype("float32").numpy(), single.features.numpy()], axis=1)
    np.testing.assert_array_equal(cat(half, single).features.numpy(), expected, strict=True)
    vectors = broadcast(half, paddle.zeros([2, 1], dtype="float32"), "concatenate")
    assert vectors.features.dtype == paddle.float32 and cat(half, half).features.dtype == paddle.bfloat16


def test_dropout_keeps_the_mean_and_rests_in_evaluation():
    x = make_tensor(3000, reach=10)
    x = x.with_features(paddle.ones_like(x.features))
    layer = Dropout(0.25)
    dropped = layer(x).features.numpy()
    assert set(np.round(np.unique(dropped), 6)) == {0.0, 1.333333}
    assert dropped.mean() == pytest.approx(1.0, abs=0.05)
    layer.eval()
    np.testing.assert_array_equal(layer(x).features.numpy(), x.features.numpy(), strict=True)


def test_slicing_gives_points_the_features_of_their_voxels():
    x = make_tensor()
    inverse = np.random.default_rng(0).integers(0, len(x.features), 500)
    points = x.slice(paddle.to_tensor(inverse))
    np.testing.assert_array_equal(points.numpy(), x.features.numpy()[inverse], strict=True)
    points.sum().backward()
    counts = np.bincount(inverse, minlength=len(x.features))
    np.testing.assert_array_equal(
        x.features.grad.numpy(), np.repeat(counts[:, None], 3, axis=1).astype(float), strict=True
    )
    with pytest.raises(ValueError, match="only voxels of stride 1"):
        SumPooling()(x).slice(paddle.to_tensor(inverse))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_voxels_of_a_given_stride_keep_the_rows_of_their_features(stride):
    coordinates = reference.scene(np.random.default_rng(0), 300) * np.array([1, stride, stride, stride])
    values = np.random.default_rng(1).standard_normal((len(coordinates), 3))
    x = SparseTensor(paddle.to_tensor(values), coordinates, stride=stride)
    assert np.array_equal(x.coordinates, coordinates)
    target = reference.coarse(coordinates, 2 * stride)
    found = reference.pairs(coordinates, target, 2, stride)
    expected = reference.convolve(values, np.tile(np.eye(3), (8, 1, 1)), found, len(target))
    pooled = SumPooling(2, 2)(x)
    assert np.array_equal(pooled.coordinates, target) and np.abs(pooled.features.numpy() - expected).max() < 1e-12
    layer = Convolution(3, 4)
    found = reference.pairs(coordinates, coordinates, 3, stride)
    expected = reference.convolve(values, layer.kernel.numpy(), found, len(coordinates))
    assert np.abs(layer(x).features.numpy() - expected).max() < 1e-12


def test_a_maximum_over_what_is_not_a_number_is_none_and_over_the_lowest_is_the_lowest():
    x = make_tensor()
    values = x.features.numpy().copy()
    cells = np.concatenate([x.coordinates[:, :1], x.coordinates[:, 1:] // 2 * 2], axis=1)
    values[(cells == cells[7]).all(axis=1), 0] = -np.inf
    values[7, 1] = np.nan
    pooled = MaxPooling()(x.with_features(paddle.to_tensor(values)))
    row = pooled.coordinates.tolist().index(cells[7].tolist())
    assert np.argwhere(np.isnan(pooled.features.numpy())).tolist() == [[row, 1]]
    assert np.argwhere(np.isinf(pooled.features.numpy())).tolist() == [[row, 0]]


IN_3D, IN_2D = np.array([[0, 0, 0, 0], [0, 2, 4, 6]]), np.array([[0, 0, 0], [0, 2, 4]])


@pytest.mark.parametrize(
    "layer, coordinates, message",
    [
        (Convolution(3, 4), IN_2D, "this Convolution is for 3-D voxels, but gets .*2-D"),
        (Convolution(3, 4, dimension=2), IN_3D, "this Convolution is for 2-D voxels, but gets .*3-D"),
        (TransposedConvolution(3, 4, 2, 2, dimension=2), IN_3D, "is for 2-D voxels, but gets .*3-D"),
        (StridedConv3D(3, 4), IN_2D, "this StridedConv3D is for 3-D voxels, but gets .*2-D"),
        (InverseConv3D(3, 4, 2, 2), IN_2D, "this InverseConv3D is for 3-D voxels, but gets .*2-D"),
        (Convolution(5, 4), IN_3D, "this Convolution takes 5 channels, but gets .*3 channels"),
        (Convolution(5, 4, 1), IN_3D, "this Convolution takes 5 channels, but gets .*3 channels"),
        (SubmanifoldConv3D(5, 4), IN_3D, "this SubmanifoldConv3D takes 5 channels, but gets .*3 channels"),
        (BatchNorm(5), IN_3D, "this BatchNorm takes 5 channels, but gets .*3 channels"),
        (NestedBatchNorm(5), IN_3D, "this NestedBatchNorm takes 5 channels, but gets .*3 channels"),
        (TransposedConvolution(3, 4, 2, 4), IN_3D, "of stride 2 to voxels 4 times as fine: .*stride 2"),
        (Unpooling(2, 2), IN_3D, "no voxels of stride 1: the finest have stride 2"),
        (BatchNorm(3).astype("float32"), IN_3D, "parameters of float32, but gets features of float64"),
        (Convolution(3, 4, 1).astype("float32"), IN_3D, r"of float64: .*astype\('float32'\)"),
    ],
)
def test_a_layer_says_what_it_is_for_and_what_it_gets(layer, coordinates, message):
    features = np.ones((2, 3)) if "float32" in message else np.ones((2, 3), layer_precision(layer))
    with pytest.raises(ValueError, match=f"^[^\n]*{message}[^\n]*$"):
        layer(SparseTensor(features, coordinates, stride=2))


def layer_precision(layer):
    return str(layer.parameters()[0].dtype).rpartition(".")[2] if layer.parameters() else "float64"


@pytest.mark.parametrize(
    "make, kind, message",
    [
        (lambda: MaxPooling([2, 0, 2]), ValueError, r"kernel_size is \[2, 0, 2\], expected a whole number"),
        (lambda: SumPooling(2, -1), ValueError, "stride is -1, expected a whole number"),
        (lambda: SumPooling(np.int64(2), True), ValueError, "^stride is True, expected a whole number"),
        (lambda: StridedConv3D(3, 4, (3, 3)), ValueError, r"kernel_size is \(3, 3\), expected .* or 3 of them"),
        (lambda: SparseTensor(np.ones((2, 3)), IN_3D + 1, stride=2), ValueError, r"at \[1, 1, 1\] is not a voxel of"),
        (lambda: SparseTensor(np.ones((2, 3)), IN_3D, stride=[2]), ValueError, r"stride is \[2\], expected"),
        (lambda: MaxPooling()(paddle.ones([2, 3])), TypeError, "MaxPooling takes a SparseTensor, not a Tensor"),
        (lambda: cat([make_tensor()]), TypeError, "cat takes a SparseTensor, not a list"),
    ],
)
def test_what_no_layer_can_use_is_told_in_one_line(make, kind, message):
    with pytest.raises(kind, match=f"^[^\n]*{message}[^\n]*$"):
        make()


def test_lists_are_taken_as_arrays_are():
    x = SparseTensor([[1.0, 2.0], [3.0, 4.0]], IN_3D.tolist(), stride=2)
    np.testing.assert_array_equal(ReLU()(x).features.numpy(), [[1.0, 2.0], [3.0, 4.0]], strict=True)


@pytest.mark.parametrize(
    "make, shown",
    [
        (
            lambda: Convolution(3, 4, 3, 2, bias=True),
            "3, 4, kernel_size=3, stride=2, dilation=1, bias=True, dimension=3",
        ),
        (lambda: SumPooling(3, 2), "kernel_size=3, stride=2, dilation=1"),
        (lambda: GlobalPooling("max"), "mode=max"),
        (lambda: InstanceNorm(5, 1e-3), "5, epsilon=0.001"),
    ],
)
def test_a_printed_layer_shows_its_arguments(make, shown):
    assert make().extra_repr() == shown


def test_nothing_is_added_to_rows_and_nothing_is_read_at_no_point():
    source = paddle.ones([1, 2], "float64")
    source.stop_gradient = False
    nothing = empty_rows(source)
    found = scatter_rows(nothing, np.zeros(0, np.int64), 3)
    assert found.dtype == paddle.float64 and found.tolist() == [[0, 0]] * 3
    total = paddle.ones([3, 2], "float64")
    assert scatter_rows(nothing, np.zeros(0, np.int64), 3, total).tolist() == [[1, 1]] * 3
    found.sum().backward()
    assert source.grad.tolist() == [[0, 0]]
    assert scatter_rows(nothing, np.zeros(0, np.int64), 0) is nothing
    x = SparseTensor(paddle.ones([2, 3], "float64"), np.array([[0, 0, 0, 0], [0, 2, 1, 0]], np.int32))
    read = sparse.features_at(x, np.zeros((0, 4)))
    assert read.shape == [0, 3] and read.dtype == paddle.float64
    dense, first = sparse.to_dense(x, shape=(5, 3, 2), minimum=(-1, 0, -1))
    assert first.tolist() == [-1, 0, -1] and np.argwhere(dense.numpy()[0, 0]).tolist() == [[1, 0, 1], [3, 1, 1]]


@pytest.mark.parametrize("mode", ["average", "sum", "max"])
def test_scenes_that_all_have_no_voxel_are_zeros_with_a_gradient(mode):
    features = paddle.zeros([0, 3], dtype="float32")
    features.stop_gradient = False
    pooled = GlobalPooling(mode)(SparseTensor(features, np.zeros((0, 4), np.int32), num_scenes=2))
    assert pooled.tolist() == [[0.0] * 3] * 2 and pooled.dtype == paddle.float32
    pooled.sum().backward()
    if not paddle.__version__.startswith("2."):  # Paddle 2.6 keeps no gradient of nothing
        assert features.grad.shape == [0, 3]
