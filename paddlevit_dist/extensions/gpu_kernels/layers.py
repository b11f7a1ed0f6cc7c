"""Layers that train by fused kernels; in evaluation they compute what the plain layers compute.

``fuse`` replaces the classes of a model's layers, whose parameters, names and hooks stay. A layer with a hook or an own
``forward`` on one of its parts, in a static program, or with input that no kernel takes is computed by Paddle's
operations.
"""

import itertools
import weakref
from collections.abc import Collection
from typing import Any

import paddle
from paddle import nn

from ...core.runtime import half_weights
from ...core.runtime.autocast import linear
from ...core.runtime.layers import is_changed
from ...images.models import vit
from ...images.models.attention import attend
from ...images.models.layers import GELU, DropPath, LayerNorm, Linear, MatrixProduct, Mlp
from .attention import CHANNELS
from .block import ATTENTION_SITE, MLP_SITE, BlockLaunches, FusedBlockOptions, compute_block
from .functions import FLOATS, add_bias_and_gelu, attend_packed, name_dtype, normalize
from .launches import DropRates

Kernel = tuple[str, int]  # "norm" or "gelu" and its width, or "attention" and the channels of a head


class _BlockState:
    """What a fused block knows of itself and its neighbor; outside of the layer, so that no copy or state has it.

    Attributes of a layer are looked up in three dictionaries, and raise an error first: here they are at hand.

    Attributes:
        following: of the block after this one, whose q, k and v this block computes from its last sum; None for none.
        prepared: the sum, and q, k and v, that the block before has computed.
        attended: dtype of q, k and v that a kernel attends to, as "float32"; None: none does.
    """

    def __init__(self, block: "FusedViTBlock", attended: str | None):
        attention, mlp = block.attn, block.mlp
        self.attended = attended
        self.attention, self.qkv, self.norms = attention, attention.qkv, (block.norm1, block.norm2)
        self.attention_dropout, self.mlp_dropout, self.drop_path = attention.dropout, mlp.dropout, block.drop_path
        products = attention.proj, block.norm2, mlp.fc1, mlp.fc2
        # The layers that are not called as such, and so must be unchanged.
        parts = [*products, block.norm1, attention, mlp, mlp.act, attention.dropout, mlp.dropout, block.drop_path]
        if attended is not None:
            parts += [attention.query_key, attention.attention_value, attention.attention_dropout]
        self._hooks = [hooks for part in parts for hooks in (part._forward_pre_hooks, part._forward_post_hooks)]
        self._attributes = [vars(part) for part in parts]
        self.hooks_before, self.hooks_after = block._forward_pre_hooks, block._forward_post_hooks
        self.own_parameters, self.launches = _list_names(*products), BlockLaunches()
        self.parameters: list[tuple[dict[str, Any], str]] = []  # also of the block after this one
        self.following: _BlockState | None = None
        self.prepared: Any = None
        self._rates: tuple[float, ...] = ()
        self._options: FusedBlockOptions | None = None

    def join(self, following: "_BlockState") -> None:
        """Learn of the block after this one."""
        self.following = following
        self.parameters = [*self.own_parameters, *_list_names(following.norms[0], following.qkv)]

    @property
    def is_changed(self) -> bool:
        """Return whether a part has hooks or a separate ``forward``."""
        return any(self._hooks) or any("forward" in attributes for attributes in self._attributes)

    def find_options(self, following: "_BlockState | None") -> FusedBlockOptions:
        """Return how the block is computed now; the same object as long as nothing changes."""
        path_rate = self.drop_path.rate if self.drop_path.is_dropping else 0.0
        attention_rate, mlp_rate = _find_rate(self.attention_dropout), _find_rate(self.mlp_dropout)
        epsilons = self.norms[1]._epsilon, following.norms[0]._epsilon if following is not None else 0.0
        rates = attention_rate, mlp_rate, path_rate, *epsilons
        if self._options is None or rates != self._rates:
            drops = DropRates(ATTENTION_SITE, attention_rate, path_rate), DropRates(MLP_SITE, mlp_rate, path_rate)
            self._rates, self._options = rates, FusedBlockOptions(epsilons, mlp_rate, *drops)
        return self._options


