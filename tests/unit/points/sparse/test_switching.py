"""What people write who come from MinkowskiEngine, spconv and torchsparse: taken, or refused in one line."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.points import sparse_collate
from paddlevit_dist.points.sparse import (
    BatchNorm,
    Convolution,
    DepthwiseConvolution,
    Dropout,
    GlobalPooling,
    InstanceNorm,
    MaxPooling,
    NestedBatchNorm,
    PaddedConvolution,
    PaddedMaxPooling,
    Pointwise,
    ReLU,
    SparseTensor,
    SubmanifoldConv3D,
    SumPooling,
    features_at,
    to_dense,
    union,
)

RNG = np.random.default_rng(0)


def test_quotients_on_the_same_voxels():
    voxels = np.array([[0, 0, 0, 1], [0, 2, 0, 0], [1, 0, 0, 0]])
    one, other = (RNG.uniform(1, 2, (3, 4)) for _ in range(2))
    x, y = SparseTensor(one, voxels), SparseTensor(other, voxels)
    np.testing.assert_allclose((x / y).features.numpy(), one / other)
    np.testing.assert_allclose((x / 4).features.numpy(), one / 4)
    np.testing.assert_allclose((4 / x).features.numpy(), 4 / one)
    np.testing.assert_allclose((x / paddle.to_tensor(other)).features.numpy(), one / other)
    with pytest.raises(ValueError, match="does not have the voxels of"):
        x / SparseTensor(other, voxels[:, [0, 2, 1, 3]])


def test_parts_of_one_scene():
    voxels = np.array([[2, 5, 0, 1], [0, 2, 0, 0], [2, 0, 0, 0], [0, 1, 1, 1]])
    x = SparseTensor(np.arange(8.0).reshape(4, 2), voxels, num_scenes=4)
    coordinates, features = x.decomposed_coordinates_and_features
    for scene in range(4):
        expected = voxels[:, 0] == scene
        for found in (coordinates[scene], x.coordinates_at(scene)):
            np.testing.assert_array_equal(found, voxels[expected, 1:])
        for found in (features[scene], x.features_at(scene)):
            np.testing.assert_array_equal(found.numpy(), x.features.numpy()[expected], strict=True)
    for wrong in (-1, 4):
        with pytest.raises(ValueError, match=f"batch_index is {wrong}, expected 0 to 3"):
            x.features_at(wrong)


def test_tensors_are_collated_with_their_gradients():
    places = [np.array([[0, 1], [2, 3]]), np.array([[0.5, -1.5]]), np.zeros((0, 2))]
    rows = [paddle.to_tensor(RNG.random((len(own), 3)), stop_gradient=False) for own in places]
    labels = [np.arange(len(own)) for own in places]
    expected = sparse_collate(places, [own.numpy() for own in rows], labels)
    found = sparse_collate(list(map(paddle.to_tensor, places)), rows, list(map(paddle.to_tensor, labels)))
    for ours, theirs in zip(found, expected):
        np.testing.assert_array_equal(np.asarray(ours), theirs, strict=True)
    (found[1] ** 2).sum().backward()
    for own in rows[:2]:
        np.testing.assert_allclose(own.grad.numpy(), 2 * own.numpy())
    np.testing.assert_array_equal(sparse_collate(list(map(paddle.to_tensor, places))), expected[0], strict=True)


@pytest.mark.skipif(paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0, reason="of CPUs")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_on_a_cpu_is_computed_or_refused_in_one_line(dtype):
    voxels = np.array([[0, 0, 0, 1], [0, 2, 0, 0], [1, 0, 0, 0]])
    x = SparseTensor(paddle.ones([3, 4]).astype(dtype), voxels)
    own = (Convolution(4, 4), Convolution(4, 4, 1, bias=True), DepthwiseConvolution(4), BatchNorm(4), InstanceNorm(4))
    for layer in own:
        layer.to(dtype=dtype)
    functions = (lambda x: x + x, lambda x: x * 2, to_dense, lambda x: union(x, x), lambda x: features_at(x, voxels))
    for refused in (*own, NestedBatchNorm(4), SumPooling(), MaxPooling(), Pointwise(paddle.nn.GELU()), *functions):
        with pytest.raises(ValueError, match=f"in {dtype} needs a GPU: on a CPU convert"):
            refused(x)
    for layer in (Convolution(4, 4), Convolution(4, 4, 1, bias=True), DepthwiseConvolution(4), InstanceNorm(4)):
        same = SparseTensor(paddle.ones([3, 4]).astype(layer.parameters()[0].dtype), voxels)
        np.testing.assert_array_equal(layer(x).features.numpy(), layer(same).features.numpy(), strict=True)


@pytest.mark.parametrize(
    ("made", "ours"),
    [
        (lambda: Convolution(2, 3, 3, kernel_generator=None, expand_coordinates=False, dimension=2), {"dimension": 2}),
        (lambda: SubmanifoldConv3D(2, 3, 3, stride=1, padding=1, groups=1, indice_key="a"), {"stride": 1}),
        (lambda: PaddedConvolution(2, 3, 3, padding=1, indice_key="b", algo=None), {"in_channels": 2}),
        (lambda: DepthwiseConvolution(in_channels=5, kernel_size=3, dimension=3), {"in_channels": 5}),
        (lambda: BatchNorm(4, eps=1e-3), {"_epsilon": 1e-3}),
        (lambda: NestedBatchNorm(4, eps=1e-3).bn, {"_epsilon": 1e-3}),
        (lambda: InstanceNorm(4, eps=1e-3), {"epsilon": 1e-3}),
        (lambda: Dropout(p=0.2, inplace=True).layer, {"p": 0.2}),
        (lambda: ReLU(inplace=True), {}),
        (lambda: MaxPooling(3, 2, dimension=2, kernel_generator=None), {"dimension": 2}),
        (lambda: PaddedMaxPooling(3, 2, padding=1, indice_key="c"), {"stride": 2}),
        (lambda: GlobalPooling(dimension=3), {"mode": "average"}),
    ],
)
def test_arguments_of_other_libraries_are_taken(made, ours):
    layer = made()
    assert {name: getattr(layer, name) for name in ours} == ours


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Convolution(2, 3, 3, groups=2), "groups=2: use DepthwiseConvolution"),
        (lambda: Convolution(2, 3, 3, padding=1), "padding=1: use PaddedConvolution"),
        (lambda: Convolution(2, 3, 3, transposed=True), "use TransposedConvolution"),
        (lambda: Convolution(2, 3, 3, has_bias=True), "write bias="),
        (lambda: Convolution(2, 3, 3, kernel_generator="cross"), "kernels here are boxes"),
        (lambda: SubmanifoldConv3D(2, 3, 3, stride=2), "stride=2: use StridedConv3D"),
        (lambda: MaxPooling(3, 2, padding=1), "padding=1: use PaddedConvolution, .* or PaddedMaxPooling"),
        (lambda: GlobalPooling(stride=2), "GlobalPooling does not take stride=2"),
        (lambda: BatchNorm(4, momentum=0.1), "momentum=0.1 is the share of new statistics.*write 0.9"),
        (lambda: NestedBatchNorm(4, affine=False), "affine=False"),
        (lambda: MaxPooling(3, 2, dimension=2)(SparseTensor(np.ones((1, 1)), np.zeros((1, 4), int))), "for 2-D voxels"),
    ],
)
def test_arguments_of_other_libraries_that_ask_for_something_else_are_refused(made, said):
    with pytest.raises(ValueError, match=said):
        made()


def test_arguments_of_no_library_are_refused_as_python_does():
    with pytest.raises(TypeError, match="ReLU got an unexpected keyword argument 'slope'"):
        ReLU(slope=0.1)
