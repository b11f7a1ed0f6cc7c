"""Sliding windows, metrics and images."""

import itertools

import numpy as np
import paddle
import pytest

from paddlevit_dist.volumes.images import orthogonal_slices
from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics, build_rows
from paddlevit_dist.volumes.sliding_window import line_weights, predict, window_starts


@pytest.mark.parametrize(
    "length, window, overlap",
    [(48, 32, 0.5), (100, 32, 0.5), (32, 32, 0.9), (70, 16, 0.0), (17, 16, 0.3), (20, 4, 0.9), (41, 10, 0.25)],
)
def test_the_fewest_windows_cover_the_volume_with_the_overlap_asked_for(length, window, overlap):
    starts, step = window_starts(length, window, overlap), max(1, int(window * (1 - overlap)))
    assert starts[0] == 0 and starts[-1] == length - window
    assert all(0 < b - a <= step for a, b in zip(starts, starts[1:]))
    assert len(starts) == 1 + int(np.ceil((length - window) / step))
    np.testing.assert_allclose(starts, np.linspace(0, length - window, len(starts)), atol=0.5)  # evenly spread


@pytest.mark.parametrize("length", [1, 5, 8])
def test_weights_are_symmetric_triangles_and_bells(length):
    from_middle = np.abs(np.arange(length) - (length - 1) / 2)
    triangle = (length + 1) / 2 - from_middle
    expected = {"linear": triangle / triangle.max(), "gaussian": np.exp(-((from_middle * 8 / length) ** 2) / 2)}
    for kind, weights in expected.items():
        found = line_weights(length, kind)
        np.testing.assert_allclose(found, weights, rtol=1e-6)
        assert found.dtype == np.float32