def _list_names(*layers: nn.Layer) -> list[tuple[dict[str, Any], str]]:
    """Return where the weights and biases of layers are."""
    return [(layer._parameters, name) for layer in layers for name in ("weight", "bias")]


_states: dict[int, _BlockState] = {}  # by the id of a block, as long as that lives


class FusedMlp(Mlp):
    """Add the bias of the first product in the GELU."""

    def forward(self, x):
        """Map (..., dim) to the same shape."""
        if not _is_fused(x, self) or is_changed(self.fc1) or is_changed(self.act):
            return Mlp.forward(self, x)
        is_plain = _is_plain_dropout(self.dropout) and not is_changed(self.dropout)
        product = linear(x, self.fc1.weight, None)
        hidden = add_bias_and_gelu(product, self.fc1.bias, _find_rate(self.dropout) if is_plain else 0.0)
        hidden = hidden if is_plain else self.dropout(hidden)  # (..., hidden_dim)
        return self.dropout(self.fc2(hidden))


class FusedViTBlock(vit.ViTBlock):
    """Compute all behind the attention, and the next block's q, k and v, as one node of the graph."""

    def forward(self, x, count: int | None = None, mask: Any = None):
        """Compute all tokens (batch, tokens, dim), or the first ``count`` of them; with a mask by plain operations."""
        state = _states.get(id(self))
        if mask is not None or state is None or not _is_fused(x, self) or state.is_changed:
            return vit.ViTBlock.forward(self, x, count, mask)
        return _compute_block(state, x, count)


_FUSED: dict[type[nn.Layer], type[nn.Layer]] = {Mlp: FusedMlp, vit.ViTBlock: FusedViTBlock}
# Tables of layers and messages show the names of the plain classes.
for _plain, _fused in _FUSED.items():
    _fused.__name__ = _plain.__name__


