"""Intrinsics that numba lacks: memory by address, the bits of a float32, a call of cblas."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# For loops: sums may be reordered, so that several numbers are added at once.
FAST: dict[str, Any] = {"fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}
# For formulas that depend on the order of operations.
ORDERED: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy"}


@intrinsic
def floats_at(typing_context: Any, address: Any):
    """Return a pointer to the float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


@intrinsic
def integers_at(typing_context: Any, address: Any):
    """Return a pointer to the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), generate


@intrinsic
def float_to_bits(typing_context: Any, value: Any):
    """Return the 32 bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def bits_to_float(typing_context: Any, bits: Any):
    """Return the float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def as_exponent(typing_context: Any, bits: Any):
    """Shift 32 bits left by 23, from an integer to the position of a float32's exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.shl(arguments[0], ir.Constant(ir.IntType(32), 23))

    return types.int32(types.int32), generate


@intrinsic
def add_bits(typing_context: Any, left: Any, right: Any):
    """Add two 32-bit integers."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.add(*arguments)

    return types.int32(types.int32, types.int32), generate


# void cblas_sgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
_PRODUCT = (types.int64, *[types.int64] * 5, types.float32, *[types.int64] * 4, types.float32, *[types.int64] * 2)


@intrinsic
def multiply(typing_context, function, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # noqa: PLR0913
    """Call a ``cblas_sgemm`` with 32-bit sizes by its address: c = alpha op(a) op(b) + beta c, row-major."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        i32, f, p = ir.IntType(32), ir.FloatType(), ir.IntType(8).as_pointer()
        kinds = [i32, i32, i32, i32, i32, i32, f, p, i32, p, i32, f, p, i32]
        function_pointer = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
        values = [ir.Constant(i32, 101)]
        for kind, value in zip(kinds[1:], arguments[1:]):
            if kind is i32:
                value = builder.trunc(value, i32)
            elif kind is p:
                value = builder.inttoptr(value, p)
            values.append(value)
        builder.call(function_pointer, values)
        return context.get_dummy_value()

    return types.void(*_PRODUCT), generate
