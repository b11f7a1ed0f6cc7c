"""Intrinsics that numba lacks: memory by address, the bits of a float32, a call of cblas."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from numba.core.base import BaseContext
    from numba.core.typing import BaseContext as TypingContext
    from numba.core.typing import Signature

Values = Sequence[ir.Value]
_INT32 = ir.IntType(32)
_FLOATS, _DOUBLES = ir.FloatType().as_pointer(), ir.DoubleType().as_pointer()
_INTEGERS = ir.IntType(64).as_pointer()

# For loops: sums may be reordered, so that several numbers are added at once.
FAST: dict[str, Any] = {"fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}
# For formulas that depend on the order of operations.
ORDERED: dict[str, Any] = {"fastmath": {"contract"}, "error_model": "numpy"}


@intrinsic
def floats_at(typing_context: "TypingContext", address: types.Type):
    """Return a pointer to the float32 at an address."""
    return types.CPointer(types.float32)(types.int64), lambda _, builder, __, v: builder.inttoptr(v[0], _FLOATS)


@intrinsic
def doubles_at(typing_context: "TypingContext", address: types.Type):
    """Return a pointer to the float64 at an address."""
    return types.CPointer(types.float64)(types.int64), lambda _, builder, __, v: builder.inttoptr(v[0], _DOUBLES)


@intrinsic
def integers_at(typing_context: "TypingContext", address: types.Type):
    """Return a pointer to the int64 at an address."""
    return types.CPointer(types.int64)(types.int64), lambda _, builder, __, v: builder.inttoptr(v[0], _INTEGERS)


@intrinsic
def float_to_bits(typing_context: "TypingContext", value: types.Type):
    """Return the 32 bits of a float32."""
    return types.int32(types.float32), lambda _, builder, __, values: builder.bitcast(values[0], _INT32)


@intrinsic
def bits_to_float(typing_context: "TypingContext", bits: types.Type):
    """Return the float32 with these 32 bits."""
    return types.float32(types.int32), lambda _, builder, __, values: builder.bitcast(values[0], ir.FloatType())


@intrinsic
def as_exponent(typing_context: "TypingContext", bits: types.Type):
    """Shift 32 bits left by 23, from an integer to the position of a float32's exponent."""
    return types.int32(types.int32), lambda _, builder, __, values: builder.shl(values[0], ir.Constant(_INT32, 23))


@intrinsic
def add_bits(typing_context: "TypingContext", left: types.Type, right: types.Type):
    """Add two 32-bit integers."""
    return types.int32(types.int32, types.int32), lambda _, builder, __, values: builder.add(*values)


# void cblas_sgemm(order, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
_PRODUCT = (types.int64, *[types.int64] * 5, types.float32, *[types.int64] * 4, types.float32, *[types.int64] * 2)


@intrinsic
def multiply(typing_context, function, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):  # noqa: PLR0913
    """Call a ``cblas_sgemm`` with 32-bit sizes by its address: c = alpha op(a) op(b) + beta c, row-major."""

    def generate(context: "BaseContext", builder: ir.IRBuilder, _: "Signature", arguments: Values) -> ir.Value:
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
