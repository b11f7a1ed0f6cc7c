"""The sampling of deformable attention, plain and compiled, against sums over points written out in float64."""

import math

import numpy as np
import paddle
import pytest
from support.waits import counted_waits

from paddlevit_dist.extensions.cpu_kernels.accelerate import accelerate, is_available
from paddlevit_dist.images.detection.rtdetr.deformable import PointSampling

SIZES, NUMBERS = [(5, 7), (3, 2), (1, 1)], (3, 1, 2)
BATCH, QUERIES, HEADS, DIM = 2, 4, 3, 5


def drawn(seed=0):
    """Values, places and weights, and a factor for each number that is found. A third of the places are outside."""
    random = np.random.default_rng(seed)
    cells = sum(height * width for height, width in SIZES)
    values = random.standard_normal((BATCH, cells, HEADS, DIM))
    places = random.uniform(-0.4, 1.4, (BATCH, QUERIES, HEADS, sum(NUMBERS), 2))
    places[0, 0, 0, 0], places[0, 0, 0, 1], places[0, 0, 0, 2] = (-3.0, 0.5), (0.5, 1e9), (0.01, 0.99)
    weights = random.uniform(-1, 1, places.shape[:-1])
    return values, places, weights, random.standard_normal((BATCH, QUERIES, HEADS * DIM))


def value_at(grid, x, y, is_discrete):
    """A map (height, width, dim) at a place: cells are weighted by how near their centers are."""
    height, width, _ = grid.shape
    x, y = x * width, y * height
    if is_discrete:
        return grid[min(max(int(y + 0.5), 0), height - 1), min(max(int(x + 0.5), 0), width - 1)]
    total = np.zeros(grid.shape[2])
    for row in range(height):
        for column in range(width):
            near = max(0.0, 1 - abs(x - 0.5 - column)) * max(0.0, 1 - abs(y - 0.5 - row))
            total += near * grid[row, column]
    return total


def expected(values, places, weights, is_discrete):
    images, queries = places.shape[:2]
    found = np.zeros((images, queries, HEADS, DIM))
    for image, query, head in np.ndindex(images, queries, HEADS):
        first = point = 0
        for (height, width), number in zip(SIZES, NUMBERS):
            grid = values[image, first : first + height * width, head].reshape(height, width, DIM)
            for _ in range(number):
                x, y = places[image, query, head, point]
                own = weights[image, query, head, point]
                found[image, query, head] += own * value_at(grid, x, y, is_discrete)
                point += 1
            first += height * width
    return found.reshape(images, queries, HEADS * DIM)


def make_layer(is_compiled, is_discrete):
    layer = PointSampling(NUMBERS, is_discrete)
    if is_compiled:
        accelerate(layer)
        assert type(layer) is not PointSampling
    return layer


def tensors(arrays, dtype):
    found = [paddle.to_tensor(array.astype(dtype)) for array in arrays]
    for tensor in found:
        tensor.stop_gradient = False
    return found


@pytest.mark.parametrize("is_discrete", [False, True])
@pytest.mark.parametrize(
    ("is_compiled", "dtype", "of_places"),
    [(False, "float64", "float64"), (False, "float32", "float64"), (False, *["float32"] * 2), (True, *["float32"] * 2)],
)
def test_values_are_the_weighted_sums_over_all_points(is_compiled, dtype, of_places, is_discrete):
    if is_compiled and not is_available():
        pytest.skip("Paddle has no MKL here")
    *arrays, _ = drawn()
    with paddle.no_grad():
        inputs = arrays_to(arrays[0], dtype), SIZES, *tensors(arrays[1:], of_places)
        found = make_layer(is_compiled, is_discrete)(*inputs)
    assert found.dtype == inputs[0].dtype
    allowed = 1e-12 if dtype == "float64" else 2e-6
    np.testing.assert_allclose(found.numpy(), expected(*arrays, is_discrete), rtol=0, atol=allowed)


def arrays_to(array, dtype):
    return paddle.to_tensor(array.astype(dtype))


