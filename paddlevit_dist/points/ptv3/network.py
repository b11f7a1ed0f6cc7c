"""Point Transformer V3, and the encoders of Sonata, Concerto and Utonia.

Parameter names are Pointcept's, apart from convolutions.

Sources: X. Wu et al., "Point Transformer V3: Simpler, Faster, Stronger", CVPR 2024, arXiv 2312.10035, and "Sonata:
Self-Supervised Learning of Reliable Point Representations", CVPR 2025, arXiv 2503.16429; Y. Zhang et al., "Concerto:
Joint 2D-3D Self-Supervised Learning Emerges Spatial Representations", NeurIPS 2025, arXiv 2510.23607; Utonia: arXiv
2603.03283.
"""

import functools
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
import paddle
from paddle import nn

from ...core.runtime.errors import UserError
from ...core.runtime.layers import GELU, LayerNorm, Linear
from ...core.tasks.model import Variants
from ..sparse.coordinate_plan import PlanSpec
from ..sparse.layers import Convolution, SparseNetwork
from ..sparse.tensor import SparseTensor, concat_channels, empty_rows
from .blocks import (
    BlockOptions,
    CellPooling,
    CellUnpooling,
    ConditionalNorm,
    NormBuilder,
    SerializedBlock,
    SerializedLevel,
    batch_norm,
    mean_positions,
    unpool,
)
from .serialization import ORDERS
from .tables import CellTable, PatchTable
from .weights import LEGACY_NOTICE, LICENSE_NOTICE, from_pointcept

_SONATA: dict[str, Any] = {"family": "sonata", "in_channels": 9, "encoder_depths": (3, 3, 3, 12, 3)}
_BASE = {"encoder_channels": (48, 96, 192, 384, 512), "encoder_heads": (3, 6, 12, 24, 32)}
_LARGE = {"encoder_channels": (64, 128, 256, 512, 768), "encoder_heads": (4, 8, 16, 32, 48)}
_DECODER = {
    "decoder_depths": (2, 2, 2, 2),
    "decoder_channels": (64, 96, 192, 384),
    "decoder_heads": (4, 6, 12, 24),
}
_NO_DECODER: dict[str, Any] = {"decoder_depths": (), "decoder_channels": (), "decoder_heads": ()}
_UTONIA = {
    "family": "utonia",
    "encoder_channels": (54, 108, 216, 432, 576),
    "encoder_heads": (3, 6, 12, 24, 32),
}
VARIANTS: Variants = {
    "ptv3": {},
    "ptv3_legacy": {"is_legacy": True},  # of Pointcept until version 1.5.1
    "sonata_decoder": {**_SONATA, **_BASE, **_DECODER},
    "sonata": {**_SONATA, **_BASE, **_NO_DECODER},
    "concerto_small": {"family": "sonata", "in_channels": 9, **_NO_DECODER},
    "concerto_large": {**_SONATA, **_LARGE, **_NO_DECODER},
    "utonia": {**_SONATA, **_UTONIA, **_NO_DECODER},
}


class PointEmbedding(nn.Layer):
    """The features of the finest level: a convolution or a linear layer, norm and GELU.

    With ``has_mask_token`` there is a learned vector for hidden points, which pretraining needs.
    """

    def __init__(
        self, in_channels: int, channels: int, norm: NormBuilder, is_linear: bool, has_mask_token: bool
    ) -> None:
        super().__init__()
        layer = Linear(in_channels, channels) if is_linear else Convolution(in_channels, channels, 5)
        self.stem = nn.Sequential(("linear" if is_linear else "conv", layer), ("norm", norm(channels)), ("act", GELU()))
        if has_mask_token:
            self.mask_token = self.create_parameter(
                [1, channels], default_initializer=nn.initializer.TruncatedNormal(std=0.02)
            )

    def forward(self, x: SparseTensor, is_hidden: paddle.Tensor | None = None) -> paddle.Tensor:
        """Return (N, channels); the points ``is_hidden``, bool (N,), have the mask token."""
        layer, *rest = self.stem
        features = layer(x).features if isinstance(layer, Convolution) else layer(x.features)
        for each in rest:
            features = each(features)
        if is_hidden is None:
            return features
        return paddle.where(is_hidden.unsqueeze(1), self.mask_token.astype(features.dtype), features)


