"""Arguments of points, voxels and layers that do not fit: what is said, next to the nearest ones that do."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.points import sparse
from paddlevit_dist.points.sparse import Plan, PlanSpec, build_plan
from paddlevit_dist.points.sparse.coordinate_keys import along_axes
from paddlevit_dist.points.sparse.fields import to_dense
from paddlevit_dist.points.sparse.padded import PaddedConvolution, PaddedInverseConvolution
from paddlevit_dist.points.sparse.tensor import on_same_voxels

COORDINATES = np.array([[0, 2, 4, -2], [0, 4, 0, 0], [1, 2, 2, 6]])


def make_tensor(**options):
    return sparse.SparseTensor(paddle.ones([3, 2]), COORDINATES, stride=2, **options)


def points(*rows):
    return np.array(rows, float).reshape(len(rows), -1)


@pytest.mark.parametrize(
    ("features", "places", "message"),
    [
        (np.ones((2, 3)), points((0, 1, 2), (1, 0.5, 2)), None),
        (np.ones((0, 3)), np.zeros((0, 3)), None),
        (np.ones(2), points((0, 1, 2), (1, 0.5, 2)), r"features have shape \[2\] and points \[2, 3\], expected"),
        (np.ones((2, 3)), np.ones(2), r"features have shape \[2, 3\] and points \[2\], expected"),
        (np.ones((2, 3)), points((0, 1, 2)), r"features have shape \[2, 3\] and points \[1, 3\], expected"),
        (np.ones((2, 3)), points((0, 1, 2), (0.5, 1, 2)), r"point 1 is \[0\.5, 1\.0, 2\.0\], expected finite"),
        (np.ones((2, 3)), points((0, 1, np.inf), (0, 1, 2)), r"point 0 is \[0\.0, 1\.0, inf\], expected finite"),
    ],
)
def test_points_have_a_scene_and_a_row_of_features_each(features, places, message):
    if message is None:
        assert sparse.PointFeatures(features, places).voxels("sum")[0].F.shape == [len(features), 3]
        return
    with pytest.raises(ValueError, match=message):
        sparse.PointFeatures(features, places)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: sparse.PointFeatures(np.ones((1, 2)), points((0, 1, 2))).voxels("max"), "mode is 'max', expected"),
        (lambda x: sparse.features_at(x, points((0, 1, 2))), r"points have shape \[1, 3\], expected \(points, 4\)"),
        (lambda x: sparse.features_at(x, np.zeros(4)), r"points have shape \[4\], expected \(points, 4\)"),
        (lambda x: sparse.features_at(x, points((0, 1, 2, 3)), "cubic"), "mode is 'cubic', expected 'linear' or"),
        (lambda x: sparse.broadcast(x, paddle.ones([2, 2]), "divide"), "mode is 'divide', expected one of add"),
        (lambda x: sparse.broadcast(x, paddle.ones([3, 2])), r"vectors have shape \[3, 2\], expected \(2, "),
        (lambda x: sparse.broadcast(x, paddle.ones([2])), r"vectors have shape \[2\], expected \(2, "),
        (lambda x: to_dense(x, minimum=(2, 0, -1)), r"minimum is \[2, 0, -1\], expected multiples of the stride 2"),
        (lambda x: sparse.GlobalPooling("median"), "mode is 'median', expected one of average, sum, max"),
        (lambda x: sparse.SparseTensor(x.F), "either coordinates or a plan"),
        (lambda x: sparse.SparseTensor(x.F, COORDINATES, plan=x.plan), "either coordinates or a plan"),
        (lambda x: sparse.cat(), "expected at least one sparse tensor"),
        (lambda x: along_axes((2, 2), 3), r"\(2, 2\) has 2 numbers for 3 axes: give one for each, or one for all"),
        (lambda x: sparse.Convolution(2, 4, 3)(x, COORDINATES[:, :3]), "the voxels given are 2-D, the input is"),
        (lambda x: PaddedInverseConvolution(2, 4, 3, 2, padding=1)(x), "needs the output's voxels: call it"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(make_tensor())


def test_arguments_that_fit_are_taken():
    x = make_tensor()
    assert sparse.features_at(x, np.zeros((0, 4))).shape == [0, 2]
    found = sparse.features_at(x, points((0, 2.5, 5.5, -1), (0, 0, 0, 0), (1, 3, 2, 7)), "nearest")
    np.testing.assert_array_equal(found.numpy(), [[1, 1], [0, 0], [1, 1]])
    assert sparse.broadcast(x, paddle.ones([2, 5]), "concatenate").F.shape == [3, 7]
    dense, first = to_dense(x, minimum=(2, 0, -2))
    assert dense.shape == [2, 2, 2, 3, 5] and first.tolist() == [2, 0, -2]
    assert along_axes((2, 1, 3), 3) == (2, 1, 3) and along_axes(2, 3) == (2, 2, 2)


def test_rows_are_of_the_same_voxels_only_at_one_stride():
    x, features = make_tensor(), paddle.ones([3, 2])
    assert on_same_voxels(x, make_tensor())
    for coordinates, stride in ((COORDINATES, 1), (COORDINATES[::-1], 2), (COORDINATES + [0, 2, 0, 0], 2)):
        other = sparse.SparseTensor(features, coordinates, stride=stride)
        assert not on_same_voxels(x, other) and not on_same_voxels(other, x)
    assert not on_same_voxels(x, sparse.SparseTensor(features[:2], COORDINATES[:2], stride=2))


def test_a_plan_from_a_batch_has_no_coordinates():
    plan = Plan.of_batch(build_plan(COORDINATES, PlanSpec(()), num_scenes=2))
    for ask in (lambda: plan.coordinates(1), lambda: plan.find(1, COORDINATES)):
        with pytest.raises(ValueError, match="^a plan from a batch has no coordinates: put them into the batch"):
            ask()


def test_a_plan_of_another_network_is_refused_by_what_it_lacks():
    x = sparse.SparseTensor(
        paddle.ones([3, 2]), plan=Plan.of_batch(build_plan(COORDINATES, PlanSpec(()), num_scenes=2))
    )
    key = "MapKey(fine=1, coarse=1, kernel_size=3, dilation=1)"
    for ask, lacking in (
        (lambda: sparse.GlobalPooling()(x), "scene numbers for stride 1"),
        (lambda: x.plan.rows(2), "level of stride 2, only [1]"),
        (lambda: sparse.Convolution(2, 4, 3)(x), key),
    ):
        with pytest.raises(ValueError) as error:
            ask()
        assert str(error.value) == f"the plan has no {lacking}: build it with the plan_spec() of this network"


def test_places_far_away_are_not_rounded():
    (voxels, _) = sparse.PointFeatures(np.ones((2, 1)), points((0, 2**24 + 1, 3), (0, 5, 2**24 + 1))).voxels()
    assert voxels.C.tolist() == [[0, 5, 2**24 + 1], [0, 2**24 + 1, 3]]


def test_a_dense_tensor_may_have_more_scenes_than_channels():
    values = paddle.to_tensor(np.arange(18.0).reshape(3, 1, 2, 3) % 4)
    x = sparse.from_dense(values)
    places = np.argwhere(values.numpy()[:, 0])
    assert (
        x.C.tolist() == places.tolist() and x.F.numpy().ravel().tolist() == values.numpy()[values.numpy() != 0].tolist()
    )


def test_a_padded_layer_shows_its_rule():
    layer = PaddedConvolution(2, 4, 3, 2, padding=(1, 0, 1), spatial_shape=(9, 8, 7))
    assert repr(layer).count("padding=(1, 0, 1), spatial_shape=(9, 8, 7)") == 1
