"""A block of a vision transformer behind its attention as one node of the graph, up to the next block's attention.

Paddle needs about as long for the node of an operation and for Python around it as for the operation itself, and in
half precision a GPU computes a block faster than the host can launch it so. Here the forward and the backward pass are
written by hand over operations without gradients. The node ends at the attention, which keeps Paddle's gradient.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import paddle
from paddle.autograd import PyLayer

from ...core.runtime import biases
from . import weight_gradients
from .functions import (
    DTYPES,
    TENSORS,
    HiddenTensor,
    contiguous,
    draw_seeds,
    dtype_of_products,
    name_dtype,
    require_first_order,
    select,
)
from .launches import (
    MOST_PREPARED,
    AddNorm,
    AddNormBackward,
    AddUpBlock,
    BiasGelu,
    BiasGeluBackward,
    CastFive,
    DropRates,
    SumTypes,
)

ATTENTION_SITE, MLP_SITE = 1, 3  # of the seeds: what is dropped of the branches; site 0 is behind the GELU
_FC1, _NEXT = 4, 8  # positions among the parameters: of the first product of the MLP, and of the next block's norm


class FusedBlockOptions(NamedTuple):
    """How a block is computed, besides its parameters.

    Attributes:
        epsilons: of its second norm, and of the next block's first.
        hidden_rate: of the dropout after the GELU.
        attention_drops, mlp_drops: of the branches.
    """

    epsilons: tuple[float, float]
    hidden_rate: float
    attention_drops: DropRates
    mlp_drops: DropRates


class _PreparedBlock:
    """The launches of a block for a shape (batch, tokens, dim).

    Args:
        products, x: dtypes of products and of the block's input.
        parameters: their dtypes.
        hidden_dim: of the MLP.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        products: str,
        x: str,
        parameters: tuple[str, ...],
        options: FusedBlockOptions,
        hidden_dim: int,
    ) -> None:
        self.products, self.dtypes = products, parameters
        self.has_next = len(parameters) > _NEXT
        total = x if x == products else "float32"
        first = SumTypes(x, products, parameters[1], parameters[2], total, products)
        ended = SumTypes(total, products, parameters[7], None, total, None)
        second = ended._replace(weight=parameters[_NEXT], normal=products) if self.has_next else ended
        drops = options.attention_drops, options.mlp_drops
        self.first = AddNorm(TENSORS, shape, first, options.epsilons[0], drops[0], is_flat=True)
        self.second = AddNorm(TENSORS, shape, second, options.epsilons[1], drops[1], is_flat=True)
        sizes = [shape[0] * shape[1], hidden_dim]
        hidden_drops = DropRates(rate=options.hidden_rate)
        self.gelu = BiasGelu(TENSORS, sizes, products, parameters[5], hidden_drops)
        hidden_types = products, products, parameters[5]
        self.gelu_backward = BiasGeluBackward(TENSORS, sizes, *hidden_types, hidden_drops, is_added_up=False)
        self.first_backward = AddNormBackward(TENSORS, shape, first, drops[0], is_flat=True, place=0)
        # By whether the next block's attention and the total were read; both cannot be missing.
        cases = ((True, True, second), (True, False, second), (False, True, ended))
        self.second_backward = {
            (is_read, has_total): AddNormBackward(
                TENSORS, shape, types, drops[1], is_flat=True, has_total_gradient=has_total, place=1
            )
            for is_read, has_total, types in cases
        }
        self.add_up = {
            case: AddUpBlock(one, self.gelu_backward, self.first_backward, parameters[5])
            for case, one in self.second_backward.items()
        }
        self.has_drops = any(one.is_any for one in (*drops, hidden_drops))


_prepare = functools.lru_cache(maxsize=MOST_PREPARED)(_PreparedBlock)


