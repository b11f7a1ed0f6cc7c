"""Deformable sampling against sums written out in float64, by loops over points."""

import math

import numpy as np
import paddle
import pytest
from support.plain_layers import plain_layers
from support.waits import counted_waits

from paddlevit_dist.cpu_kernels import layers as fast_layers
from paddlevit_dist.cpu_kernels.accelerate import is_possible
from paddlevit_dist.images.detection.rtdetr.deformable import sample

SHAPES, POINTS = ((5, 7), (3, 4), (1, 2)), (3, 5, 1)


def draw(dtype="float32", channels=6, seed=0):
    """Values, locations and weights; a third of the points lie outside, some on borders."""
    random, heads, queries, batch = np.random.default_rng(seed), 3, 11, 2
    cells = sum(rows * columns for rows, columns in SHAPES)
    values = random.standard_normal((batch, cells, heads, channels))
    locations = random.uniform(-0.3, 1.3, (batch, queries, heads, sum(POINTS), 2))
    special = [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (-9.0, 0.5), (0.5, 6e4), (1.0, 0.3)]
    locations[0, : len(special), 0, 0] = special
    weights = random.uniform(0.0, 1.0, (batch, queries, heads, sum(POINTS)))
    return [array.astype(dtype) for array in (values, locations, weights)]


def cells_of(x, y, rows, columns, is_discrete):
    """The cells that a point reads: row, column, share, and the share's slopes by x and y."""
    if is_discrete:
        column = min(max(int(x * columns + 0.5), 0), columns - 1)
        return [(min(max(int(y * rows + 0.5), 0), rows - 1), column, 1.0, 0.0, 0.0)]
    across, down = x * columns - 0.5, y * rows - 0.5
    left, top = math.floor(across), math.floor(down)
    found = []
    for row, b, db in ((top, top + 1 - down, -rows), (top + 1, down - top, rows)):
        for column, a, da in ((left, left + 1 - across, -columns), (left + 1, across - left, columns)):
            if 0 <= row < rows and 0 <= column < columns:
                found.append((row, column, a * b, da * b, a * db))
    return found


def by_hand(values, locations, weights, gradient, is_discrete):
    """The sums, and their gradients by values, locations and weights, for ``gradient`` by the sums."""
    values, locations, weights = (array.astype(np.float64) for array in (values, locations, weights))
    batch, _, heads, channels = values.shape
    queries = locations.shape[1]
    out = np.zeros((batch, queries, heads, channels))
    slopes = gradient.reshape(out.shape).astype(np.float64)
    of_values, of_locations, of_weights = np.zeros_like(values), np.zeros_like(locations), np.zeros_like(weights)
    levels = [level for level, number in enumerate(POINTS) for _ in range(number)]
    starts = np.cumsum([0, *(rows * columns for rows, columns in SHAPES)])
    for n, q, h, p in np.ndindex(*weights.shape):
        (rows, columns), start, weight = SHAPES[levels[p]], starts[levels[p]], weights[n, q, h, p]
        for row, column, share, by_x, by_y in cells_of(*locations[n, q, h, p], rows, columns, is_discrete):
            place = n, start + row * columns + column, h
            product = values[place] @ slopes[n, q, h]
            out[n, q, h] += weight * share * values[place]
            of_values[place] += weight * share * slopes[n, q, h]
            of_weights[n, q, h, p] += share * product
            of_locations[n, q, h, p] += weight * product * np.array([by_x, by_y])
    return out.reshape(batch, queries, heads * channels), of_values, of_locations, of_weights


def computed(arrays, gradient, is_discrete=False):
    inputs = [paddle.to_tensor(array, stop_gradient=False) for array in arrays]
    out = sample(inputs[0], SHAPES, inputs[1], inputs[2], POINTS, is_discrete)
    out.backward(paddle.to_tensor(gradient).astype(out.dtype))
    return [out.numpy(), *(None if one.grad is None else one.grad.numpy() for one in inputs)]


def gradient_for(arrays):
    values, _, weights = arrays
    shape = (*weights.shape[:2], values.shape[2] * values.shape[3])
    return np.random.default_rng(9).standard_normal(shape).astype(values.dtype)


def check(found, expected, relative):
    for ours, right in zip(found, expected):
        if ours is None:
            assert not right.any()
        else:
            np.testing.assert_allclose(ours, right, rtol=0, atol=relative * np.abs(right).max())


