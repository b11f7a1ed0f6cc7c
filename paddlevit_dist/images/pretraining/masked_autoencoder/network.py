"""Masked autoencoder: a ViT encodes the patches that are kept, a small decoder predicts the pixels of all others.

The parameters of the encoder have their names in a classifier, so that its weights and the weights of other tasks fit.
The decoder's begin with ``pretraining_decoder``.

Source: K. He et al., Masked Autoencoders Are Scalable Vision Learners, 2021 (section 3; appendix A.1).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import nn

from ....core.runtime import autocast
from ....core.runtime.errors import UserError
from ....core.runtime.transfers import constant
from ....core.tasks.model import KeyMap, Model
from ...models.attention import head_dim
from ...models.key_names import rename
from ...models.layers import LayerNorm, Linear, TruncatedNormal, linear
from ...models.vit import VisionTransformer, ViTBlock
from ...models.vit_blocks import ConfigurableBlock, TokenGrid, ViTConfig
from .masks import count_kept, cut_patches, gather_tokens, sine_cosine_table

_DECODER = "pretraining_decoder."

_LAYER = r"^decoder\.decoder_(?:layers|encoder\.layer)\.(\d+)\."  # the second is what transformers 5 saves
_HUGGINGFACE = (
    (r"^decoder\.mask_token$", _DECODER + "mask_token"),
    (r"^decoder\.decoder_(embed|norm|pred)\.", _DECODER + r"\1."),
    (_LAYER + r"layernorm_before\.", _DECODER + r"blocks.\1.norm1."),
    (_LAYER + r"attention\.attention\.", _DECODER + r"blocks.\1.attn."),
    (_LAYER + r"attention\.output\.dense\.", _DECODER + r"blocks.\1.attn.proj."),
    (_LAYER + r"layernorm_after\.", _DECODER + r"blocks.\1.norm2."),
    (_LAYER + r"intermediate\.dense\.", _DECODER + r"blocks.\1.mlp.fc1."),
    (_LAYER + r"output\.dense\.", _DECODER + r"blocks.\1.mlp.fc2."),
)
_AUTHORS = (
    (r"^mask_token$", _DECODER + "mask_token"),
    (r"^decoder_(embed|norm|pred|blocks)\.", _DECODER + r"\1."),
)
_FIXED = ("decoder_pos_embed",)  # the table of positions that other projects store


def _rename_decoder(to_ours: KeyMap | None, rules: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the decoder by ``rules`` and the encoder by its own map."""
    state = rename({name: value for name, value in state.items() if not name.endswith(_FIXED)}, rules)
    return dict(state) if to_ours is None else to_ours(state)


class Decoder(nn.Layer):
    """A transformer on encoded patches and, in the places of the others, copies of one learned token.

    Args:
        in_dim: width of encoded tokens.
        width, depth, num_heads: of the decoder's blocks.
        grid: patches down and across.
        prefix: tokens in front of the patches, which have no position.
        pixels: numbers that are predicted for each patch.
        norm_epsilon: of its norms.
        mlp_ratio: hidden width of an MLP divided by the width.
    """

    def __init__(
        self,
        in_dim: int,
        width: int,
        depth: int,
        num_heads: int,
        grid: tuple[int, int],
        prefix: int,
        pixels: int,
        norm_epsilon: float,
        mlp_ratio: float,
    ):
        super().__init__()
        self.width, self.grid, self.prefix = width, grid, prefix
        config = ViTConfig(
            embed_dim=width,
            num_heads=num_heads,
            attn_head_size=head_dim("width of the decoder", width, num_heads),
            mlp_ratio=mlp_ratio,
            norm_epsilon=norm_epsilon,
        )
        self.embed = linear(in_dim, width)
        self.mask_token = self.create_parameter([1, 1, width], default_initializer=TruncatedNormal())
        self.is_plain = not config.is_extended  # ViT's own block is compiled on CPUs
        kind: type[ViTBlock | ConfigurableBlock] = ViTBlock if self.is_plain else ConfigurableBlock
        self.blocks = nn.LayerList([kind(config, 0.0) for _ in range(depth)])
        self.norm = LayerNorm(width, epsilon=norm_epsilon)
        self.pred = linear(width, pixels)

    def forward(self, latent, restore):
        """Predict the pixels of all patches, (batch, patches, pixels).

        Args:
            latent: encoded tokens, (batch, prefix + kept patches, in_dim), patches in the drawn order.
            restore: place of each patch in the drawn order, int64 (batch, patches).
        """
        x = self.embed(latent)  # (batch, prefix + kept, width)
        batch, missing = x.shape[0], restore.shape[1] - (x.shape[1] - self.prefix)
        masked = self.mask_token.astype(x.dtype).expand([batch, missing, -1])
        patches = gather_tokens(
            paddle.concat([x[:, self.prefix :], masked], axis=1), restore
        )  # (batch, patches, width)
        positions = constant(sine_cosine_table, self.width, *self.grid, 0).astype(patches.dtype)
        x = paddle.concat([x[:, : self.prefix], patches + positions], axis=1)
        for block in self.blocks:
            x = block(x) if self.is_plain else block(x, TokenGrid(self.grid, self.prefix))
        return self.pred(self.norm(x[:, self.prefix :]))


