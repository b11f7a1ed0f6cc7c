"""A network of any kind with the head of self-distillation.

The parameters of the network have their names in a classifier, so that its weights fit networks of other tasks. Names
of the head begin with ``pretraining_head``.

Source: M. Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021, arXiv 2104.14294,
section 3.1 and appendix C.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ....core.registry.extension_points import NORMALIZED_LINEAR
from ....core.tasks.model import Model
from ...models.layers import linear

HEAD = "pretraining_head"


class WeightNormLinear(nn.Layer):
    """A product without bias whose rows of weights have a direction and a norm of their own.

    Args:
        in_features: width of its input.
        out_features: number of rows.
        fixes_norms: whether all norms stay 1.
    """

    def __init__(self, in_features: int, out_features: int, fixes_norms: bool):
        super().__init__()
        limit = 1.0 / math.sqrt(in_features)
        start = nn.initializer.Uniform(-limit, limit)
        self.weight_v = self.create_parameter([out_features, in_features], default_initializer=start)
        self.weight_g = self.create_parameter([out_features, 1], default_initializer=nn.initializer.Constant(1.0))
        self.weight_g.stop_gradient = fixes_norms

    def forward(self, x):
        """Map (rows, in_features) to (rows, out_features)."""
        norms = self.weight_g.squeeze(1)  # (out_features,)
        compiled = NORMALIZED_LINEAR.find()
        fast = None if compiled is None else compiled(x, self.weight_v, norms)
        if fast is not None:
            return fast
        # Columns of the product are scaled, which are fewer numbers than the weights.
        factors = norms / self.weight_v.square().sum(axis=1).sqrt()
        return paddle.matmul(x, self.weight_v, transpose_y=True) * factors


class ProjectionHead(nn.Layer):
    """Three layers, a vector of length 1, and a layer with normalized weights.

    Args:
        in_features: width of features.
        width: of the hidden layers.
        bottleneck: width of the vector.
        outputs: number of outputs.
        fixes_norms: see ``WeightNormLinear``.
    """

    def __init__(self, in_features: int, width: int, bottleneck: int, outputs: int, fixes_norms: bool = True):
        super().__init__()
        self.mlp = nn.Sequential(
            linear(in_features, width), nn.GELU(), linear(width, width), nn.GELU(), linear(width, bottleneck)
        )
        self.last_layer = WeightNormLinear(bottleneck, outputs, fixes_norms)

    def forward(self, features):
        """Map features (rows, in_features) to (rows, outputs)."""
        return self.last_layer(F.normalize(self.mlp(features), axis=-1))


class DistillationNetwork(Model):
    """A network with a head, as student or teacher. Of images alone it computes the features of a classifier.

    Args:
        backbone: a classifier without classes, whose output is (batch, embed_dim).
        head: maps these features.
    """

    classifier_layers = (HEAD,)

    def __init__(self, backbone: Any, head: ProjectionHead):
        super().__init__()
        self.layer_names, self.num_classes, self.key_maps = backbone.layer_names, 0, backbone.key_maps
        self.image_size, self.in_channels, self.embed_dim = (
            backbone.image_size,
            backbone.in_channels,
            backbone.embed_dim,
        )
        # Parameters have the names that other tasks know, and what replaces a layer here replaces it in the backbone.
        self.__dict__["backbone"] = backbone
        self._sub_layers, self._parameters, self._buffers = (
            backbone._sub_layers,
            backbone._parameters,
            backbone._buffers,
        )
        self._non_persistable_buffer_names_set = backbone._non_persistable_buffer_names_set
        self.pretraining_head = head

    def forward(self, images, small=None, is_projected: bool = False):
        """Compute features (batch, embed_dim), or the outputs of the head for all views, (views * batch, outputs).

        Args:
            images: normalized, (batch, channels, height, width); if they are projected, large views, view by view.
            small: small views, view by view; None: there are none.
            is_projected: whether the head is applied.
        """
        features = self.backbone(images)
        if not is_projected:
            return features
        return self.pretraining_head(features if small is None else paddle.concat([features, self.backbone(small)]))

    def train(self) -> Any:
        """Set backbone and head to training mode."""
        self.backbone.train()
        return super().train()

    def eval(self) -> Any:
        """Set backbone and head to evaluation mode."""
        self.backbone.eval()
        return super().eval()

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the backbone's layers."""
        layers: list[nn.Layer] = self.backbone.recomputed_layers()
        return layers

    def resample_parameter(self, name: str, value: np.ndarray, trained_size: Any) -> np.ndarray | None:
        """Resize a parameter of the backbone for another size of images."""
        resized: np.ndarray | None = self.backbone.resample_parameter(name, value, trained_size)
        return resized

    def list_resize_notices(self, names: Sequence[str]) -> list[str]:
        """Return the backbone's lines about resized parameters."""
        notices: list[str] = self.backbone.list_resize_notices(names)
        return notices
