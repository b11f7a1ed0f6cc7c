"""DeiT: a ViT trained with little data, and its distilled form with a second token that learns from a teacher.

Source: Touvron et al., Training data-efficient image transformers & distillation through attention, 2021 (section 4,
table 1).
"""

from ...core.tasks.model import Variants
from .layers import TruncatedNormal
from .pretrained_input import ExpectedInput, list_inputs
from .vit import BASE, SMALL, TINY, VisionTransformer

DEIT: Variants = {
    "deit_tiny_patch16_224": dict(image_size=224, patch_size=16, **TINY),
    "deit_small_patch16_224": dict(image_size=224, patch_size=16, **SMALL),
    "deit_base_patch16_224": dict(image_size=224, patch_size=16, **BASE),
    "deit_base_patch16_384": dict(image_size=384, patch_size=16, **BASE),
}

DISTILLED_DEIT: Variants = {
    "deit_tiny_distilled_patch16_224": dict(image_size=224, patch_size=16, **TINY),
    "deit_small_distilled_patch16_224": dict(image_size=224, patch_size=16, **SMALL),
    "deit_base_distilled_patch16_224": dict(image_size=224, patch_size=16, **BASE),
    "deit_base_distilled_patch16_384": dict(image_size=384, patch_size=16, **BASE),
}


class DeiT(VisionTransformer):
    """DeiT without distillation: a ViT."""

    variants = DEIT
    expected_inputs = list_inputs(DEIT, ExpectedInput(crop_pct=0.9))


class DistilledDeiT(DeiT):
    """DeiT with a distillation token and a second classifier on it; it takes the arguments of ``VisionTransformer``.

    Logits are the mean of both classifiers', but in training with ``distilled_training`` ``forward`` returns both, for
    the labels and for the teacher (section 4, "fine-tuning with distillation").
    """

    variants = DISTILLED_DEIT
    telling_name = "dist_token"
    expected_inputs = list_inputs(DISTILLED_DEIT, ExpectedInput(crop_pct=0.9))
    classifier_layers = ("head", "head_dist")
    extra_tokens = 1
    distilled_training = False

    def create_tokens(self) -> None:
        """Create the class token and the distillation token."""
        super().create_tokens()
        self.dist_token = self.create_parameter([1, 1, self.embed_dim], default_initializer=TruncatedNormal())

    def prefix_tokens(self):
        """Return the class token and the distillation token."""
        return [self.cls_token, self.dist_token]

    def forward_features(self, x):
        """Compute the mean (batch, embed_dim) of the normalized class and distillation tokens."""
        return self._both_tokens(x).mean(axis=1)

    def forward(self, x):
        """Compute logits (batch, num_classes); in distilled training two, of the labels' and the teacher's head."""
        tokens = self._both_tokens(x)  # (batch, 2, embed_dim)
        of_labels, of_teacher = self.head(tokens[:, 0]), self.head_dist(tokens[:, 1])
        if self.distilled_training and self.training:
            return of_labels, of_teacher
        return (of_labels + of_teacher) / 2

    def _both_tokens(self, x):
        return self.norm(self.first_tokens(x))

    def learn_from_teacher(self) -> None:
        """Return the logits of both heads in training mode, for a loss on a teacher's labels."""
        self.distilled_training = True

    def no_weight_decay(self) -> tuple[str, ...]:
        """Return the names of the parameters that are not decayed, with the distillation token."""
        return (*super().no_weight_decay(), "dist_token")