class BlockLaunches:
    """What a block keeps between passes: prepared launches, and copies of its weights in the dtype of products.

    Each forward pass writes the copies anew by one launch. All passes share them: their memory is written and read in
    the order of one stream, and weights change only after the backward pass.
    """

    def __init__(self) -> None:
        self._key: tuple | None = None
        self._prepared: _PreparedBlock | None = None
        self._copied_key: tuple | None = None
        self._copied: list[int] = []
        self._copies: list[paddle.Tensor] = []
        self._cast: CastFive | None = None

    def find(
        self, x: paddle.Tensor, products: str, parameters: Sequence[paddle.Tensor], options: FusedBlockOptions
    ) -> _PreparedBlock:
        """Return the launches for an input (batch, tokens, dim), and these parameters and options."""
        dtypes = tuple([name_dtype(one) for one in parameters])
        key = tuple(x.shape), products, name_dtype(x), dtypes, options
        if self._prepared is None or self._key != key:
            self._key, self._prepared = key, _prepare(*key, parameters[_FC1].shape[1])
            if self._copied_key != (products, dtypes):
                self._copied_key = products, dtypes
                self._prepare_copies(products, parameters, dtypes)
        return self._prepared

    def _prepare_copies(self, products: str, parameters: Sequence[paddle.Tensor], dtypes: Sequence[str]) -> None:
        # What products read: weights, and the bias of the last product.
        read = [0, _FC1, _FC1 + 2, *range(_NEXT + 2, len(parameters))]
        self._copied = [position for position in read if dtypes[position] != products]
        sources = [parameters[position] for position in self._copied]
        self._copies = [TENSORS.prepare(one.shape, products)() for one in sources]
        types = [dtypes[position] for position in self._copied]
        self._cast = CastFive([one.size for one in sources], types, products) if sources else None

    def cast_weights(self, parameters: Sequence[paddle.Tensor]) -> Sequence[paddle.Tensor]:
        """Return the parameters, with weights of products, and the bias of the last one, in the dtype of products."""
        if self._cast is None:
            return parameters
        self._cast([parameters[position] for position in self._copied], self._copies)
        found = list(parameters)
        for position, copy in zip(self._copied, self._copies):
            found[position] = copy
        return found


class _FusedBlock(PyLayer):
    @staticmethod
    def forward(ctx, prepared, kept, heads_shape, has_epilogue, hidden, attended, x, *parameters):
        ctx.set_materialize_grads(False)  # the next block may be skipped
        ctx.needs = [not one.stop_gradient for one in (attended, x, *parameters)]
        ctx.prepared, ctx.attended_shape = prepared, attended.shape
        proj, proj_bias, norm, shift, fc1, fc1_bias, fc2, fc2_bias, *following = kept.cast_weights(parameters)
        ops, seeds = paddle._C_ops, hidden.tensor
        attended = ops.reshape(attended, [-1, ctx.attended_shape[-1]])
        branch = ops.matmul(attended, proj, False, False)
        total, normal, statistics = prepared.first(x, branch, proj_bias, norm, shift, seeds)
        inner = ops.matmul(normal, fc1, False, False)  # (rows, hidden_dim)
        active = prepared.gelu(inner, fc1_bias, seeds)
        branch = ops.matmul(active, fc2, False, False)
        second = prepared.second(total, branch, fc2_bias, *following[:2] or (None, None), seeds)
        saved = attended, proj, total, normal, statistics, norm, fc1, inner, fc1_bias, active, fc2
        ending = [] if seeds is None else [seeds]
        if not following:
            ctx.save_for_backward(*saved, *ending)
            return second.total
        packed = ops.reshape(_compute_linear(second.normal, following[2:], has_epilogue), heads_shape)
        # Not the result itself, which would keep its own graph alive.
        ending = [second.total.detach(), second.normal, second.statistics, following[0], following[2], *ending]
        ctx.save_for_backward(*saved, *ending)
        return second.total, packed

    @staticmethod
    def backward(ctx, total_gradient, packed_gradient=None):
        require_first_order()
        attended, proj, total, normal, statistics, norm, fc1, inner, fc1_bias, active, fc2, *rest = ctx.saved_tensor()
        prepared, needs, ops = ctx.prepared, ctx.needs[2:], paddle._C_ops
        dtypes, products = prepared.dtypes, prepared.products
        of_next, seeds = (rest[:5], rest[5:]) if prepared.has_next else ((), rest)
        seeds = seeds[0] if seeds else None
        total_gradient = None if total_gradient is None else contiguous(total_gradient)
        case = packed_gradient is not None, total_gradient is not None
        compute = prepared.second_backward[case]
        if packed_gradient is None:
            second = compute(total_gradient, None, None, total_gradient, None, seeds)
            next_gradients = [None] * (len(needs) - _NEXT)
        else:
            next_total, next_normal, next_statistics, next_norm, qkv = of_next
            rows = ops.reshape(packed_gradient, [-1, qkv.shape[1]])
            normal_gradient = ops.matmul(rows, qkv, False, True)
            second = compute(next_total, next_statistics, normal_gradient, total_gradient, next_norm, seeds)
            next_gradients = [second.weight, second.shift]
            next_gradients.append(_product_gradient(next_normal, rows, dtypes[10], products) if needs[10] else None)
            if len(needs) > 11:
                next_gradients.append(_sum_rows(rows, dtypes[11]) if needs[11] else None)
        fc2_gradients = _product_gradient(active, second.branch, dtypes[6], products) if needs[6] else None, second.bias
        gradient, fc1_bias_gradient = prepared.gelu_backward(
            ops.matmul(second.branch, fc2, False, True), inner, fc1_bias, seeds
        )
        fc1_gradients = (
            _product_gradient(normal, gradient, dtypes[_FC1], products) if needs[_FC1] else None,
            fc1_bias_gradient,
        )
        gradient = ops.matmul(gradient, fc1, False, True)
        first = prepared.first_backward(total, statistics, gradient, second.x, norm, seeds)
        prepared.add_up[case](second, fc1_bias_gradient, first)
        proj_gradient = _product_gradient(attended, first.branch, dtypes[0], products) if needs[0] else None
        attended_gradient = None
        if ctx.needs[0]:
            attended_gradient = ops.matmul(first.branch, proj, False, True)
            attended_gradient = ops.reshape(attended_gradient, ctx.attended_shape)
        of_attention = attended_gradient, first.x, proj_gradient, first.bias, first.weight, first.shift
        return select([*of_attention, *fc1_gradients, *fc2_gradients, *next_gradients], ctx.needs)


