"""Attention among queries or cells of a detector, without a transposition and with one product for many small ones."""

import paddle

from ...images.detection.rtdetr.encoder import PositionAttention
from . import branches, functions
from .accelerate import can_use_fast_path

_BLOCKED = -1e4  # as in ``PositionAttention``


class FastPositionAttention(PositionAttention):
    """Reads queries, keys and values where their projections wrote them."""

    def forward(self, x, position=None, blocked: paddle.Tensor | None = None, copies: int = 1):
        """Run the attention, by fast functions if they apply."""
        if not _fits(x, self) or not (position is None or can_use_fast_path(position)):
            return PositionAttention.forward(self, x, position, blocked, copies)
        return self.o_proj(_attend(self, x, position, blocked, copies))


@paddle.jit.not_to_static
def _fits(x: paddle.Tensor, attention: PositionAttention) -> bool:
    layers = attention.q_proj, attention.k_proj, attention.v_proj, attention.query_key, attention.attention_value
    dropout = attention.attention_dropout
    return not (dropout.training and dropout.p) and can_use_fast_path(x, *layers, dropout)


@paddle.jit.not_to_static
def _attend(layer: PositionAttention, x, position, blocked, copies: int) -> paddle.Tensor:
    batch, tokens, dim = x.shape
    if position is None:
        qkv = _project(x, layer.q_proj, layer.k_proj, layer.v_proj)
    else:
        parts = _project(x + position, layer.q_proj, layer.k_proj), _project(x, layer.v_proj)
        qkv = paddle.concat(list(parts), axis=-1)
    mask = None
    if blocked is not None:
        mask = (_BLOCKED * blocked.astype(x.dtype)).unsqueeze(1).expand([-1, copies, -1, -1])
        mask = branches.UntrackedTensor(mask.reshape([batch, tokens, tokens]).contiguous())
    windows = 1 if mask is None else batch  # each with its mask
    heads = branches.HeadLayout(layer.num_heads, layer.head_dim, layer.scale, windows, mask=mask)
    attended = branches.attend_within(qkv.reshape([batch // windows, windows * tokens, 3 * dim]), heads)
    return attended.reshape([batch, tokens, dim])


def _project(x: paddle.Tensor, *layers: paddle.nn.Layer) -> paddle.Tensor:
    """Compute the results of linear layers side by side, by one product."""
    if len(layers) == 1:
        return functions.linear(x, layers[0].weight, layers[0].bias)
    weights, biases = zip(*((layer.weight, layer.bias) for layer in layers))
    return functions.linear(x, paddle.concat(list(weights), axis=1), paddle.concat(list(biases)))


FastPositionAttention.__name__ = "PositionAttention"  # tables of layers show the plain class
