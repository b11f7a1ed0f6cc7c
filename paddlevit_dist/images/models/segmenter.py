"""What a network that labels the pixels of pictures is to the task that trains it."""

import paddle

from ...contracts.model import Model


class Segmenter(Model):
    """Base class of networks that give every pixel of a picture of any size a class."""

    #: weight of the auxiliary head's loss; 0 where there is none
    auxiliary_weight: float = 0.0

    @property
    def pretrained_part(self) -> Model:
        """The model whose weights a classifier brings."""
        return self.backbone

    def forward(self, images: paddle.Tensor) -> paddle.Tensor | tuple[paddle.Tensor, paddle.Tensor]:
        """Logits, float32 (N, classes, h, w), at the network's own resolution: whoever calls it resizes them,
        bilinearly between the centres of pixels. In training mode, of a model with an auxiliary head, also that head's.

        Args:
            images: float32 (N, 3, H, W), normalised.
        """
        raise NotImplementedError
