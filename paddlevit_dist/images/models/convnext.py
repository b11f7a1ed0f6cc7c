"""ConvNeXt: a convolutional network built from what made transformers good.

Source: Liu et al., A ConvNet for the 2020s, 2022 (section 2, appendix A).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from paddle import nn

from ...core.tasks.model import KeyMap, Variants
from ..image_size import as_pair
from .classifier import USUAL_EPSILONS, PyramidClassifier
from .key_names import rename
from .layers import (
    ChannelsLastConv,
    ChannelsLastDepthwiseConv,
    DropPath,
    LayerNorm,
    Mlp,
    rates_of_stages,
    starting_values,
)
from .pretrained_input import ExpectedInput, list_inputs

_DEVIATION = 0.02  # standard deviation of the initial weights


class ConvNeXtBlock(nn.Layer):
    """A depth-wise 7 x 7 convolution, a norm and an MLP over the channels, scaled and added to what came in.

    Like all layers here it works on (batch, height, width, channels), where norms and linear layers need no transpose.
    """

    def __init__(self, dim: int, init_values: float, drop_path: float):
        super().__init__()
        self.conv_dw = ChannelsLastDepthwiseConv(dim, 7, **starting_values(_DEVIATION))
        self.norm = LayerNorm(dim, epsilon=1e-6)
        self.mlp = Mlp(dim, 4 * dim)
        self.gamma = self.create_parameter([dim], default_initializer=nn.initializer.Constant(init_values))
        self.drop_path = DropPath(drop_path)

    def forward(self, x):
        """Map (batch, height, width, dim) to the same shape."""
        branch = self.mlp(self.norm(self.conv_dw(x)))
        return x + self.drop_path(self.gamma * branch)  # (batch, height, width, dim)


class ConvNeXtStage(nn.Layer):
    """Blocks at one resolution, after a norm and a stride-2 convolution in all stages but the first."""

    def __init__(self, in_channels: int, dim: int, halves: bool, init_values: float, drop_path: Sequence[float]):
        super().__init__()
        self.downsample = nn.Identity()
        if halves:
            self.downsample = nn.Sequential(
                LayerNorm(in_channels, epsilon=1e-6),
                ChannelsLastConv(in_channels, dim, 2, stride=2, **starting_values(_DEVIATION)),
            )
        self.blocks = nn.LayerList([ConvNeXtBlock(dim, init_values, rate) for rate in drop_path])

    def forward(self, x):
        """Map positions (batch, rows, columns, channels) to (batch, height, width, dim)."""
        x = self.downsample(x)
        for block in self.blocks:
            x = block(x)
        return x  # (batch, height, width, dim)


# Liu et al., A ConvNet for the 2020s, 2022, section 3.
VARIANTS: Variants = {
    "convnext_tiny": {"depths": (3, 3, 9, 3), "dims": (96, 192, 384, 768)},
    "convnext_small": {"depths": (3, 3, 27, 3), "dims": (96, 192, 384, 768)},
    "convnext_base": {"depths": (3, 3, 27, 3), "dims": (128, 256, 512, 1024)},
    "convnext_large": {"depths": (3, 3, 27, 3), "dims": (192, 384, 768, 1536)},
    "convnext_xlarge": {"depths": (3, 3, 27, 3), "dims": (256, 512, 1024, 2048)},
}

# PaddleViT's names are timm's.
_OF_CONVNEXT = r"^(?:convnext\.)?"
_BLOCK = _OF_CONVNEXT + r"encoder\.stages\.(\d+)\.layers\.(\d+)\."
_HUGGINGFACE = (
    (_OF_CONVNEXT + r"embeddings\.patch_embeddings\.", "stem.0."),
    (_OF_CONVNEXT + r"embeddings\.layernorm\.", "stem.1."),
    (_OF_CONVNEXT + r"encoder\.stages\.(\d+)\.downsampling_layer\.", r"stages.\1.downsample."),
    (_BLOCK + r"layer_scale_parameter$", r"stages.\1.blocks.\2.gamma"),
    (_BLOCK + r"dwconv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_BLOCK + r"layernorm\.", r"stages.\1.blocks.\2.norm."),
    (_BLOCK + r"pwconv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_OF_CONVNEXT + r"layernorm\.", "head.norm."),
    (r"^classifier\.", "head.fc."),
)

# Of DINOv3's ConvNeXt, whose features are normalized by what is here the classifier's norm.
_DINO_BLOCK = r"^(?:model\.)?stages\.(\d+)\.layers\.(\d+)\."
_DINO = (
    (r"^(?:model\.)?stages\.0\.downsample_layers\.", "stem."),
    (r"^(?:model\.)?stages\.(\d+)\.downsample_layers\.", r"stages.\1.downsample."),
    (_DINO_BLOCK + r"depthwise_conv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_DINO_BLOCK + r"layer_norm\.", r"stages.\1.blocks.\2.norm."),
    (_DINO_BLOCK + r"pointwise_conv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_DINO_BLOCK, r"stages.\1.blocks.\2."),
    (r"^layer_norm\.", "head.norm."),
)

_AUTHORS_BLOCK = r"^stages\.(\d+)\.(\d+)\."
_AUTHORS = (
    (r"^downsample_layers\.0\.", "stem."),
    (r"^downsample_layers\.(\d+)\.", r"stages.\1.downsample."),
    (_AUTHORS_BLOCK + r"dwconv\.", r"stages.\1.blocks.\2.conv_dw."),
    (_AUTHORS_BLOCK + r"pwconv([12])\.", r"stages.\1.blocks.\2.mlp.fc\3."),
    (_AUTHORS_BLOCK, r"stages.\1.blocks.\2."),
    (r"^norm\.", "head.norm."),
    (r"^head\.(weight|bias)$", r"head.fc.\1"),
)

KEY_MAPS: dict[str, KeyMap] = {
    "Hugging Face": partial(rename, rules=_HUGGINGFACE),  # with and without the classifier
    "Hugging Face's DINOv3": partial(rename, rules=_DINO),
    "the authors'": partial(rename, rules=_AUTHORS),
}


class ConvNeXt(PyramidClassifier):
    """ConvNeXt classifier: ``depths`` blocks of ``dims`` channels in each stage, scaled by ``init_values`` at first."""

    variants = VARIANTS
    expected_inputs = list_inputs(
        VARIANTS, ExpectedInput(), dict.fromkeys(("convnext_tiny", "convnext_small"), {"crop_pct": 0.95})
    )
    key_maps = KEY_MAPS
    telling_name = "stages.#.blocks.#.conv_dw.weight"
    classifier_layers = ("head.fc",)
    layer_names = r"stages\.\d+\.(?:downsample|blocks\.\d+)"

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int | tuple[int, int] = 224,
        patch_size: int = 4,
        depths: Sequence[int] = (3, 3, 9, 3),
        dims: Sequence[int] = (96, 192, 384, 768),
        init_values: float = 1e-6,
        in_channels: int = 3,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        self.image_size, self.in_channels = as_pair(image_size), in_channels
        self.stem = nn.Sequential(
            ChannelsLastConv(
                in_channels, dims[0], patch_size, patch_size, is_channels_last=False, **starting_values(_DEVIATION)
            ),
            LayerNorm(dims[0], epsilon=1e-6),
        )
        self.stages = nn.LayerList(
            [
                ConvNeXtStage(dims[max(index - 1, 0)], dims[index], index > 0, init_values, rates)
                for index, rates in enumerate(rates_of_stages(drop_path, tuple(depths)))
            ]
        )
        self.feature_strides = tuple(patch_size * 2**index for index in range(len(depths)))
        self.feature_channels = tuple(dims)
        self.embed_dim = dims[-1]
        self.dropout = nn.Dropout(dropout)
        self.head = nn.LayerDict({"norm": LayerNorm(self.embed_dim, epsilon=1e-6)})
        self.reset_classifier(num_classes)

    @classmethod
    def read_described(cls, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the options that transformers' ConvNeXt has, see ``Model.read_described``."""
        if content.get("model_type") != "convnext":
            return None
        return {"depths": tuple(content["depths"]), "dims": tuple(content["hidden_sizes"])}

    def forward_features(self, x):
        """Compute the normalized mean (batch, embed_dim) over the positions of images (N, channels, height, width)."""
        return self.head["norm"](self.outputs(x)[-1].mean(axis=[1, 2]))

    def network_facts(self) -> Mapping[str, Any]:
        """Return what no shape tells, see ``Model.network_facts``."""
        return {"model_type": ("convnext",), "hidden_act": "gelu", "layer_norm_eps": USUAL_EPSILONS}

    def parts(self):
        """Return the stem, and the stages."""
        return (self.stem,), self.stages

    def forward(self, x):
        """Compute logits (batch, num_classes), or the features when the model has no classes."""
        return self.head["fc"](self.dropout(self.forward_features(x)))