@pytest.mark.parametrize("is_discrete", [False, True])
@pytest.mark.parametrize(("is_compiled", "dtype"), [(False, "float64"), (True, "float32")])
def test_gradients_are_the_slopes_of_the_sums(is_compiled, dtype, is_discrete):
    if is_compiled and not is_available():
        pytest.skip("Paddle has no MKL here")
    *arrays, factors = drawn()
    inputs = tensors(arrays, dtype)
    (make_layer(is_compiled, is_discrete)(inputs[0], SIZES, *inputs[1:]) * arrays_to(factors, dtype)).sum().backward()
    step, random = 1e-6, np.random.default_rng(1)
    for place, (array, tensor) in enumerate(zip(arrays, inputs)):
        if is_discrete and place == 1:
            assert tensor.grad is None or not tensor.grad.numpy().any()
            continue
        near_first = [(0, 0, 0, point, axis)[: array.ndim] for point in range(3) for axis in range(2)] if place else []
        for index in near_first + [tuple(random.integers(0, array.shape)) for _ in range(12)]:
            ends = []
            for way in (-step, step):
                moved = [other.copy() for other in arrays]
                moved[place][index] += way
                # Other images feel nothing of it, nor other queries of a place or a weight.
                image, query = index[0], index[1] if place else slice(None)
                own = [each[image, query].reshape(1, -1, *each.shape[2:]) for each in (*moved[1:], factors)]
                ends.append((expected(moved[0][image][None], *own[:2], is_discrete) * own[2]).sum())
            slope = (ends[1] - ends[0]) / (2 * step)
            allowed = 1e-7 if dtype == "float64" else 1e-5
            assert math.isclose(tensor.grad.numpy()[index], slope, rel_tol=allowed, abs_tol=10 * allowed), index


@pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")
@pytest.mark.parametrize("is_discrete", [False, True])
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_the_compiled_gradients_are_the_plain_ones_whatever_needs_none(frozen, is_discrete):
    *arrays, factors = drawn(2)
    found = []
    for is_compiled in (False, True):
        inputs = tensors(arrays, "float32")
        inputs[frozen].stop_gradient = True
        out = make_layer(is_compiled, is_discrete)(inputs[0], SIZES, *inputs[1:])
        (out * arrays_to(factors, "float32")).sum().backward()
        assert inputs[frozen].grad is None
        found.append([np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy() for tensor in inputs])
    for plain, compiled in zip(*found):
        np.testing.assert_allclose(compiled, plain, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_of_16_bits_are_sampled_in_32(dtype):
    *arrays, _ = drawn()
    values = arrays_to(arrays[0], "float32").astype(dtype)
    found = make_layer(False, False)(values, SIZES, *tensors(arrays[1:], "float32"))
    assert found.dtype == values.dtype
    rounded = values.astype("float32").numpy().astype(np.float64)
    bits = 2.0**-10 if dtype == "float16" else 2.0**-7
    right = expected(rounded, *arrays[1:], False)
    np.testing.assert_allclose(found.astype("float32").numpy(), right, rtol=bits, atol=1e-5)


@pytest.mark.skipif(not is_available(), reason="Paddle has no MKL here")
def test_what_is_not_a_number_is_not_hidden():
    values, places, weights = (arrays_to(array, "float32") for array in drawn()[:3])
    weights[1, 2, 0, 0], places[1, 2, 0, 0] = math.nan, 0.5
    places[0, 3, 1, 4, 1] = math.nan
    found = make_layer(True, False)(values, SIZES, places, weights).numpy()
    assert np.isnan(found[1, 2, :DIM]).all() and np.isnan(found[0, 3, DIM : 2 * DIM]).all()
    assert np.isnan(found).sum() == 2 * DIM


class OfThree(paddle.nn.Layer):
    def __init__(self, is_discrete):
        super().__init__()
        self.sampling = make_layer(False, is_discrete)

    def forward(self, values, places, weights):
        return self.sampling(values, SIZES, places, weights)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_a_saved_program_takes_any_batch(is_discrete, tmp_path):
    *arrays, _ = drawn()
    specs = [paddle.static.InputSpec([None, *array.shape[1:]], "float32") for array in arrays]
    paddle.jit.save(OfThree(is_discrete), str(tmp_path / "sampling"), input_spec=specs)
    saved, right = paddle.jit.load(str(tmp_path / "sampling")), expected(*arrays, is_discrete)
    for batch in range(1, BATCH + 1):
        found = saved(*(arrays_to(array[:batch], "float32") for array in arrays)).numpy()
        np.testing.assert_allclose(found, right[:batch], rtol=0, atol=2e-6)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_a_gpu_is_not_waited_for(is_discrete):
    *arrays, _ = drawn()
    inputs, layer = tensors(arrays, "float32"), make_layer(False, is_discrete)
    with counted_waits() as waits:
        layer(inputs[0], SIZES, *inputs[1:]).sum().backward()
    assert len(waits) == 0, waits