def _cast(tensor: paddle.Tensor, dtype: str) -> paddle.Tensor:
    return tensor if name_dtype(tensor) == dtype else paddle._C_ops.cast(tensor, DTYPES[dtype])


def _compute_linear(x: paddle.Tensor, weight_and_bias: Sequence[paddle.Tensor], has_epilogue: bool) -> paddle.Tensor:
    """Compute x (rows, in) @ weight (in, out), plus the bias if there is one."""
    if has_epilogue:
        return biases.fused_linear(x, *weight_and_bias)
    product = paddle._C_ops.matmul(x, weight_and_bias[0], False, False)
    return paddle._C_ops.add(product, weight_and_bias[1]) if len(weight_and_bias) > 1 else product


def _product_gradient(x: paddle.Tensor, gradient: paddle.Tensor, dtype: str, products: str) -> paddle.Tensor:
    """Compute the gradient of a weight, (in, out), from rows of x and of the product's gradient."""
    if dtype != products and weight_gradients.is_right(x.shape[1], gradient.shape[1], products):
        return weight_gradients.compute(x, gradient)
    return _cast(paddle._C_ops.matmul(x, gradient, True, False), dtype)


def _sum_rows(gradient: paddle.Tensor, dtype: str) -> paddle.Tensor:
    return _cast(biases.sum_rows(gradient, gradient.shape[1:]), dtype)


def compute_block(
    attended: paddle.Tensor,
    x: paddle.Tensor,
    parameters: Sequence[paddle.Tensor],
    options: FusedBlockOptions,
    kept: BlockLaunches,
    heads: int = 0,
) -> paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]:
    """Compute a block behind its attention, and with ``heads`` what the next block's attention reads.

    Args:
        attended: (batch, tokens, heads * head_dim), in the dtype of products.
        x: (batch, tokens, dim), the input of the block.
        parameters: weight and bias of the attention's last product, of the second norm and of both products of the MLP;
            with ``heads`` also of the next block's first norm and its product for q, k and v, which may lack a bias.
        options: epsilons and rates.
        kept: of the block, between passes.
        heads: of q, k and v together; 0: there is no next block.

    Returns:
        The block's output (batch, tokens, dim); with ``heads`` also q, k and v, (batch, tokens, heads, head_dim).
    """
    products = dtype_of_products(x)
    prepared = kept.find(x, products, parameters, options)
    heads_shape, has_epilogue = None, False
    if heads:
        heads_shape = [*x.shape[:2], heads, parameters[10].shape[1] // heads]
        if products != "float32" and len(parameters) > 11:
            has_epilogue = biases.has_epilogue(parameters[10], parameters[11], DTYPES[products])
    hidden = HiddenTensor(draw_seeds() if prepared.has_drops else None)
    arguments = prepared, kept, heads_shape, has_epilogue, hidden, contiguous(attended), contiguous(x)
    return _FusedBlock.apply(*arguments, *parameters)