class LevelSizes(NamedTuple):
    """Blocks, channels and heads of an encoder's or a decoder's levels, from fine to coarse."""

    depths: tuple[int, ...]
    channels: tuple[int, ...]
    heads: tuple[int, ...]


class PointTransformer(SparseNetwork):
    """U-Net, or encoder alone, of attention among voxels sorted along curves.

    Args:
        num_classes: outputs of the linear head; 0: features.
        in_channels: channels of the input.
        family: "ptv3": convolution at the input, batch norms between levels, and a decoder's first convolution reads
            the finer level's features alone, as in the published program; "sonata": linear layer at the input, layer
            norms, cells of each level sorted anew (Concerto's, too); "utonia": that, and attention with rotary
            positions, from the first three features: xyz in meters.
        strides: of each coarser level, by the level before.
        encoder_depths, encoder_channels, encoder_heads: blocks, channels and heads of each level.
        decoder_depths, decoder_channels, decoder_heads: of all levels but the coarsest, from fine to coarse; empty:
            there is no decoder, and the features of all levels are joined.
        patch_size: voxels of a patch, one number or one for each level.
        orders: curves, by which blocks take turns.
        shuffle_orders: take turns in another, random sequence on each level in each training step.
        drop_path: share of points that lose a branch in the last block, in training; it rises linearly from 0 over the
            encoder's blocks, and falls over the decoder's.
        mlp_ratio, qkv_bias, pre_norm, layer_scale, enable_rpe: of the blocks.
        conditions, condition: names of data sets that have norms of their own, and the one of this run (PDNorm).
        mask_token: have the vector of hidden points.
        is_legacy: compute as Pointcept until version 1.5.1: a block's convolution reads the last branch of the block
            before. Published weights of Point Transformer V3 need it; names and shapes do not show it.
        by_scene: see ``find_depths``; ``cut_to_smallest``: see ``PatchTable``.
    """

    variants = VARIANTS
    classifier_layers = ("seg_head",)
    layer_names = r"(?:enc\.enc|dec\.dec)\d+\.block\d+"
    key_maps = {"Pointcept": from_pointcept}
    telling_name = "enc.enc#.block#.attn.qkv.weight"

    def __init__(
        self,
        num_classes: int = 20,
        in_channels: int = 6,
        family: Literal["ptv3", "sonata", "utonia"] = "ptv3",
        strides: Sequence[int] = (2, 2, 2, 2),
        encoder_depths: Sequence[int] = (2, 2, 2, 6, 2),
        encoder_channels: Sequence[int] = (32, 64, 128, 256, 512),
        encoder_heads: Sequence[int] = (2, 4, 8, 16, 32),
        decoder_depths: Sequence[int] = (2, 2, 2, 2),
        decoder_channels: Sequence[int] = (64, 64, 128, 256),
        decoder_heads: Sequence[int] = (4, 4, 8, 16),
        patch_size: int | Sequence[int] = 1024,
        orders: Sequence[str] = ORDERS,
        shuffle_orders: bool = True,
        drop_path: float = 0.3,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        pre_norm: bool = True,
        layer_scale: float | None = None,
        enable_rpe: bool = False,
        conditions: Sequence[str] = (),
        condition: str | None = None,
        mask_token: bool = False,
        is_legacy: bool = False,
        by_scene: bool = True,
        cut_to_smallest: bool = False,
    ) -> None:
        super().__init__(in_channels, 3)
        encoder = LevelSizes(*map(tuple, (encoder_depths, encoder_channels, encoder_heads)))
        decoder = LevelSizes(*map(tuple, (decoder_depths, decoder_channels, decoder_heads)))
        _require_fitting(encoder, decoder, strides, family, orders)
        self.family, self.is_legacy, self.shuffle_orders = family, is_legacy, shuffle_orders
        self.has_grid, self.has_decoder = enable_rpe, len(decoder.depths) > 0
        is_fresh, steps = family != "ptv3", np.cumprod([1, *strides]).tolist()
        patch_sizes = [patch_size] * len(steps) if isinstance(patch_size, int) else list(patch_size)
        rules = is_fresh, is_legacy, by_scene, cut_to_smallest
        self.cells = [CellTable(both) for both in zip(steps[:-1], steps[1:])]
        self.tables = [
            [PatchTable((step,), order, size, *rules) for order in orders]
            for step, size in zip(steps, patch_sizes, strict=True)
        ]
        # The blocks of a level use no more orders than these.
        self._turns = [max(depths) for depths in zip_longest(encoder.depths, decoder.depths, fillvalue=1)]
        norms: list[NormBuilder] = [LayerNorm if is_fresh else batch_norm, LayerNorm]
        if conditions:
            if condition not in conditions:
                raise UserError(f"condition is {condition}: expected one of the conditions, {', '.join(conditions)}")
            chosen = conditions.index(condition)
            norms = [functools.partial(ConditionalNorm, norm, number=len(conditions), chosen=chosen) for norm in norms]
        options = BlockOptions(norms[1], mlp_ratio, qkv_bias, pre_norm, layer_scale, enable_rpe, family == "utonia")
        self.embedding = PointEmbedding(in_channels, encoder.channels[0], norms[0], is_fresh, mask_token)
        self._build_stages(encoder, decoder, patch_sizes, drop_path, norms[0], options)
        self.num_features = decoder.channels[0] if self.has_decoder else sum(encoder.channels)
        self.reset_classifier(num_classes)

    def _build_stages(
        self,
        encoder: LevelSizes,
        decoder: LevelSizes,
        patch_sizes: Sequence[int],
        drop_path: float,
        norm: NormBuilder,
        options: BlockOptions,
    ) -> None:
        def add_blocks(stage: nn.Layer, sizes: LevelSizes, level: int, rates: Sequence[float]) -> nn.Layer:
            for number, rate in enumerate(rates):
                width, heads = sizes.channels[level], sizes.heads[level]
                block = SerializedBlock(width, heads, patch_sizes[level], rate, options)
                stage.add_sublayer(f"block{number}", block)
            return stage

        self.enc = nn.Layer()
        for level, rates in enumerate(split_rates(drop_path, encoder.depths)):
            stage = nn.Layer()
            if level:
                stage.down = CellPooling(encoder.channels[level - 1], encoder.channels[level], norm)
            self.enc.add_sublayer(f"enc{level}", add_blocks(stage, encoder, level, rates))
        if not self.has_decoder:
            return
        self.dec = nn.Layer()
        widths = [*decoder.channels, encoder.channels[-1]]
        for level, rates in reversed(list(enumerate(split_rates(drop_path, decoder.depths)))):
            stage = nn.Layer()
            stage.up = CellUnpooling(widths[level + 1], encoder.channels[level], widths[level], norm)
            self.dec.add_sublayer(f"dec{level}", add_blocks(stage, decoder, level, rates[::-1]))

    def plan_spec(self) -> PlanSpec:
        """Return the ``PlanSpec`` for ``build_plan`` in the loader process; scenes begin at 0 there."""
        spec = super().plan_spec()
        shuffled = [table for tables in self.tables for table in tables] if self.shuffle_orders else []
        return spec._replace(tables=tuple(dict.fromkeys([*spec.tables, *shuffled])), from_zero=True)

    def draw_orders(self, seed: Sequence[int] | None = None) -> list[list[int]]:
        """Return for each level the numbers of ``orders`` by which its blocks take turns, random in training."""
        numbers = range(len(self.tables[0]))
        if not (self.shuffle_orders and self.training):
            return [list(numbers)] * len(self.tables)
        # The host's generator of random numbers: reading the device's would wait for it.
        random = np.random.default_rng(seed or paddle.framework.core.default_cpu_generator().random())
        return [random.permutation(len(numbers)).tolist() for _ in self.tables]

    def forward_levels(
        self, x: SparseTensor, positions: paddle.Tensor | None = None, is_hidden: paddle.Tensor | None = None
    ) -> dict[str, paddle.Tensor]:
        """Return the features of each stage by its name, such as "enc0", then of the whole network, "features".

        ``positions`` (N, 3) replace the first three features for rotary positions; ``is_hidden`` is bool (N,).
        """
        plan, orders = x.plan, self.draw_orders(x.plan.seed)
        if self.family == "utonia" and positions is None:
            positions = x.features[:, :3]
        found = {"embedding": self.embedding(x, is_hidden)}
        features, levels, skipped = found["embedding"], [], []
        for number, tables in enumerate(self.tables):
            stage = getattr(self.enc, f"enc{number}")
            if number:
                cells = self.cells[number - 1]
                positions = None if positions is None else mean_positions(positions, plan, cells)
                features = stage.down(features, plan, cells)
            turns = [tables[order] for order in orders[number][: self._turns[number]]]
            levels.append(SerializedLevel(plan, turns, self.has_grid, positions))
            features = found[f"enc{number}"] = self._run_blocks(stage, features, features, levels[-1])
            skipped.append(features)
        for number in reversed(range(len(self.cells))):
            cells, finer = self.cells[number], skipped[number]
            if not self.has_decoder:
                features = concat_channels(finer, unpool(features, plan, cells))
                continue
            stage = getattr(self.dec, f"dec{number}")
            features, projected = stage.up(features, finer, plan, cells)
            seen = projected if self.family == "ptv3" else features
            features = found[f"dec{number}"] = self._run_blocks(stage, features, seen, levels[number])
        return {**found, "features": features}

    def _run_blocks(
        self, stage: nn.Layer, features: paddle.Tensor, seen: paddle.Tensor, level: SerializedLevel
    ) -> paddle.Tensor:
        blocks = [block for block in stage.sublayers(include_self=False) if isinstance(block, SerializedBlock)]
        for number, block in enumerate(blocks):
            features, branch = block(features, seen, level, number)
            seen = branch if self.is_legacy else features
        return features

    def forward_features(self, x: SparseTensor) -> SparseTensor:
        """Return features (N, num_features) on the voxels of ``x``, which is (N, in_channels) at stride 1."""
        if not x.features.shape[0]:
            return x.with_features(empty_rows(*self.parameters(), x.features, channels=self.num_features))
        return x.with_features(self.forward_levels(x)["features"])

    def forward(self, x: SparseTensor) -> paddle.Tensor:
        """Return logits (N, num_classes) of the voxels, in their order; features if the network has no classes."""
        features = self.forward_features(x).features
        if not features.shape[0]:
            return empty_rows(*self.seg_head.parameters(), features, channels=self.num_classes or self.num_features)
        return self.seg_head(features)

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the linear head by a new one with ``num_classes`` outputs; 0 removes it."""
        self.num_classes = num_classes
        self.seg_head = Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def list_source_notices(self, naming: str, state: Mapping[str, Any]) -> list[str]:
        """Return a line about weights of Pointcept: which version they are of does not show."""
        is_ambiguous = naming == "Pointcept" and self.family == "ptv3"
        return [LEGACY_NOTICE.format("until" if self.is_legacy else "after")] if is_ambiguous else []

    def list_license_notices(self, naming: str) -> list[str]:
        """Return a line about the published encoders."""
        return [LICENSE_NOTICE] if naming == "Pointcept" and self.family != "ptv3" else []


def split_rates(last_rate: float, depths: Sequence[int]) -> list[list[float]]:
    """Return the drop rates of all stages' blocks, evenly spaced from 0 to ``last_rate``."""
    rates = iter(np.linspace(0.0, last_rate, sum(depths)).tolist())
    return [[next(rates) for _ in range(depth)] for depth in depths]


