"""Layers that train by fused kernels; in evaluation they compute what the plain layers compute.

``fuse`` replaces the classes of a model's layers, whose parameters, names and hooks stay. A layer with a hook or an own
``forward`` on one of its parts, in a static program, or with input that no kernel takes is computed by Paddle's
operations.
"""

import weakref
from collections.abc import Collection, Sequence
from typing import Any

import paddle
from paddle import nn

from ...core.runtime.autocast import linear
from ...core.runtime.operations import call, is_changed
from ...images.models import vit
from ...images.models.attention import attend
from ...images.models.layers import GELU, DropPath, LayerNorm, Linear, Mlp, drop
from .functions import FLOATS, add_and_normalize, add_bias_and_gelu, normalize

Kernel = tuple[str, int]  # "norm" or "gelu", and its width


class _BlockState:
    """What a fused block knows of its neighbors; outside of the layer, so that no copy or state has it.

    Attributes:
        parts: the layers that are not called as such, and so must be unchanged.
        following: the block after this one, whose first norm this block computes with its last sum; None for none.
        prepared: the sum and the norm that the block before has computed.
    """

    def __init__(self, parts: Sequence[nn.Layer], following: "FusedViTBlock | None"):
        self.parts, self.following = tuple(parts), following
        self.prepared: tuple[paddle.Tensor, paddle.Tensor] | None = None


_states: "weakref.WeakKeyDictionary[FusedViTBlock, _BlockState]" = weakref.WeakKeyDictionary()


class FusedMlp(Mlp):
    """Add the bias of the first product in the GELU."""

    def forward(self, x):
        """Map (..., dim) to the same shape."""
        if not _is_fused(x, self, (self.fc1, self.act)):
            return Mlp.forward(self, x)
        hidden = add_bias_and_gelu(linear(x, self.fc1.weight, None), self.fc1.bias)  # (..., hidden_dim)
        return drop(self.dropout, call(self.fc2, drop(self.dropout, hidden)))


class FusedViTBlock(vit.ViTBlock):
    """Add a branch and its bias in the norm that follows, the next block's for the last branch."""

    def forward(self, x, count: int | None = None):
        """Compute all tokens (batch, tokens, dim), or the first ``count`` of them."""
        state = _states.get(self)
        if state is None or not _is_fused(x, self, state.parts):
            return vit.ViTBlock.forward(self, x, count)
        return _compute_block(self, state, x, count)


_FUSED: dict[type[nn.Layer], type[nn.Layer]] = {Mlp: FusedMlp, vit.ViTBlock: FusedViTBlock}
# Tables of layers and messages show the names of the plain classes.
for _plain, _fused in _FUSED.items():
    _fused.__name__ = _plain.__name__


def fuse(model: nn.Layer, kernels: Collection[Kernel]) -> dict[str, int]:
    """Replace the classes of plain layers with the fused ones.

    Args:
        model: changed in place.
        kernels: what the device computes as Paddle does; other layers stay.

    Returns:
        The number of replaced layers by the name of their class.
    """
    numbers: dict[str, int] = {}
    for layer in model.sublayers(include_self=True):
        needed = _find_kernels(layer)
        if needed and set(needed) <= set(kernels):
            layer.__class__ = _FUSED[type(layer)]
            numbers[type(layer).__name__] = numbers.get(type(layer).__name__, 0) + 1
    for blocks in _find_sequences(model):
        for block, following in zip(blocks, [*blocks[1:], None]):
            if type(block) is FusedViTBlock:
                is_joined = type(following) is FusedViTBlock and not _is_wrapped(block) and not _is_wrapped(following)
                _states[block] = _BlockState(_list_parts(block), following if is_joined else None)
    return numbers


def list_kernels(model: nn.Layer) -> list[Kernel]:
    """Return the kernels that the plain layers of a model would use, each once, in order."""
    return sorted({kernel for layer in model.sublayers(include_self=True) for kernel in _find_kernels(layer)})


def _find_kernels(layer: nn.Layer) -> list[Kernel]:
    """Return the kernels that would compute a layer; none if it stays plain."""
    if type(layer) is Mlp and _is_plain_mlp(layer):
        return [("gelu", layer.fc1.weight.shape[1])]
    if type(layer) is vit.ViTBlock and _is_plain_block(layer):
        return [("norm", layer.norm1.weight.shape[0]), ("gelu", layer.mlp.fc1.weight.shape[1])]
    return []


def _is_plain_mlp(mlp: Mlp) -> bool:
    linears = mlp.fc1, mlp.fc2
    return type(mlp.act) is GELU and all(type(one) is Linear and one.bias is not None for one in linears)


