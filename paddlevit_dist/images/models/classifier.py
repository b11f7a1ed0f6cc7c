"""Common parts of the families of classifiers: their last layers, and the stages of a pyramid."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import paddle
from paddle import nn

from ...core.tasks.model import Model
from ..imagenet_classes import list_synsets, to_synset
from .layers import linear
from .pretrained_input import ExpectedInput

# Of layer norms in transformers' configurations: these differ by rounding.
USUAL_EPSILONS = frozenset({1e-12, 1e-6, 1e-5})


class Classifier(Model):
    """Base class of classifiers: ``head`` on ``forward_features``, which are (batch, embed_dim).

    A subclass sets ``embed_dim`` and calls ``reset_classifier`` to make its last layers. Parameter names are timm's;
    Linear weights are (in, out) as Paddle stores them.

    Args, of every family that has them:
        num_classes: outputs; 0 for the features alone.
        image_size: pixels, one number or (height, width), each a multiple of ``patch_size`` where patches touch. A
            built model takes other sizes too if no weight depends on the size.
        patch_size: side of a patch in pixels, and the stride of patches.
        qkv_bias: whether queries, keys and values have a bias.
        mlp_ratio: hidden width of an MLP divided by the width of a token.
        in_channels: channels of the images.
        dropout: rate after the embedding, the attention's output and both layers of each MLP; in families of
            convolutions before the classifier.
        attention_dropout: rate on the attention weights.
        drop_path: rate of stochastic depth in the last block; it grows linearly from 0 in the first.
    """

    #: what the published weights of each variant expect of images, by its name
    expected_inputs: ClassVar[Mapping[str, ExpectedInput]] = {}
    classifier_layers: tuple[str, ...] = ("head",)

    embed_dim: int

    def forward(self, x):
        """Compute logits (batch, num_classes), or features (batch, embed_dim) if the model has no classes."""
        return self.head(self.forward_features(x))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the last layers with newly initialized ones for ``num_classes``, or with nothing for 0."""
        self.num_classes = num_classes
        for name in self.classifier_layers:
            owner, _, own_name = name.rpartition(".")
            layer = self.new_classifier(num_classes) if num_classes > 0 else nn.Identity()
            setattr(getattr(self, owner) if owner else self, own_name, layer)

    def published_classes(self, classes: int) -> list[str] | None:
        """Return the WordNet ids of ImageNet-1k for 1,000 classes, else None."""
        return list_synsets(classes)

    def plain_class(self, name: str) -> str:
        """Normalize a class name, see ``Model.plain_class``; names of ImageNet become WordNet ids."""
        return to_synset(super().plain_class(name))

    def new_classifier(self, num_classes: int) -> nn.Layer:
        """Make a last layer with small weights: with zeros no gradient would reach earlier layers in the first step."""
        return linear(self.embed_dim, num_classes)


class PyramidClassifier(Classifier):
    """Base class of classifiers whose stages of ``blocks`` map (batch, height, width, channels) to fewer positions."""

    def parts(self) -> tuple[Sequence[nn.Layer], Sequence[nn.Layer]]:
        """Return the layers before the stages, and the stages."""
        raise NotImplementedError

    def outputs(self, x) -> list[paddle.Tensor]:
        """Return (batch, height, width, channels) after each stage, for images (batch, channels, height, width)."""
        before, stages = self.parts()
        for layer in before:
            x = layer(x)
        outputs = []
        for stage in stages:
            x = stage(x)
            outputs.append(x)
        return outputs

    def feature_maps(self, x, sizes=None) -> list[paddle.Tensor]:
        """Return the output of each stage, (batch, channels, height, width)."""
        return [output.transpose([0, 3, 1, 2]) for output in self.outputs(x)]

    def recomputed_layers(self) -> list[nn.Layer]:
        """Return the blocks, which hold most of the memory of a backward pass."""
        return [block for stage in self.parts()[1] for block in stage.blocks]
