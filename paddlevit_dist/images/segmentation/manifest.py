"""What segmentation of images brings: segmenters, and datasets of images with label maps."""

from ...core.registry.manifest import MASK_LABELS, Manifest

# Layouts of images with label maps, all read by one class.
_LABEL_MAPS = (
    *("label_maps", "ade20k", "cityscapes", "voc_segmentation", "pascal_context", "coco_stuff", "coco_panoptic"),
    *("labelme", "yolo_outlines"),
)

MANIFEST = Manifest(
    __package__,
    annotations=MASK_LABELS,
    families=(
        "..models.segformer:SegFormer",
        "..models.segformer:MmsegmentationsSegFormer",
        "..models.upernet:UPerNet",
        "..models.fcn:FCN",
        "..models.fcn:LinearSegmenter",
        "..mask_queries.semantic:SemanticEomt",
    ),
    datasets={
        "segmentation_shapes": ".data.segmentation_dataset:SegmentationShapes",
        **dict.fromkeys(_LABEL_MAPS, ".data.label_maps:LabelMaps"),
        "coco_outlines": "..detection.data.coco_outlines:CocoOutlines",  # reads files as detection does
        "hub_label_maps": ".data.hub_label_maps:HubLabelMaps",
    },
    bundled=("segmentation_shapes",),
    tasks={"image_segmentation": ".task:ImageSegmentation"},
    task_tables={"image_segmentation": ("..settings:IMAGES", "..settings:OBJECTS", ".settings:TABLE")},
    recipes={
        **dict.fromkeys((*_LABEL_MAPS, "coco_outlines", "hub_label_maps"), "segformer_b0_ade20k"),
        "segmentation_shapes": "segformer_b0_shapes",
        "cityscapes": "segformer_b0_cityscapes",
        MASK_LABELS: "segformer_b0_shapes",
    },
    spellings={
        "dataset": {
            "ade": "ade20k",
            "adechallengedata2016": "ade20k",
            "cocostuff": "coco_stuff",
            "coco_stuff164k": "coco_stuff",
            "coco_stuff10k": "coco_stuff",
        },
    },
    functions={
        "metrics of pixels": ".metrics:SegmentationMetrics",
        f"find {MASK_LABELS}": "..data.guessing:find_hub_maps",
    },
    commands={
        "evaluate masks": (
            ".evaluate_command:run",
            "IoU of label maps; runs without Paddle",
        ),
    },
)