def _require_fitting(
    encoder: LevelSizes, decoder: LevelSizes, strides: Sequence[int], family: str, orders: Sequence[str]
) -> None:
    """Raise UserError if sizes or names do not fit together."""
    levels = len(encoder.depths)
    has_odd_steps = family == "ptv3" and any(stride & (stride - 1) for stride in strides)
    problems = {
        f"family is '{family}': expected ptv3, sonata or utonia": family not in ("ptv3", "sonata", "utonia"),
        f"orders is {list(orders)}: expected some of {', '.join(ORDERS)}": not {*orders} or not {*orders} <= {*ORDERS},
        f"strides is {list(strides)}: expected powers of 2 for the family ptv3": has_odd_steps,
        f"strides is {list(strides)}: expected {levels - 1} for {levels} encoder_depths": len(strides) != levels - 1,
        f"the encoder's depths, channels and heads are {encoder}: expected {levels} each": len({*map(len, encoder)})
        > 1,
        f"the decoder's depths, channels and heads are {decoder}: expected {levels - 1} or no numbers each": (
            {*map(len, decoder)} not in ({levels - 1}, {0})
        ),
    }
    for width, heads in zip(encoder.channels + decoder.channels, encoder.heads + decoder.heads):
        is_odd = bool(width % heads) or (family == "utonia" and width // heads % 6 > 0)
        kind = " of a multiple of 6 channels, for rotary positions" if family == "utonia" else ""
        problems[f"{width} channels cannot be divided by {heads} heads{kind}: change one"] = is_odd
    for problem, is_there in problems.items():
        if is_there:
            raise UserError(problem)
