"""What detection brings: detectors, and datasets of images with boxes."""

from ...core.registry.manifest import BOX_LABELS, Manifest

MANIFEST = Manifest(
    __package__,
    annotations=BOX_LABELS,
    families=(
        ".detr.network:Detr",
        ".rtdetr.network:RtDetr",
        ".rfdetr.network:RfDetr",
        ".rfdetr.seg_network:RfDetrSeg",
        ".eomt.network:InstanceEomt",
        ".mask_rcnn.network:MaskRCNN",
        ".mask_rcnn.network:FasterRCNN",
    ),
    datasets={
        "coco": ".data.coco:Coco",
        "voc": ".data.voc:Voc",
        "yolo": ".data.yolo:Yolo",
        "box_table": ".data.box_table:BoxTable",
        "hub_boxes": ".data.hub_boxes:HubBoxes",
        "synthetic_shapes": ".data.synthetic_shapes:SyntheticShapes",
    },
    bundled=("synthetic_shapes",),
    tasks={"detection": ".task:Detection"},
    task_tables={"detection": ("..settings:IMAGES", "..settings:OBJECTS", ".settings:TABLE")},
    recipes={
        "synthetic_shapes": "detr_shapes",
        "coco": "finetune_detector",
        "voc": "finetune_detector",
        "yolo": "finetune_detector",
        "box_table": "finetune_detector",
        "hub_boxes": "finetune_detector",
        BOX_LABELS: "detr_r50_coco",
        "detection": "detr_shapes",
    },
    namings={"rfdetr": (".rfdetr.key_names:name_like_authors", "of an RF-DETR its authors' package's")},
    score_kinds={"boxes": ".evaluation.score_kind:BoxScores"},
    spellings={
        "model": {
            "maskrcnn_resnet50_fpn": "mask_rcnn_resnet50_fpn",
            "fasterrcnn_resnet50_fpn": "faster_rcnn_resnet50_fpn",
        },
        "dataset": {
            "coco2017": "coco",
            "coco_2017": "coco",
            "pascal_voc": "voc",
            "voc2007": "voc",
            "voc2012": "voc",
        },
    },
    commands={
        "evaluate detections": (
            ".evaluate_command:run",
            "COCO scores of boxes from any program; runs without Paddle",
        ),
    },
    functions={f"find {BOX_LABELS}": "..data.guessing:find_box_layouts"},
)