@pytest.mark.parametrize("is_discrete", [False, True])
@pytest.mark.parametrize(("dtype", "relative"), [("float64", 1e-12), ("float32", 2e-6)])
def test_in_paddles_operations(dtype, relative, is_discrete):
    arrays = draw(dtype)
    gradient = gradient_for(arrays)
    with plain_layers():
        found = computed(arrays, gradient, is_discrete)
    check(found, by_hand(*arrays, gradient, is_discrete), relative)
    assert (found[2] is None) == is_discrete


@pytest.mark.skipif(not is_possible(), reason="Paddle has no MKL here")
@pytest.mark.parametrize("channels", [1, 6, 32])
def test_compiled(channels, monkeypatch):
    arrays, used = draw(channels=channels), []
    gradient, fast = gradient_for(arrays), fast_layers.deformable_samples
    monkeypatch.setattr(fast_layers, "deformable_samples", lambda *given: used.append(1) or fast(*given))
    found = computed(arrays, gradient)
    check(found, by_hand(*arrays, gradient, False), 2e-6)
    assert used


def test_only_wanted_gradients():
    arrays = draw()
    gradient = gradient_for(arrays)
    expected = by_hand(*arrays, gradient, False)
    for wanted in range(3):
        inputs = [paddle.to_tensor(array, stop_gradient=k != wanted) for k, array in enumerate(arrays)]
        out = sample(inputs[0], SHAPES, *inputs[1:], POINTS)
        (found,) = paddle.grad(out, [inputs[wanted]], paddle.to_tensor(gradient))
        check([found.numpy()], [expected[1 + wanted]], 2e-6)
    with paddle.no_grad():
        check([sample(inputs[0], SHAPES, *inputs[1:], POINTS).numpy()], expected[:1], 2e-6)


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize(("dtype", "rounding"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7)])
def test_half_precision_samples_in_float32(dtype, rounding, is_plain):
    """Only what comes in and what goes out is rounded (Paddle 2.6 cuts), in mixed precision too."""
    halves = [paddle.to_tensor(array).astype(dtype) for array in draw()]
    rounded = [half.astype("float32").numpy() for half in halves]
    expected = by_hand(*rounded, np.zeros((2, 11, 18)), False)[0]
    context = plain_layers() if is_plain else paddle.no_grad()
    with context, paddle.amp.auto_cast(dtype="bfloat16", level="O2"):
        found = sample(halves[0], SHAPES, *halves[1:], POINTS)
        single = sample(paddle.to_tensor(rounded[0]), SHAPES, *halves[1:], POINTS)
    assert found.dtype == halves[0].dtype and single.dtype == paddle.float32
    check([single.numpy()], [expected], 2e-6)
    np.testing.assert_allclose(found.astype("float32").numpy(), expected, rtol=1.01 * rounding, atol=1e-5)


@pytest.mark.skipif(not is_possible(), reason="Paddle has no MKL here")
def test_what_is_not_a_number_is_not_hidden():
    values, locations, weights = map(paddle.to_tensor, draw())
    weights[1, 2, 0, 0] = math.nan
    locations[0, 9, 1, 4, 1] = math.nan  # Paddle 2.6's own operation reads beyond the map here
    found = sample(values, SHAPES, locations, weights, POINTS).numpy()
    assert np.isnan(found[1, 2, :6]).all() and np.isnan(found[0, 9, 6:12]).all() and np.isnan(found).sum() == 12


class Sampling(paddle.nn.Layer):
    def __init__(self, is_discrete):
        super().__init__()
        self.is_discrete = is_discrete

    def forward(self, values, locations, weights):
        return sample(values, SHAPES, locations, weights, POINTS, self.is_discrete)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_a_saved_program_takes_any_batch(is_discrete, tmp_path):
    arrays = draw()
    layer, specs = Sampling(is_discrete), [paddle.static.InputSpec([None, *x.shape[1:]], "float32") for x in arrays]
    paddle.jit.save(layer, str(tmp_path / "sampling"), input_spec=specs)
    for batch in (1, 2):
        given = [array[:batch] for array in arrays]
        found = paddle.jit.load(str(tmp_path / "sampling"))(*map(paddle.to_tensor, given)).numpy()
        check([found], [by_hand(*given, np.zeros((batch, 11, 18)), is_discrete)[0]], 2e-6)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_a_gpu_is_not_waited_for(is_discrete):
    inputs = [paddle.to_tensor(array, stop_gradient=False) for array in draw()]
    with counted_waits() as waits:
        sample(inputs[0], SHAPES, *inputs[1:], POINTS, is_discrete).sum().backward()
    assert len(waits) == 0, waits
