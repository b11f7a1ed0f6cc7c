"""The contract between a network that labels pixels of images and its task; parts that such networks share."""

import functools
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime.autocast import as_dtype
from ...core.tasks.model import Model, as_model
from ...core.tasks.model_factory import create_model, fit_backbone_options, variant_options
from ..image_size import as_pair
from .key_names import BACKBONE
from .layers import Conv2D, are_equal_sides

_DEVIATION = 0.01  # of the first weights of a layer that classifies pixels, as in mmsegmentation


class Segmenter(Model):
    """Base class of networks that give every pixel of an image of any size a class.

    A network of your own, such as a U-Net, needs no backbone: it leaves all arguments out, or gives the first two.

    Args, of every family:
        num_classes: outputs for each pixel; None: ``create_model`` sets the attribute.
        image_size: pixels, one number or (height, width), of the images it is built for; None: of any. Others can be
            given; it says for which ``inspect`` counts, and in a ViT to which grid position embeddings belong.
        backbone, backbone_options: name of a classifier that has ``feature_maps``, and its options; None: none.
        dropout: rate before the last layer, of whole channels; 0.1 in all papers.
        drop_path: rate of stochastic depth in the backbone's last block.
    """

    #: weight of the losses of the maps that follow the first one in training; 0 where there is one map
    auxiliary_weight: float = 0.0
    #: class method that builds the losses of a network whose queries learn masks, see ``mask_queries``; None: pixels'
    criterion: Any = None
    #: whether ``forward`` computes probabilities instead of logits in an evaluation
    gives_probabilities: bool = False

    def __init__(
        self,
        num_classes: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        backbone: str | None = None,
        backbone_options: Mapping[str, Any] | None = None,
        drop_path: float = 0.0,
    ):
        super().__init__()
        if num_classes is not None:
            self.num_classes = num_classes
        if image_size is not None:
            self.image_size = as_pair(image_size)
        if backbone is not None:
            options = {**(backbone_options or {}), **({"drop_path": drop_path} if drop_path else {})}
            patch = {**variant_options(backbone), **options}.get("patch_size", 1)
            whole = self.image_size and tuple(-(-side // patch) * patch for side in self.image_size)  # of whole patches
            self.backbone = create_model(backbone, num_classes=0, image_size=whole, **options)
            self.in_channels = self.backbone.in_channels

    @classmethod
    def build(cls, name: str, num_classes: int, image_size: int | Sequence[int] | None = None, **options: Any) -> Model:
        """Build a variant; another backbone than the variant's takes only the options that it has."""
        options = fit_backbone_options(cls.variants.get(name, {}), options)
        return super().build(name, num_classes, image_size, **options)

    @property
    def pretrained_part(self) -> nn.Layer:
        """The model whose weights a classifier brings: the layer ``backbone``, else the whole."""
        return self._sub_layers.get("backbone", self)

    @property
    def _backbone(self) -> Model:
        """The backbone, or a model without layers: its answers are the defaults."""
        return as_model(self._sub_layers.get("backbone") or nn.Identity())

    @abstractmethod
    def forward(self, images: paddle.Tensor) -> paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]:
        """Compute logits, float32 (N, classes, h, w), of normalized images, float32 (N, 3, H, W), at own resolution.

        The caller resizes them, bilinearly between the centers of pixels. In training mode, a model with an auxiliary
        head also returns the logits of that head.
        """

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layer of each head with a newly initialized one for ``num_classes``."""
        self.num_classes = num_classes
        for name in self.classifier_layers:
            *owners, last = name.split(".")
            owner = functools.reduce(getattr, owners, self)
            setattr(owner, last, pixel_classifier(getattr(owner, last).weight.shape[1], num_classes))

    def resize_parameter(self, name: str, value: np.ndarray) -> np.ndarray | None:
        """Resize what the backbone can resize."""
        if not name.startswith(BACKBONE):
            return None
        return self._backbone.resize_parameter(name[len(BACKBONE) :], value)

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names that the backbone does not decay."""
        return tuple(BACKBONE + name for name in self._backbone.no_weight_decay())

    def layer_groups(self) -> list[list[str]]:
        """Return the backbone's groups, then all heads as one group."""
        groups = [[BACKBONE + name for name in group] for group in self._backbone.layer_groups()]
        heads = [name for name, _ in self.named_parameters() if not name.startswith(BACKBONE)]
        return [*filter(None, groups), heads]

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the backbone's blocks."""
        return self._backbone.recomputed_layers()


def drop_layers(backbone: Model, names: Sequence[str]) -> None:
    """Remove layers of a classifier that no map depends on: they would never learn."""
    for name in names:
        path, _, last = name.rpartition(".")
        owner = getattr(backbone, path, None) if path else backbone
        if hasattr(owner, last):
            setattr(owner, last, nn.Identity())


def pixel_classifier(channels: int, num_classes: int) -> Conv2D:
    """Make the last layer of a head: a convolution of 1 x 1 to the classes."""
    start = paddle.ParamAttr(initializer=nn.initializer.Normal(0.0, _DEVIATION))
    return Conv2D(channels, num_classes, 1, weight_attr=start)


class NormalizedConvolution(nn.Layer):
    """A convolution that keeps the size, without bias, a batch norm and a ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int):
        super().__init__()
        self.conv = Conv2D(
            inputs,
            outputs,
            kernel_size,
            padding=kernel_size // 2,
            weight_attr=paddle.ParamAttr(initializer=fan_out(outputs * kernel_size**2)),
            bias_attr=False,
        )
        self.bn = batch_norm(outputs)

    def forward(self, x):
        """Map (N, inputs, height, width) to (N, outputs, height, width)."""
        return F.relu(self.bn(self.conv(x)))  # (N, outputs, height, width)


def batch_norm(channels: int, data_format: str = "NCHW") -> nn.BatchNorm2D:
    """Make a batch norm with PyTorch's defaults, which all published networks have."""
    return nn.BatchNorm2D(channels, momentum=0.9, epsilon=1e-5, data_format=data_format)


def fan_out(number: int) -> nn.initializer.Initializer:
    """Return a normal initializer with variance 2 / fan-out (He et al., 2015)."""
    return nn.initializer.Normal(0.0, math.sqrt(2.0 / number))


def resize_maps(x: paddle.Tensor, size: Sequence[int]) -> paddle.Tensor:
    """Resize maps (N, channels, height, width), bilinearly between the centers of positions; the dtype is kept."""
    if are_equal_sides(x.shape[2:], size):
        return x
    return as_dtype(F.interpolate(x, size=list(size), mode="bilinear", align_corners=False), x.dtype)