def fuse(model: nn.Layer, kernels: Collection[Kernel], products: str = "float32") -> dict[str, int]:
    """Replace the classes of plain layers with the fused ones.

    Args:
        model: changed in place.
        kernels: what the device computes as Paddle does; other layers stay.
        products: dtype of products in training, that of q, k and v which a kernel attends to.

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
        fused = [block if type(block) is FusedViTBlock else None for block in blocks]
        for block in fused:
            if block is not None:
                _states[id(block)] = _BlockState(
                    block, products if set(_find_attention(block)) & set(kernels) else None
                )
                weakref.finalize(block, _states.pop, id(block), None)
        for block, following in itertools.pairwise(fused):
            if block is not None and following is not None and not (_is_wrapped(block) or _is_wrapped(following)):
                _states[id(block)].join(_states[id(following)])
    return numbers


def list_kernels(model: nn.Layer) -> list[Kernel]:
    """Return the kernels that the plain layers of a model would use, each once, in order."""
    return sorted({kernel for layer in model.sublayers(include_self=True) for kernel in _find_kernels(layer)})


def list_attention(model: nn.Layer) -> list[Kernel]:
    """Return the kernels that may attend in the plain blocks of a model, each once, in order."""
    blocks = [one for one in model.sublayers(include_self=True) if type(one) is vit.ViTBlock and _is_plain_block(one)]
    return sorted({kernel for block in blocks for kernel in _find_attention(block)})


def list_weights(model: nn.Layer) -> list[tuple[int, int]]:
    """Return the shapes of all weights that fused blocks multiply by."""
    blocks = [layer for layer in model.sublayers(include_self=True) if type(layer) is FusedViTBlock]
    products = [part for one in blocks for part in (one.attn.qkv, one.attn.proj, one.mlp.fc1, one.mlp.fc2)]
    return [tuple(layer.weight.shape) for layer in products]


def _find_kernels(layer: nn.Layer) -> list[Kernel]:
    """Return the kernels that would compute a layer; none if it stays plain."""
    if type(layer) is Mlp and _is_plain_mlp(layer):
        return [("gelu", layer.fc1.weight.shape[1])]
    if type(layer) is vit.ViTBlock and _is_plain_block(layer):
        return [("norm", layer.norm1.weight.shape[0]), ("gelu", layer.mlp.fc1.weight.shape[1])]
    return []


def _find_attention(block: nn.Layer) -> list[Kernel]:
    """Return the kernel that attends in a block that is fused; none if weights of attention are dropped or changed."""
    attention = block.attn
    products = attention.query_key, attention.attention_value
    is_plain = all(type(one) is MatrixProduct for one in products) and type(attention.attention_dropout) is nn.Dropout
    return [("attention", attention.head_dim)] if is_plain and attention.head_dim in CHANNELS else []


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
        and all(_is_plain_dropout(one) for one in dropouts)
        and all(type(one) is Linear for one in linears)
        and linears[1].bias is not None
    )


def _is_plain_dropout(layer: nn.Layer) -> bool:
    """Return whether a layer drops single values, and scales the others in training."""
    return type(layer) is nn.Dropout and layer.axis is None and layer.mode == "upscale_in_train"


def _find_sequences(model: nn.Layer) -> list[list[nn.Layer]]:
    kinds = nn.LayerList, nn.Sequential
    return [list(layer) for layer in model.sublayers(include_self=True) if isinstance(layer, kinds)]


def _is_wrapped(block: nn.Layer) -> bool:
    """Return whether calls of a block do more than to compute it, as where it is recomputed in the backward pass."""
    return "forward" in vars(block)


@paddle.jit.not_to_static
def _is_fused(x: paddle.Tensor, layer: nn.Layer) -> bool:
    """Return whether a layer is to train by fused kernels now, if its parts are unchanged."""
    if not layer.training or not paddle.in_dynamic_mode() or not _is_on_device(x):
        return False
    return x.dtype.value in FLOATS and 0 not in x.shape


def _is_on_device(tensor: paddle.Tensor) -> bool:  # a test on a CPU replaces it
    return tensor.place.is_gpu_place()


@paddle.jit.not_to_static
def _compute_block(state: _BlockState, x: paddle.Tensor, count: int | None) -> Any:
    attention = state.attention
    if state.prepared is not None and state.prepared[0] is x:
        packed, state.prepared = state.prepared[1], None
    else:
        norm = state.norms[0]
        normal = normalize(x, norm.weight, norm.bias, norm._epsilon)
        packed = attention.heads(state.qkv(normal))
    if state.attended == name_dtype(packed) and not attention.attention_dropout.p:
        attended = attend_packed(packed, attention.scale)
    else:
        attended = attend(attention, packed)
    if count is not None:  # of the other tokens, only keys and values are read
        x, attended = x[:, :count], attended[:, :count]
    following = _claim_following(state) if count is None else None
    places = state.own_parameters if following is None else state.parameters
    parameters = half_weights.find_all([own[name] for own, name in places if own.get(name) is not None])
    options = state.find_options(following)
    if following is None:
        return compute_block(attended, x, parameters, options, state.launches)
    heads = 3 * following.attention.num_heads
    following.prepared = compute_block(attended, x, parameters, options, state.launches, heads)
    return following.prepared[0]


def _find_rate(dropout: nn.Dropout) -> float:
    return float(dropout.p) if dropout.training else 0.0


def _claim_following(state: _BlockState) -> _BlockState | None:
    """Return the block whose attention is to be prepared; None if there is none, or it did not read the last one."""
    following = state.following
    if following is None or state.hooks_after or following.hooks_before:
        return None  # hooks may change the sum in place
    if is_changed(following.qkv) or type(following.qkv) is not Linear:
        return None
    if following.prepared is not None:  # its input is not what this block returns
        state.following = following.prepared = None
    return state.following