@pytest.mark.parametrize("shape", [(20, 24, 30), (8, 24, 9), (12, 10, 8)])
def test_a_voxelwise_model_gives_the_same_maps_in_windows_as_at_once(shape):
    volume = paddle.to_tensor(np.random.default_rng(0).standard_normal((1, *shape)).astype("float32"))
    maps = predict(lambda x: paddle.concat([2 * x, x - 1], axis=1), volume, (12, 10, 8), 0.5)
    assert maps.shape == [2, *shape]
    np.testing.assert_allclose(maps[0].numpy(), 2 * volume[0].numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(maps[1].numpy(), volume[0].numpy() - 1, rtol=1e-5, atol=1e-6)


def test_a_windows_border_counts_less_than_its_middle():
    volume = paddle.zeros([1, 4, 4, 12])
    first = iter([1.0, 0.0])

    def model(windows):
        return paddle.stack([paddle.full([1, 4, 4, 8], next(first)) for _ in windows])

    line = predict(model, volume, (4, 4, 8), 0.5)[0, 0, 0].numpy()
    assert (line[:4] == 1.0).all() and (line[8:] == 0.0).all() and (np.diff(line[3:9]) < 0).all()


def test_errors_become_means_rates_and_deviations():
    errors = np.array([[1.0, 2.2, np.nan], [3.0, 2.0, 4.5], [np.nan, np.nan, 2.8]])
    metrics = LandmarkMetrics(["a", "b", "c"])
    for row in errors:
        metrics.update(row)
    values = metrics.compute(metrics.state)
    known = errors[np.isfinite(errors)]
    assert values["mre_mm"] == pytest.approx(known.mean()) and values["sd_mm"] == pytest.approx(known.std())
    for radius in (2, 2.5, 3, 4):
        assert values[f"sdr_{radius}mm"] == pytest.approx(100 * (known <= radius).mean())
    assert values["landmarks"] == 6 and [values[f"{name} landmarks"] for name in "abc"] == [2, 2, 2]
    assert values["b mre_mm"] == pytest.approx(errors[:2, 1].mean()) and values["a sdr_2mm"] == 50.0
    assert metrics.summary(values).startswith("mre 2.5833 mm sd 1.0") and "sdr 2 mm 33.33 2.5 mm" in metrics.summary(
        values
    )
    assert [row[0] for row in build_rows(metrics.rows()["sums"], ["a", "b", "c"])] == ["a", "b", "c", "all"]


def test_a_landmark_that_no_volume_has_is_left_out():
    metrics = LandmarkMetrics(["a", "b"])
    metrics.update(np.array([1.0, np.nan]))
    values = metrics.compute(metrics.state)
    assert values["mre_mm"] == 1.0 and not any(name.startswith("b ") for name in values)
    assert all(np.isfinite(list(values.values())))


def test_slices_show_landmarks_where_they_are():
    volume = np.zeros((20, 40, 30), dtype=np.float32)
    volume[10, 30, 5] = 1.0
    point = np.array([[10.0, 30.0, 5.0], [np.nan] * 3])
    image = orthogonal_slices(volume, (2.0, 1.0, 1.0), point)
    assert image.dtype == np.uint8 and image.shape[2] == 3
    red = np.argwhere((image == (255, 70, 70)).all(axis=-1))
    scale = 256 / 30
    axial = red[red[:, 1] < 30 * scale]
    np.testing.assert_allclose(axial.mean(axis=0), [40 * scale - 30.5 * scale, 5.5 * scale], atol=1.5)  # anterior is up
    coronal = red[(red[:, 1] > 30 * scale) & (red[:, 1] < 61 * scale)]  # superior is up: depth runs from below
    assert coronal[:, 0].mean() == pytest.approx(40 * scale - 10.5 * 2 * scale, abs=2)


def test_letters_name_the_sides_of_a_patient():
    """Yellow letters only where they are asked for: two in the middle of the height, two in the middle of the width."""
    volume = np.zeros((30, 30, 30), dtype=np.float32)
    plain = orthogonal_slices(volume, (1.0, 1.0, 1.0), None)
    lettered = orthogonal_slices(volume, (1.0, 1.0, 1.0), None, shows_sides=True)
    changed = np.argwhere((plain != lettered).any(axis=-1))
    axial = changed[changed[:, 1] < 256]
    near = [(16, 128), (242, 128), (128, 4), (128, 246)]  # row, column
    assert all(np.abs(axial - place).max(axis=1).min() <= 12 for place in near)
    assert all(np.abs(np.array(near) - pixel).max(axis=1).min() <= 14 for pixel in axial)


def test_names_are_listed_in_the_colors_of_their_marks():
    volume = np.zeros((30, 30, 30), dtype=np.float32)
    found = np.array([[15.0, 15.0, 15.0], [np.nan] * 3])
    true = np.array([[np.nan] * 3, [10.0, 12.0, 14.0]])
    plain = orthogonal_slices(volume, (1.0, 1.0, 1.0), found, true)
    named = orthogonal_slices(volume, (1.0, 1.0, 1.0), found, true, names=["nose", "chin"])
    listed = named[:, plain.shape[1] :].reshape(-1, 3)
    assert (listed == (255, 70, 70)).all(axis=1).any() and (listed == (80, 230, 80)).all(axis=1).any()


@pytest.mark.parametrize("shape", [(7, 9, 5), (3, 4, 2), (3, 10, 2)])  # of many windows, of one and of some at once
def test_windows_are_blended_the_same_however_many_are_predicted_at_once(shape):
    """Against a slow sum over the windows, of a model whose outputs depend on the place in the window."""
    generator, window = np.random.default_rng(0), (3, 4, 2)
    volume = generator.normal(size=(2, *shape)).astype(np.float32)
    mask = generator.normal(size=(2, *window)).astype(np.float32)
    found = predict(lambda x: x * paddle.to_tensor(mask), paddle.to_tensor(volume), window, 0.5, "gaussian")
    weight = np.einsum("i,j,k->ijk", *(line_weights(length, "gaussian") for length in window))
    total, weights = np.zeros(volume.shape), np.zeros(volume.shape[1:])
    for origin in itertools.product(*(window_starts(n, w, 0.5) for n, w in zip(volume.shape[1:], window))):
        where = tuple(slice(start, start + length) for start, length in zip(origin, window))
        total[(slice(None), *where)] += volume[(slice(None), *where)] * mask * weight
        weights[where] += weight
    np.testing.assert_allclose(found.numpy(), total / weights, rtol=1e-4, atol=1e-5)
