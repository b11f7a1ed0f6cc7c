"""EoMT: a plain Vision Transformer whose last blocks also see queries; each query gets a class and a mask.

Source: Kerssies et al., Your ViT is Secretly an Image Segmentation Model, CVPR 2025, arXiv 2503.19108, sections 3.2 and
3.3, with the code of tue-mps/eomt.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn

from ...core.registry.lookup import resolve
from ...core.runtime import autocast
from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from ...core.runtime.transfers import constant
from ...core.tasks.model import ClassLayout, Model, group_by_layers
from ...core.tasks.model_factory import create_model, variant_options
from ..image_size import as_pair
from ..models.key_names import BACKBONE
from ..models.layers import (
    GELU,
    ChannelsLastDepthwiseConv,
    LayerNorm,
    MatrixProduct,
    dense,
    normal,
    single_or_double,
    uniform,
)
from ..models.rotary import AXIAL
from ..models.segmenter import drop_layers
from ..models.vit import VisionTransformer
from ..models.vit_blocks import TokenGrid
from . import key_names
from .annealing import Annealing, list_annealing
from .mask_logits import resize

_EPSILON = 1e-6
_HIDDEN = -3e4  # added to an attention weight that is not to count; half precision has it, and its exponential is 0
_GOLDEN_RATIO = 0.6180339887498949
_LEAST_NORM = 0.1  # mean size of the weights of a trained network's norms
_LEAST_CELLS = 2  # a mask's side has a quarter of the pixels, or a little less


class Prediction(NamedTuple):
    """Classes and masks of N images and Q queries after a block."""

    classes: paddle.Tensor  # (N, Q, classes + 1), logits, no object last
    masks: paddle.Tensor  # (N, Q, height, width), logits, float32 or float64, of images padded to whole patches


class DoublingConvolution(nn.Layer):
    """A transposed convolution of 2 x 2 with stride 2 of (N, height, width, channels), as one product."""

    def __init__(self, dim: int):
        super().__init__()
        bound = uniform((4 * dim) ** -0.5)  # PyTorch's default
        self.weight = self.create_parameter([dim, dim, 2, 2], attr=bound)
        self.bias = self.create_parameter([dim], attr=bound, is_bias=True)
        self.product = MatrixProduct()

    def forward(self, x):
        """Compute (N, 2 height, 2 width, channels)."""
        _, rows, columns, dim = x.shape
        weight = self.weight.transpose([0, 2, 3, 1]).reshape([dim, 4 * dim])
        x = self.product(x, weight).reshape([-1, rows, columns, 2, 2, dim])
        x = x.transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 2 * rows, 2 * columns, dim])
        return autocast.add_bias(x, self.bias)


class UpscaleBlock(nn.Layer):
    """Doubles the sides of a map: a transposed convolution, a GELU, a depthwise convolution and a norm."""

    def __init__(self, dim: int):
        super().__init__()
        self.conv1 = DoublingConvolution(dim)
        self.act = GELU()
        self.conv2 = ChannelsLastDepthwiseConv(dim, 3, weight_attr=uniform(1 / 3), bias_attr=False)
        self.norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x):
        """Compute (N, 2 height, 2 width, channels) of (N, height, width, channels)."""
        return self.norm(self.conv2(self.act(self.conv1(x))))


class QueryMaskHead(nn.Layer):
    """Makes the vectors of queries whose products with a map's cells are the masks' logits."""

    def __init__(self, dim: int):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (dense(dim, dim) for _ in range(3))
        self.act = GELU()

    def forward(self, queries):
        """Compute (N, Q, channels) of that shape."""
        return self.fc3(self.act(self.fc2(self.act(self.fc1(queries)))))


class QueryTable(nn.Layer):
    """The learned queries."""

    def __init__(self, number: int, dim: int):
        super().__init__()
        self.weight = self.create_parameter([number, dim], attr=normal(1.0))


class Eomt(Model):
    """A plain Vision Transformer with queries in its last blocks.

    While it trains, there is a prediction before each of these blocks, too, and the masks of the prediction before a
    block say which patches each query sees there. That a mask is used at all becomes less likely in the course of the
    training, so that an evaluation needs the last prediction alone.

    Args:
        num_classes: without "no object".
        image_size: height and width in pixels of the images it is built for; positions are resampled for others.
        backbone, backbone_options: name of a plain Vision Transformer, and its options.
        num_queries: largest number of objects in an image.
        num_blocks: blocks that see the queries.
        annealing: when masks stop being used, see ``list_annealing``.
        decay_last_blocks: TRAIN.LAYER_DECAY also lowers the learning rates of these blocks.
        loss_points: where the masks of a pair are compared.
        random_samples: whether masks that are used, points of losses and scales of rotary positions are drawn.
        drop_path: rate of stochastic depth in the backbone's last block.
    """

    least_values = {"num_queries": 1, "num_blocks": 1, "loss_points": 4}
    classifier_layers = ("class_head",)
    key_maps = key_names.EOMT
    telling_name = "query.weight"

    def __init__(
        self,
        num_classes: int = 133,
        image_size: int | tuple[int, int] = 640,
        backbone: str = "vit_large_patch14_reg4_dinov2",
        backbone_options: Mapping[str, Any] | None = None,
        num_queries: int = 200,
        num_blocks: int = 4,
        annealing: Annealing | None = None,
        decay_last_blocks: bool = True,
        loss_points: int = 12544,
        random_samples: bool = True,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.num_queries, self.num_blocks, self.random_samples = num_queries, num_blocks, random_samples
        self.decay_last_blocks, self.loss_points = decay_last_blocks, loss_points
        self.backbone = _build_backbone(backbone, image_size, backbone_options or {}, drop_path)
        self.image_size, self.in_channels = self.backbone.image_size, self.backbone.in_channels
        depth, dim = len(self.backbone.blocks), self.backbone.embed_dim
        if num_blocks > depth:
            raise UserError(f"option num_blocks {num_blocks}: {backbone} has {depth} blocks: use fewer")
        self.annealing = list_annealing(annealing, num_blocks)
        self.query = QueryTable(num_queries, dim)
        patch = self.backbone.patch_embed.patch_size
        self.upscale = nn.LayerList([UpscaleBlock(dim) for _ in range(max(1, int(math.log2(patch)) - _LEAST_CELLS))])
        self.mask_head = QueryMaskHead(dim)
        self.cell_product = MatrixProduct(transpose_y=True)
        self.reset_classifier(num_classes)

    @property
    def pretrained_part(self) -> Model:
        """The model that is initialized with a classifier's weights."""
        return self.backbone

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the classifier by a new one."""
        self.num_classes = num_classes
        self.class_head = dense(self.backbone.embed_dim, num_classes + 1)

    def class_layout(self, name: str) -> ClassLayout:
        """Return how the classifier's outputs are ordered: no object is last."""
        return ClassLayout(after=1)

    def outputs_to_classes(self, outputs: int) -> int:
        """Return the number of classes of a classifier with these outputs; one is for no object."""
        return outputs - 1

    @classmethod
    def criterion_options(cls, name: str, **options: Any) -> dict[str, Any]:
        """Return the sizes that the criterion of ``build(name, ..., **options)`` needs."""
        chosen = {**cls.options(), **cls.variants.get(name, {}), **options}
        return {
            "queries": chosen["num_queries"],
            "predictions": chosen["num_blocks"] + 1,
            "random_samples": chosen["random_samples"],
            "points": chosen["loss_points"],
        }

    def predict(self, images) -> Prediction:
        """Compute the last prediction alone, of images (N, 3, H, W), without masks in the attention."""
        grid, x = self.backbone.find_grid(images), self.backbone.embedded(images)
        x = self._pass_first(x, grid)
        for block in self.backbone.blocks[-self.num_blocks :]:
            x = self.backbone.pass_more_tokens(block, x, self._place(grid))
        return self._read(x, grid)

    def predict_all(self, images, probabilities: Sequence[float]) -> list[Prediction]:
        """Compute the predictions before each block that sees the queries, and after the last.

        Args:
            images: (N, 3, H, W), normalized.
            probabilities: that a query sees only its mask, for each of these blocks.
        """
        scale = self._draw_scale()
        grid, x = self.backbone.find_grid(images), self.backbone.embedded(images)
        x = self._pass_first(x, grid, scale)
        predictions = []
        for block, probability in zip(self.backbone.blocks[-self.num_blocks :], probabilities):
            predictions.append(self._read(x, grid))
            mask = self._hide(self.choose_patches(predictions[-1].masks, grid, probability))
            x = self.backbone.pass_more_tokens(block, x, self._place(grid, mask, scale))
        return [*predictions, self._read(x, grid)]

    def training_outputs(self, images, update: int, total_updates: int | None = None) -> dict[str, paddle.Tensor]:
        """Compute what the criterion reads: ``classes_`` and ``masks_`` with the number of each prediction."""
        probabilities = [part.probability(update, total_updates) for part in self.annealing]
        outputs = {}
        for number, prediction in enumerate(self.predict_all(images, probabilities)):
            masks = self.crop_masks(prediction.masks, images)
            outputs.update({f"classes_{number}": prediction.classes, f"masks_{number}": masks})
        return outputs

    def list_course_notices(self, updates: int) -> list[str]:
        """Return a line if the training ends while a block's queries still see their masks only."""
        end = max(0 if part.is_share else part.end for part in self.annealing)
        if end <= updates:
            return []
        return [
            f"note: MODEL.OPTIONS.annealing ends at update {end:,.0f}, after this run's {updates:,}: queries are still "
            "limited to their masks at its end, but never in an evaluation, whose score will be too low: set it in "
            "shares of the training, such as [0.2, 0.4] for a block, or MODEL.OPTIONS.annealing None for the default"
        ]

    def crop_masks(self, masks: paddle.Tensor, images) -> paddle.Tensor:
        """Return masks of the images alone, in the same number of cells, of ``masks`` of the padded ones."""
        sides = zip(images.shape[2:], self.backbone.padded_size(images))
        height, width = (side / padded for side, padded in sides)
        if height == width == 1:
            return masks
        with autocast.off():
            return resize(masks, tuple(masks.shape[2:]), (height, width))

    def _pass_first(self, x, grid: tuple[int, int], scale=None):
        """Pass tokens through the blocks without queries, and put the queries in front."""
        tokens = TokenGrid(grid, self.backbone.num_prefix_tokens, None, scale)
        for block in self.backbone.blocks[: -self.num_blocks]:
            x = self.backbone.pass_more_tokens(block, x, tokens)
        queries = self.query.weight.astype(x.dtype).unsqueeze(0).expand([x.shape[0], -1, -1])
        return paddle.concat([queries, x], axis=1)

    def _place(self, grid: tuple[int, int], mask=None, scale=None) -> TokenGrid:
        return TokenGrid(grid, self.num_queries + self.backbone.num_prefix_tokens, mask, scale)

    def _read(self, x, grid: tuple[int, int]) -> Prediction:
        """Return the prediction of tokens (N, Q + prefix + patches, channels)."""
        backbone = self.backbone
        x = (backbone.fc_norm if isinstance(backbone.norm, nn.Identity) else backbone.norm)(x)
        queries, cells = x[:, : self.num_queries], x[:, self.num_queries + backbone.num_prefix_tokens :]
        cells = cells.reshape([-1, *grid, backbone.embed_dim])
        for block in self.upscale:
            cells = block(cells)
        height, width = cells.shape[1:3]
        masks = self.cell_product(self.mask_head(queries), cells.flatten(1, 2))
        masks = single_or_double(masks).reshape([-1, self.num_queries, height, width])
        return Prediction(self.class_head(queries), masks)

    @paddle.no_grad()
    def choose_patches(self, masks: paddle.Tensor, grid: tuple[int, int], probability: float) -> paddle.Tensor:
        """Return which patches each query sees, bool (N, Q, patches)."""
        with autocast.off():
            shown = (resize(masks, grid) > 0).flatten(2)
        if probability < 1:
            shown = paddle.logical_or(shown, (self._draw_queries(masks) > probability).unsqueeze(2))
        return shown

    @paddle.no_grad()
    def _hide(self, shown: paddle.Tensor) -> paddle.Tensor:
        """Return what is added to the attention weights of the queries, (N, 1, Q, tokens)."""
        images, queries, _ = shown.shape
        places = paddle.where(shown, paddle.zeros([], "float32"), paddle.full([], _HIDDEN, "float32"))
        always = paddle.zeros([images, queries, queries + self.backbone.num_prefix_tokens], "float32")
        return paddle.concat([always, places], axis=2).unsqueeze(1)

    def _draw_queries(self, masks: paddle.Tensor) -> paddle.Tensor:
        images, queries = masks.shape[:2]
        if self.random_samples:
            return self.draw([images, queries]).astype(masks.dtype)
        return constant(_spread_numbers, queries).astype(masks.dtype).expand([images, -1])

    def _draw_scale(self) -> paddle.Tensor | None:
        """Draw the factor of rotary coordinates, from 1 / 2 to 2, as in DINOv3; None: not in this network."""
        turns = getattr(self.backbone.blocks[0].attn, "rotary", None) is not None
        if not (turns and self.training and self.random_samples):
            return None
        number = self.draw([1]).astype(self.query.weight.dtype)
        return paddle.exp(math.log(2.0) * (2 * number - 1))

    def draw(self, shape: Sequence[int]) -> paddle.Tensor:
        """Draw numbers between 0 and 1."""
        return paddle.rand(shape)

    def list_source_notices(self, naming: str, state: Mapping[str, np.ndarray]) -> list[str]:
        """Refuse, by a ``UserError``, weights that are differences to a backbone's, as the published ones of DINOv3."""
        norms = [value for name, value in state.items() if re.search(r"^backbone\.blocks\.\d+\.norm1\.weight$", name)]
        if norms and np.mean([np.abs(value).mean() for value in norms]) < _LEAST_NORM:
            raise UserError(
                "the backbone's weights are near 0: they seem to be differences to DINOv3's, as the authors publish "
                "them: add DINOv3's weights first, with 'convert FILE OUT -base=DINOV3_FILE'"
            )
        own = {name.removeprefix(BACKBONE): value for name, value in state.items() if name.startswith(BACKBONE)}
        notices = list(self.backbone.list_source_notices(naming, own))
        masked = np.atleast_1d(np.asarray(state.get(key_names.MASKED, 0.0)))
        if (masked > 0).any():
            notices.append(
                f"{key_names.MASKED} is {shorten(', '.join(f'{value:g}' for value in masked), 40)}: transformers "
                "limits queries to their masks also in an evaluation, this package never does: expect lower scores, or "
                "continue the training with -pretrained until the masks have ended (MODEL.OPTIONS.annealing)"
            )
        return notices

    def list_license_notices(self, naming: str) -> list[str]:
        """Return a line on the license of DINOv3's weights."""
        turns = getattr(self.backbone.blocks[0].attn, "rotary", None) == AXIAL
        return ["weights of DINOv3, and what is made of them, are under the DINOv3 License"] if turns else []

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of parameters that are not decayed: the backbone's, and the queries."""
        return *(BACKBONE + name for name in self.backbone.no_weight_decay()), "query.weight"

    def layer_groups(self) -> list[list[str]]:
        """Group the parameters: the embedding, each block, and all others."""
        return group_by_layers([name for name, _ in self.named_parameters()], r"backbone\.blocks\.\d+")

    def rate_groups(self) -> list[list[str]]:
        """Group the parameters for TRAIN.LAYER_DECAY: the embedding is of the first block, the heads of the last.

        Blocks that are not to be slower are in the last group; empty groups keep the places of the others.
        """
        embedding, *blocks, last = self.layer_groups()
        groups = [[*embedding, *blocks[0]], *blocks[1:]]
        fast = 1 if self.decay_last_blocks else min(self.num_blocks, len(groups))
        for number in range(len(groups) - fast, len(groups) - 1):
            last, groups[number] = [*groups[number], *last], []
        groups[-1] = [*groups[-1], *last]
        return groups

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the backbone's blocks."""
        return self.backbone.recomputed_layers()


def _build_backbone(
    name: str, image_size: int | tuple[int, int], options: Mapping[str, Any], drop_path: float
) -> VisionTransformer:
    family = resolve("model", name)
    if not (isinstance(family, type) and issubclass(family, VisionTransformer)):
        raise UserError(
            f"option backbone {name}: expected a plain Vision Transformer, such as vit_small_patch14_reg4_dinov2"
        )
    options = {**options, **({"drop_path": drop_path} if drop_path else {})}
    patch = {**variant_options(name), **options}.get("patch_size", 1)
    whole = tuple(-(-side // patch) * patch for side in as_pair(image_size))  # of whole patches
    backbone = create_model(name, num_classes=0, image_size=whole, **options)
    drop_layers(backbone, ("attn_pool",))
    return backbone


def _spread_numbers(queries: int) -> np.ndarray:
    """Return numbers spread over 0 to 1, float32 (1, queries), the same for each image."""
    return (np.arange(1, queries + 1) * _GOLDEN_RATIO % 1).astype(np.float32)[None]
