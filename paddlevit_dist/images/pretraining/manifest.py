"""What learning from images without labels brings: a dataset of any images, and its tasks."""

from ...core.registry.manifest import NO_LABELS, Manifest
from ..classification.manifest import MANIFEST as CLASSIFICATION

_TABLES = ("..settings:IMAGES", "..classification.settings:TABLE", ".settings:TABLE")

MANIFEST = Manifest(
    __package__,
    requires=("paddlevit_dist.images.classification.task",),
    annotations=NO_LABELS,
    # The classes of labeled images are for the score of an evaluation only.
    datasets={"unlabeled": ".unlabeled:UnlabeledImages", **CLASSIFICATION.datasets},
    remote=("unlabeled",),
    tasks={
        "masked_autoencoder": ".masked_autoencoder.task:MaskedAutoencoding",
        "self_distillation": ".self_distillation.task:SelfDistillation",
    },
    task_tables={
        "masked_autoencoder": (*_TABLES, ".masked_autoencoder.settings:TABLE"),
        "self_distillation": (*_TABLES, ".self_distillation.settings:TABLE"),
    },
    score_kinds={"pretraining": ".scores:PretrainingScores"},
    namings={
        "transformers": (
            ".foreign_names:name_like_transformers",
            "of a ViT classifier its ViTForImageClassification's, with a decoder of pretraining "
            "ViTMAEForPreTraining's, else ViTModel's",
        )
    },
    functions={
        f"guess {NO_LABELS}": ".guessing:guess_unlabeled",
        f"find {NO_LABELS}": "..data.guessing:find_hub_images",
    },
    recipes={"unlabeled": "mae_vit_base_patch16_224", NO_LABELS: "mae_digits", "self_distillation": "dino_digits"},
    spellings={
        "task": {"mae": "masked_autoencoder", "dino": "self_distillation"},
        "dataset": {"images": "unlabeled", "unlabelled": "unlabeled"},
    },
)