class MaskedAutoencoder(Model):
    """An encoder with a decoder for its training.

    Of images alone it computes the features that a classifier would read.

    Args:
        encoder: a ViT without a classifier; its position embedding becomes the fixed table.
        mask_share: share of the patches that the encoder does not see.
        width, depth, num_heads: of the decoder.
        norm_epsilon, mlp_ratio: of the decoder's norms and MLPs.

    Raises:
        UserError: the encoder's positions are not added to its tokens, it pools by attention, or sizes do not fit.
    """

    classifier_layers = ("pretraining_decoder",)

    def __init__(
        self,
        encoder: VisionTransformer,
        mask_share: float,
        width: int,
        depth: int,
        num_heads: int,
        norm_epsilon: float = 1e-6,
        mlp_ratio: float = 4.0,
    ):
        super().__init__()
        _require_maskable(encoder, width)
        self.layer_names, self.num_classes = encoder.layer_names, 0
        self.image_size, self.in_channels, self.embed_dim = encoder.image_size, encoder.in_channels, encoder.embed_dim
        self.grid, self.patch_size = encoder.patch_embed.grid, encoder.patch_embed.patch_size
        self.num_patches, self.kept = encoder.num_patches, count_kept(encoder.num_patches, mask_share)
        if not 0 < self.kept < self.num_patches:
            raise UserError(
                f"of {self.num_patches} patches {self.kept} would be kept (mask share {mask_share:g}): at least one "
                "has to be kept, and one masked"
            )
        # The encoder is not registered as a sublayer: its parameters have the names that other tasks know.
        self.__dict__["encoder"] = encoder
        for name, parameter in encoder._parameters.items():
            self.add_parameter(name, parameter)
        for name, layer in encoder.named_children():
            self.add_sublayer(name, layer)
        pixels = self.patch_size**2 * self.in_channels
        self.pretraining_decoder = Decoder(
            encoder.embed_dim,
            width,
            depth,
            num_heads,
            self.grid,
            encoder.num_prefix_tokens,
            pixels,
            norm_epsilon,
            mlp_ratio,
        )
        plain = encoder.key_maps
        self.key_maps = {
            **plain,
            "Hugging Face": partial(_rename_decoder, plain["Hugging Face"], _HUGGINGFACE),
            "the authors'": partial(_rename_decoder, None, _AUTHORS),
        }
        self._set_first_weights()

    def _set_first_weights(self) -> None:
        """Draw the weights as the authors do, uniformly by Glorot's rule, and fix the positions."""
        draw = nn.initializer.XavierUniform()
        for layer in self.sublayers():
            if isinstance(layer, Linear):
                draw(layer.weight)
        patches = self.encoder.patch_embed.proj.weight  # (embed_dim, channels, side, side), drawn as a matrix
        limit = float(np.sqrt(6.0 / (patches.shape[0] + np.prod(patches.shape[1:]))))
        nn.initializer.Uniform(-limit, limit)(patches)
        table = self.encoder.pos_embed
        rows = table.shape[1] - self.num_patches
        with paddle.no_grad():
            table.set_value(sine_cosine_table(self.embed_dim, *self.grid, rows)[None].astype(table.numpy().dtype))
        table.stop_gradient = True

    def forward(self, images, order=None, restore=None):
        """Predict the pixels of all patches, (batch, patches, pixels); without an order compute features.

        Args:
            images: normalized, (batch, channels, height, width); with an order also the result of ``cut_patches``.
            order: all patches, the kept ones first, int64 (batch, patches); None: the features (batch, embed_dim) of
                whole images are computed.
            restore: place of each patch in that order, int64 (batch, patches).
        """
        if order is None:
            return self.encoder(images)
        return self.pretraining_decoder(self.encode(images, order), restore)

    def encode(self, images, order):
        """Encode the kept patches, (batch, prefix + kept, embed_dim), in the drawn order, normalized."""
        encoder, kept = self.encoder, order[:, : self.kept]
        patches = images if images.ndim == 3 else cut_patches(images, self.patch_size)
        proj = encoder.patch_embed.proj
        weight = proj.weight.transpose([2, 3, 1, 0]).reshape([-1, self.embed_dim])  # (pixels, embed_dim)
        x = autocast.linear(gather_tokens(patches, kept), weight, proj.bias)
        prefix = encoder.pos_embed.shape[1] - self.num_patches  # rows of the table that are not a patch's
        places = paddle.gather(encoder.pos_embed[0], kept.flatten() + prefix).reshape([-1, self.kept, self.embed_dim])
        x = x + places
        tokens = [token.expand([x.shape[0], -1, -1]) for token in encoder.prefix_tokens()]
        if prefix:  # each token in front of the patches has its row
            front = paddle.concat(tokens, axis=1) if len(tokens) > 1 else tokens[0]
            tokens = [front + encoder.pos_embed[:, :prefix]]
        x = paddle.concat([*(token.astype(x.dtype) for token in tokens), x], axis=1) if tokens else x
        x = encoder.pass_blocks(encoder.norm_pre(encoder.pos_drop(x)), self.grid)
        return encoder.fc_norm(encoder.norm(x))  # a model has one of both

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of the encoder's parameters that are not decayed, and the decoder's token."""
        return (*self.encoder.no_weight_decay(), f"{_DECODER}mask_token")

    def resample_parameter(self, name: str, value: np.ndarray, trained_size: Any) -> np.ndarray | None:
        """Resize a parameter of the encoder for another size of images."""
        return self.encoder.resample_parameter(name, value, trained_size)

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return the encoder's lines about resized parameters."""
        return self.encoder.list_resize_notices(names)


def _require_maskable(encoder: Any, width: int) -> None:
    """Refuse by a ``UserError`` networks that need all patches, and widths without a table of positions."""
    if not isinstance(encoder, VisionTransformer):
        raise UserError(
            f"{type(encoder).__name__} cannot leave out patches: a masked autoencoder needs a ViT, such as "
            "vit_base_patch16_224, deit_small_patch16_224 or dinov2's sizes"
        )
    reason = ""
    if encoder.positions is None or getattr(encoder.blocks[0].attn, "rotary", None) is not None:
        reason = "its positions are not added to the tokens"
    elif encoder.config.pool == "attention":
        reason = "it pools by attention, which would not be trained"
    if reason:
        raise UserError(
            f"this ViT cannot be trained as a masked autoencoder: {reason}; take one such as vit_base_patch16_224"
        )
    for name, channels in (("MODEL.EMBED_DIM", encoder.embed_dim), ("MASKED_AUTOENCODER.DECODER_WIDTH", width)):
        if channels % 4:
            raise UserError(f"{name} {channels}: a table of sine and cosine positions needs a multiple of 4")
