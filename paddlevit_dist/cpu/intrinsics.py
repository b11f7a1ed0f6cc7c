"""What compiled loops need and numba does not have: memory by its address, the bits of a float32, a call of cblas, and
the parts of loops that are written as LLVM instructions, on vectors of ``LANES`` numbers."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# For loops: sums may be formed in another order, so that several numbers are added at once.
FAST = {"fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}
# For formulas whose order of operations counts.
ORDERED = {"fastmath": {"contract"}, "error_model": "numpy"}


@intrinsic
def floats_at(typing_context: Any, address: Any):
    """A pointer to the float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), generate


@intrinsic
def whole_numbers_at(typing_context: Any, address: Any):
    """A pointer to the int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())

    return types.CPointer(types.int64)(types.int64), generate


@intrinsic
def bits_of(typing_context: Any, value: Any):
    """The 32 bits of a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), generate


@intrinsic
def float_of_bits(typing_context: Any, bits: Any):
    """The float32 with these 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def as_exponent(typing_context: Any, bits: Any):
    """32 bits moved 23 places up, from a number to the place of a float32's exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.shl(arguments[0], ir.Constant(ir.IntType(32), 23))

    return types.int32(types.int32), generate


@intrinsic
def add_bits(typing_context: Any, left: Any, right: Any):
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
        called = builder.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), kinds).as_pointer())
        values = [ir.Constant(i32, 101)]
        for kind, value in zip(kinds[1:], arguments[1:]):
            if kind is i32:
                value = builder.trunc(value, i32)
            elif kind is p:
                value = builder.inttoptr(value, p)
            values.append(value)
        builder.call(called, values)
        return context.get_dummy_value()

    return types.void(*_PRODUCT), generate


# ---- vectors: for the bodies of intrinsics -------------------------------------------------------------------

LANES = 16  # float32 numbers of a vector
VECTOR_BYTES = 4 * LANES
INTEGER, FLOAT = ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)


def pointer(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    return builder.inttoptr(builder.add(address, INTEGER(offset)), kind.as_pointer())


def load(builder: Any, address: Any, offset: int = 0, kind: Any = VECTOR) -> Any:
    value = builder.load(pointer(builder, address, offset, kind))
    value.align = 4
    return value


def store(builder: Any, value: Any, address: Any, offset: int = 0) -> None:
    builder.store(value, pointer(builder, address, offset, value.type)).align = 4


def multiply_add(builder: Any, left: Any, right: Any, total: Any) -> Any:
    """``left * right + total``, in one instruction where the processor has it."""
    name = f"llvm.fmuladd.v{LANES}f32"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), name)
    return builder.call(function, [left, right, total])


def repeat(builder: Any, count: Any, start: list[Any], step: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """A loop of ``count`` passes: the values after the last, where ``step(values)`` gives those after one more pass."""
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    values = [builder.phi(value.type) for value in [INTEGER(0), *start]]
    for phi, value in zip(values, [INTEGER(0), *start]):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_signed("<", values[0], count), body, after)
    builder.position_at_end(body)
    following = [builder.add(values[0], INTEGER(1)), *step(values[1:])]
    for phi, value in zip(values, following):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return values[1:]