def _is_plain_block(block: vit.ViTBlock) -> bool:
    """Return whether all parts of a block are the package's own; any other layer may compute anything."""
    attention, norms = block.attn, (block.norm1, block.norm2)
    if type(attention) is not vit.Attention or type(block.mlp) not in (Mlp, FusedMlp) or not _is_plain_mlp(block.mlp):
        return False
    if not all(type(norm) is LayerNorm and norm.weight is not None and norm.bias is not None for norm in norms):
        return False
    linears, dropouts = (attention.qkv, attention.proj), (attention.dropout, block.mlp.dropout)
    return (
        type(block.drop_path) is DropPath
        and all(type(one) is nn.Dropout for one in dropouts)
        and all(type(one) is Linear for one in linears)
        and linears[1].bias is not None
    )


def _list_parts(block: vit.ViTBlock) -> list[nn.Layer]:
    attention, mlp = block.attn, block.mlp
    parts = [block.norm1, attention, attention.proj, attention.dropout, block.norm2, mlp, mlp.fc1, mlp.act, mlp.fc2]
    return [*parts, mlp.dropout, block.drop_path]


def _find_sequences(model: nn.Layer) -> list[list[nn.Layer]]:
    kinds = nn.LayerList, nn.Sequential
    return [list(layer) for layer in model.sublayers(include_self=True) if isinstance(layer, kinds)]


def _is_wrapped(block: nn.Layer) -> bool:
    """Return whether calls of a block do more than to compute it, as where it is recomputed in the backward pass."""
    return "forward" in vars(block)


@paddle.jit.not_to_static
def _is_fused(x: paddle.Tensor, layer: nn.Layer, parts: Sequence[nn.Layer]) -> bool:
    """Return whether a layer is to train by fused kernels now."""
    if not layer.training or not paddle.in_dynamic_mode() or not _is_on_device(x):
        return False
    if x.dtype.value not in FLOATS or 0 in x.shape:
        return False
    return not any(is_changed(part) for part in parts)


def _is_on_device(tensor: paddle.Tensor) -> bool:  # a test on a CPU replaces it
    return tensor.place.is_gpu_place()


@paddle.jit.not_to_static
def _compute_block(block: FusedViTBlock, state: _BlockState, x: paddle.Tensor, count: int | None) -> Any:
    attention, mlp, norm = block.attn, block.mlp, block.norm2
    if attention.dropout.p or mlp.dropout.p:  # between a product and the sum
        return vit.ViTBlock.forward(block, x, count)
    if state.prepared is not None and state.prepared[0] is x:
        normal, state.prepared = state.prepared[1], None
    else:
        normal = _normalize(x, block.norm1)
    attended = attend(attention, attention.heads(call(attention.qkv, normal)))
    if count is not None:  # of the other tokens, only keys and values are read
        x, attended = x[:, :count], attended[:, :count]
    branch = linear(attended, attention.proj.weight, None)
    total, normal = _add_and_normalize(x, branch, norm, attention.proj.bias, block.drop_path)
    hidden = add_bias_and_gelu(linear(normal, mlp.fc1.weight, None), mlp.fc1.bias)
    following = _claim_following(block, state) if count is None else None
    if following is None:
        return total + call(block.drop_path, call(mlp.fc2, hidden))
    branch = linear(hidden, mlp.fc2.weight, None)
    prepared = _add_and_normalize(total, branch, following.norm1, mlp.fc2.bias, block.drop_path)
    _states[following].prepared = prepared
    return prepared[0]


def _claim_following(block: FusedViTBlock, state: _BlockState) -> FusedViTBlock | None:
    """Return the block whose first norm is to be computed; None if there is none, or it did not read the last one."""
    following = state.following
    if block._forward_post_hooks or (following is not None and following._forward_pre_hooks):
        return None  # they may change the sum in place
    if following is not None and _states[following].prepared is not None:  # its input is not what this block returns
        state.following = _states[following].prepared = None
    return state.following


def _normalize(x: paddle.Tensor, norm: nn.LayerNorm) -> paddle.Tensor:
    return normalize(x, norm.weight, norm.bias, norm._epsilon)


def _add_and_normalize(
    x: paddle.Tensor, branch: paddle.Tensor, norm: nn.LayerNorm, bias: paddle.Tensor, drop_path: DropPath
) -> tuple[paddle.Tensor, paddle.Tensor]:
    keep = drop_path.factors(x) if drop_path.is_dropping else None
    return add_and_normalize(x, branch, norm.weight, norm.bias, norm._epsilon, bias, keep)
