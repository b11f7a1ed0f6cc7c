"""Backbones of heatmap networks; that of ViTPose has padded patches, and the position of a token that it lacks.

Source: Xu et al., ViTPose: Simple Vision Transformer Baselines for Human Pose Estimation, arXiv 2204.12484, section
3.1.
"""

from collections.abc import Mapping
from typing import Any

from paddle.nn import functional as F

from ....core.registry.lookup import resolve
from ....core.tasks.model import Model
from ....core.tasks.model_factory import create_model, model_options, prepare
from ...models.segmenter import drop_layers
from ...models.vit import VisionTransformer

PADDING = 2  # pixels before the first patch
_BEHIND_THE_MAPS = ("head", "fc_norm", "attn_pool")  # layers of a classifier that no map depends on


class PoseTransformer(VisionTransformer):
    """A ViT without a class token whose patches begin two pixels before the image.

    Weights of a ViT with a class token fit: the authors add the token's position to that of every patch, so that
    pretrained position embeddings keep all of their rows.
    """

    def create_tokens(self) -> None:
        """Create no tokens in front of the patches."""

    @property
    def num_prefix_tokens(self) -> int:
        """Learned tokens in front of the patches: none."""
        return 0

    @property
    def _placed_tokens(self) -> int:
        """Rows of the position embedding that are not a patch's: that of the class token."""
        return 1

    def embedded(self, x):
        """Compute the patches (batch, patches, embed_dim) before the first block."""
        height, width = x.shape[2:]
        # Patch i begins at pixel size * i - 2, so the last two rows and columns are in no patch.
        x = F.pad(x[:, :, : height - PADDING, : width - PADDING], [PADDING, 0, PADDING, 0])
        positions = self.resample_positions(self.find_grid(x))
        return self.norm_pre(self.pos_drop(self.patch_embed(x) + positions[:, 1:] + positions[:, :1]))


def create_backbone(name: str, image_size: tuple[int, int], options: Mapping[str, Any]) -> Model:
    """Build the backbone ``name`` for images of a size, (height, width) in pixels.

    A plain ViT becomes a ``PoseTransformer``. Any other network is not changed; a ViT has one map, after the last
    block, normalized.

    Raises:
        UserError: the name or an option is not known, or the network has no feature maps.
    """
    about, family = model_options(name), resolve("model", name)
    defaults = {**about.defaults, **options}
    if not (isinstance(family, type) and issubclass(family, VisionTransformer)):
        sized = {"any_size": True} if "any_size" in defaults else {}
        backbone = create_model(name, num_classes=0, image_size=image_size, **{**sized, **options})
        if not backbone.feature_strides:
            backbone.feature_maps(None)  # raises the error that names networks with maps
        drop_layers(backbone, ("norm", *_BEHIND_THE_MAPS))
        return backbone
    options = {"feature_depths": [defaults["depth"]], "norm_features": True, **options}
    if _is_plain(family, defaults):
        options = {**about.variant, **options, "pool": "token", "pool_norm": False, "image_size": image_size}
        backbone = prepare(PoseTransformer.build(name, 0, **options))
    else:
        backbone = create_model(name, num_classes=0, image_size=image_size, **options)
    drop_layers(backbone, _BEHIND_THE_MAPS)
    return backbone


def _is_plain(family: type[VisionTransformer], options: Mapping[str, Any]) -> bool:
    """Return whether a ViT has learned positions of patches and a class token, and no other tokens."""
    has_token = options["class_token"] and not options["registers"] and family.extra_tokens == 0
    return has_token and options["positions"] == "all" and options["rotary"] is None and options["windows"] == 1
