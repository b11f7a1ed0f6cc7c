"""Memory by address, bits and products in compiled loops, against numpy's views and products."""

from pathlib import Path

import numba
import numpy as np
import pytest

from paddlevit_dist.extensions.cpu_kernels import intrinsics, memory
from paddlevit_dist.extensions.cpu_kernels.memory import PLAIN, TRANSPOSED


@numba.njit(**intrinsics.ORDERED)
def read(floats, integers, value, exponent):
    numbers, places = numba.carray(intrinsics.floats_at(floats), 5), numba.carray(intrinsics.integers_at(integers), 3)
    bits = intrinsics.float_to_bits(value)
    moved = intrinsics.bits_to_float(intrinsics.add_bits(bits, intrinsics.as_exponent(exponent)))
    numbers[places[1]] = moved
    return numbers[0] + np.float32(10) * numbers[2], places[2], bits, moved


def test_numbers_are_read_and_written_at_their_addresses():
    floats, integers = np.arange(1, 6, dtype=np.float32), np.array([1, 4, 2**40 + 3])
    value = np.float32(-1.7)
    total, place, bits, moved = read(floats.ctypes.data, integers.ctypes.data, value, np.int32(5))
    assert (total, place) == (31, 2**40 + 3) and floats.tolist()[:4] == [1, 2, 3, 4]
    assert bits == value.view(np.int32) and floats[4] == np.float32(moved) == value * 2**5
    assert read(floats.ctypes.data, integers.ctypes.data, value, np.int32(-3))[3] == value / 2**3


@numba.njit(**intrinsics.FAST)
def multiply(function, left, right, out, m, n, k, alpha, beta):
    """Add the product of leading columns of arrays, of which the second is stored transposed."""
    intrinsics.multiply(function, 111, 112, m, n, k, alpha, left, k + 1, right, k + 2, beta, out, n + 3)


MKL = Path(memory.paddle.__file__).parent / "libs/libmklml_intel.so"
needs_product = pytest.mark.skipif(memory.product() is None, reason="Paddle has no MKL here")


@needs_product
def test_a_compiled_loop_multiplies_leading_columns():
    generator = np.random.default_rng(0)
    left, right, out = (
        generator.standard_normal(shape).astype(np.float32) for shape in ((2, 4 + 1), (3, 4 + 2), (2, 3 + 3))
    )
    expected = out.copy()
    expected[:, :3] = 0.5 * left[:, :4] @ right[:, :4].T + 2 * out[:, :3]
    addresses = (array.ctypes.data for array in (left, right, out))
    multiply(memory.product().pointer, *addresses, 2, 3, 4, np.float32(0.5), np.float32(2.0))
    np.testing.assert_allclose(out, expected, rtol=1e-5)


@needs_product
@pytest.mark.parametrize("left_is", [PLAIN, TRANSPOSED])
@pytest.mark.parametrize("right_is", [PLAIN, TRANSPOSED])
@pytest.mark.parametrize("more", [(0, 0, 0), (1, 2, 3)])
def test_products_of_plain_and_transposed_factors_are_numpys(left_is, right_is, more):
    m, n, k = 2, 3, 5
    generator = np.random.default_rng(0)
    shapes = [(m, k) if left_is == PLAIN else (k, m), (k, n) if right_is == PLAIN else (n, k), (m, n)]
    arrays = [
        generator.standard_normal((rows, columns + extra)).astype(np.float32)
        for (rows, columns), extra in zip(shapes, more)
    ]
    left, right, out = (array[:, : shape[1]] for array, shape in zip(arrays, shapes))
    product = (left if left_is == PLAIN else left.T) @ (right if right_is == PLAIN else right.T)
    widths = [array.shape[1] if extra else 0 for array, extra in zip(arrays, more)]
    before, kept = out.copy(), arrays[2][:, n:].copy()
    addresses = [array.ctypes.data for array in arrays]
    memory.require_product()(*addresses, (m, n, k), (left_is, right_is), 0.5, widths)
    np.testing.assert_allclose(out, product + 0.5 * before, rtol=1e-5)
    np.testing.assert_array_equal(arrays[2][:, n:], kept)
    if not any(more) and (left_is, right_is) == (PLAIN, PLAIN):
        memory.require_product()(*addresses, (m, n, k))
        np.testing.assert_allclose(out, product, rtol=1e-5)


@pytest.mark.skipif(not MKL.exists(), reason="Paddle has no MKL here")
def test_paddles_own_product_is_found_and_exact():
    """Without it all other tests of fast layers are left out."""
    assert memory.product() is not None and memory.product().pointer


def test_a_product_that_is_missing_or_wrong_is_not_used(monkeypatch, tmp_path):
    find = memory.product.__wrapped__
    assert memory.is_exact(lambda *arguments: None) is False
    monkeypatch.setattr(memory, "product", lambda: None)
    with pytest.raises(RuntimeError, match="^Paddle has no exact matrix product of MKL$"):
        memory.require_product()
    monkeypatch.setattr(memory.paddle, "__file__", str(tmp_path / "__init__.py"))
    assert find() is None
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "libmklml_intel.so").write_bytes(b"no library")
    assert find() is None


@needs_product
def test_a_product_that_adds_no_second_product_is_wrong():
    exact = memory.product()

    def without_beta(*arguments):
        exact(*arguments[:5])

    assert memory.is_exact(exact) is True and memory.is_exact(without_beta) is False
