"""What panoptic segmentation of images brings: images with segments, and what scores them."""

from ...core.registry.manifest import SEGMENT_LABELS, Manifest

MANIFEST = Manifest(
    __package__,
    annotations=SEGMENT_LABELS,
    families=("..mask_queries.panoptic:PanopticEomt",),
    datasets={
        "panoptic": ".data.segment_maps:SegmentMaps",
        "panoptic_shapes": ".data.panoptic_dataset:PanopticShapes",
    },
    bundled=("panoptic_shapes",),
    tasks={"panoptic_segmentation": ".task:PanopticSegmentation"},
    task_tables={"panoptic_segmentation": ("..settings:IMAGES", "..settings:OBJECTS", ".settings:TABLE")},
    recipes={
        "panoptic_segmentation": "eomt_panoptic_shapes",
        **dict.fromkeys(("panoptic", "panoptic_shapes", SEGMENT_LABELS), "eomt_panoptic_shapes"),
    },
    score_kinds={"panoptic": ".score_kind:PanopticScores"},
    commands={
        "evaluate panoptic": (
            ".evaluate_command:run",
            "panoptic quality of segments from any program; runs without Paddle",
        ),
    },
    functions={
        f"guess {SEGMENT_LABELS}": ".guessing:guess_segments",
        f"find {SEGMENT_LABELS}": ".guessing:find_segments",
    },
)
