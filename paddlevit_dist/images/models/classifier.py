"""Common parts of the families of classifiers: their last layers, and the stages of a pyramid."""

from collections.abc import Sequence

import paddle
from paddle import nn

from ...tasks.model import Model
from .layers import linear


class Classifier(Model):
    """``head`` on ``forward_features``, which are (batch, embed_dim).

    A subclass sets ``embed_dim`` and calls ``reset_classifier`` where its last layers are to be made.

    Args, of every family that has them:
        num_classes: outputs; 0 for the features alone.
        image_size: pixels, one number or (height, width), each a multiple of ``patch_size`` where patches touch. Where
            no weight depends on it, other sizes can be given to a built model.
        patch_size: side of a patch in pixels, and the stride of patches.
        qkv_bias: whether queries, keys and values have a bias.
        mlp_ratio: hidden width of an MLP to that of a token.
        in_channels: channels of the images.
        dropout: rate after the embedding, the attention's output and both layers of each MLP; in families of
            convolutions before the classifier.
        attention_dropout: rate on the attention weights.
        drop_path: rate of stochastic depth in the last block; it grows linearly from 0 in the first.
    """

    classifier_layers = ("head",)

    embed_dim: int

    def forward(self, x):
        """Logits (batch, num_classes), or the features when the model has no classes."""
        return self.head(self.forward_features(x))

    def reset_classifier(self, num_classes: int) -> None:
        self.num_classes = num_classes
        for name in self.classifier_layers:
            owner, _, own_name = name.rpartition(".")
            layer = self.new_classifier(num_classes) if num_classes > 0 else nn.Identity()
            setattr(getattr(self, owner) if owner else self, own_name, layer)

    def new_classifier(self, num_classes: int) -> nn.Layer:
        """A last layer whose weights are small but not zero: with zeros no gradient would reach what is before it in
        the first step."""
        return linear(self.embed_dim, num_classes)


class PyramidClassifier(Classifier):
    """Stages that each have ``blocks`` and map (batch, height, width, channels) to fewer positions."""

    def parts(self) -> tuple[Sequence[nn.Layer], Sequence[nn.Layer]]:
        """The layers before the stages, and the stages."""
        raise NotImplementedError

    def outputs(self, x) -> list[paddle.Tensor]:
        """(batch, height, width, channels) after each stage, of images (batch, in_channels, height, width)."""
        before, stages = self.parts()
        for layer in before:
            x = layer(x)
        outputs = []
        for stage in stages:
            x = stage(x)
            outputs.append(x)
        return outputs

    def features(self, x, sizes=None) -> list[paddle.Tensor]:
        """The output of each stage."""
        return [output.transpose([0, 3, 1, 2]) for output in self.outputs(x)]

    def recomputed_layers(self) -> list[nn.Layer]:
        return [block for stage in self.parts()[1] for block in stage.blocks]
