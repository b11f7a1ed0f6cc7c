"""Other names of models, datasets, callbacks and tasks, as in torchvision, papers and PaddleClas."""

from collections.abc import Iterator

# Other common spellings of a model's name.
SPELLINGS: dict[str, str] = {
    "pvt_v2_b2_linear": "pvt_v2_b2_li",
    "pvtv2_b2_li": "pvtv2_b2_linear",
    "mixer_base_patch16_224": "mixer_b16_224",
    "mixer_large_patch16_224": "mixer_l16_224",
    "swin_base_patch4_window7_224_21k_1k": "swin_base_patch4_window7_224",
    "swin_base_patch4_window12_384_21k_1k": "swin_base_patch4_window12_384",
}

# By kind: name in lower case with underscores for punctuation -> our name.
OTHER_NAMES: dict[str, dict[str, str]] = {
    "model": {
        "vit_ti_16": "vit_tiny_patch16_224",
        "vit_s_16": "vit_small_patch16_224",
        "vit_s_32": "vit_small_patch32_224",
        "vit_b_16": "vit_base_patch16_224",
        "vit_b_32": "vit_base_patch32_224",
        "vit_l_16": "vit_large_patch16_224",
        "vit_l_32": "vit_large_patch32_224",
        "vit_h_14": "vit_huge_patch14_224",
        "swin_t": "swin_tiny_patch4_window7_224",
        "swin_s": "swin_small_patch4_window7_224",
        "swin_b": "swin_base_patch4_window7_224",
        "maskrcnn_resnet50_fpn": "mask_rcnn_resnet50_fpn",
        "fasterrcnn_resnet50_fpn": "faster_rcnn_resnet50_fpn",
        "mixer_b_16": "mixer_b16_224",
        "mixer_l_16": "mixer_l16_224",
        "resnet_18": "resnet18",
        "resnet_34": "resnet34",
        "resnet_50": "resnet50",
        "resnet_101": "resnet101",
    },
    "dataset": {
        "imagenet": "imagenet2012",
        "imagenet1k": "imagenet2012",
        "imagenet_1k": "imagenet2012",
        "ilsvrc2012": "imagenet2012",
        "imagefolder": "folder",
        "image_folder": "folder",
        "cifar_10": "cifar10",
        "cifar_100": "cifar100",
        "fashionmnist": "fashion_mnist",
        "coco2017": "coco",
        "coco_2017": "coco",
        "pascal_voc": "voc",
        "voc2007": "voc",
        "voc2012": "voc",
        "ade": "ade20k",
        "adechallengedata2016": "ade20k",
        "cocostuff": "coco_stuff",
        "coco_stuff164k": "coco_stuff",
        "coco_stuff10k": "coco_stuff",
    },
    "callback": {"tb": "tensorboard", "vdl": "visualdl"},
    "transform": {},
    "task": {"semantic": "semantic_segmentation", "instance_segmentation": "pointgroup"},
}


def spellings(name: str, with_weights: bool = True) -> Iterator[str]:
    """Yield ``name`` and other spellings of it, including names of weights for it."""
    yield name
    plain = name.lower().replace("-", "_")
    joined = plain.replace("/", "_")
    for part in (joined, plain.rpartition("/")[2]) if with_weights else (joined,):
        for stem in (part, part.partition(".")[0]) if with_weights else (part,):  # timm's tag of weights follows a dot
            yield stem
            yield stem.replace("swintransformer_", "swin_")
            yield stem[: -len("_224")] if stem.endswith("_224") else stem  # the only size
    yield plain
