"""What image classification brings: datasets of images with classes, and its tasks."""

from ...core.registry.manifest import CLASS_LABELS, Manifest

_TABLES = ("..settings:IMAGES", ".settings:TABLE")
_PROBE_TABLES = (*_TABLES, ".settings:PROBE_TABLE")

MANIFEST = Manifest(
    __package__,
    annotations=CLASS_LABELS,
    datasets={
        "digits": "..data.small_sets:Digits",
        "mnist": "..data.small_sets:Mnist",
        "fashion_mnist": "..data.small_sets:FashionMnist",
        "cifar10": "..data.cifar:Cifar10",
        "cifar100": "..data.cifar:Cifar100",
        "imagenet2012": "..data.imagenet:ImageNet2012",
        "folder": "..data.class_folders:ClassFolders",
        "tar": "..data.tar:TarImages",
        "table": "..data.table_images:TableImages",
        "hub": "..data.hub.hub_images:HubImages",
    },
    bundled=("digits",),
    remote=("tar",),
    tasks={
        "classification": ".task:Classification",
        "linear_probe": ".probes:LinearProbe",
        "knn_probe": ".probes:KnnProbe",
    },
    task_tables={"classification": _TABLES, "linear_probe": _PROBE_TABLES, "knn_probe": _PROBE_TABLES},
    recipes={
        "mnist": "vit_mnist",
        "fashion_mnist": "vit_mnist",
        "digits": "vit_digits",
        "folder": "finetune_folder",
        "table": "finetune_folder",
        "hub": "finetune_folder",
        **dict.fromkeys(("folder from scratch", "table from scratch", "hub from scratch"), "scratch_folder"),
        CLASS_LABELS: "vit_tiny_patch16_224",
        "classification": "vit_digits",
        "linear_probe": "probe_linear",
        "knn_probe": "probe_knn",
    },
    spellings={
        "dataset": {
            "imagenet": "imagenet2012",
            "imagenet1k": "imagenet2012",
            "imagenet_1k": "imagenet2012",
            "ilsvrc2012": "imagenet2012",
            "imagefolder": "folder",
            "image_folder": "folder",
            "csv": "table",
            "huggingface": "hub",
            "hfds": "hub",
            "parquet": "hub",
            "arrow": "hub",
            "cifar_10": "cifar10",
            "cifar_100": "cifar100",
            "fashionmnist": "fashion_mnist",
        },
    },
    commands={
        "evaluate classes": (
            ".evaluate_command:run",
            "accuracy of a table of predicted classes; runs without Paddle",
        ),
        "prepare images": (
            "..prepare.command:run_images",
            "check images, or pack them as tar files of smaller ones",
        ),
        "prepare index": (
            "..prepare.command:run_index",
            "index tar files that are read from s3:// or https://",
        ),
    },
    functions={
        "describe_input": "..expected_input:describe_input",
        "guess_dataset": "..data.guessing:guess",
        "guess images": "..data.guessing:refuse_unknown",
        f"find {CLASS_LABELS}": "..data.guessing:find_classes",
    },
)
