"""What learning from images without labels brings: a dataset of any images, and its tasks."""

from ...registry.manifest import NO_LABELS, Manifest

_TABLES = ("..settings:IMAGES", "..classification.settings:TABLE", ".settings:TABLE")

MANIFEST = Manifest(
    __package__,
    requires=("paddlevit_dist.images.classification.task",),
    annotations=NO_LABELS,
    datasets={
        "unlabeled": ".unlabeled:UnlabeledImages",
        # Their classes are for the score of an evaluation only.
        "digits": "..data.small_sets:Digits",
        "mnist": "..data.small_sets:Mnist",
        "fashion_mnist": "..data.small_sets:FashionMnist",
        "cifar10": "..data.cifar:Cifar10",
        "cifar100": "..data.cifar:Cifar100",
        "imagenet2012": "..data.imagenet:ImageNet2012",
        "folder": "..data.class_folders:ClassFolders",
        "tar": "..data.tar:TarImages",
        "table": "..data.table_images:TableImages",
    },
    tasks={
        "masked_autoencoder": ".masked_autoencoder.task:MaskedAutoencoding",
        "self_distillation": ".self_distillation.task:SelfDistillation",
    },
    task_tables={
        "masked_autoencoder": (*_TABLES, ".masked_autoencoder.settings:TABLE"),
        "self_distillation": (*_TABLES, ".self_distillation.settings:TABLE"),
    },
    score_kinds={"pretraining": ".scores:PretrainingScores"},
    functions={"name_like_transformers": ".foreign_names:name_like_transformers"},
    recipes={"unlabeled": "mae_vit_base_patch16_224", NO_LABELS: "mae_digits"},
    spellings={
        "task": {"mae": "masked_autoencoder", "dino": "self_distillation"},
        "dataset": {"images": "unlabeled", "unlabelled": "unlabeled"},
    },
)
