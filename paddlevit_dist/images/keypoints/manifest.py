"""What keypoints in images bring: tasks, and datasets of images whose objects have keypoints."""

from ...core.registry.manifest import KEYPOINT_LABELS, Manifest

_TABLES = ("..settings:IMAGES", "..settings:OBJECTS", "..detection.settings:TABLE", ".settings:TABLE")

MANIFEST = Manifest(
    __package__,
    requires=("paddlevit_dist.images.detection.task",),
    annotations=KEYPOINT_LABELS,
    tasks={
        "keypoint_detection": ".detrpose.task:KeypointDetection",
        "keypoint_heatmaps": ".heatmaps.task:KeypointHeatmaps",
    },
    task_tables={
        "keypoint_detection": (*_TABLES, ".detrpose.settings:TABLE"),
        "keypoint_heatmaps": (*_TABLES, ".heatmaps.settings:TABLE"),
    },
    families=(".detrpose.network:DetrPose", ".heatmaps.network:HeatmapNetwork"),
    score_kinds={
        "keypoints": ".evaluation.score_kind:KeypointScores",
        "keypoint_errors": ".evaluation.point_scores:KeypointErrorScores",
    },
    datasets={
        "coco_keypoints": ".data.coco_keypoints:CocoKeypoints",
        "yolo_pose": ".data.yolo_pose:YoloPose",
        "keypoint_table": ".data.keypoint_table:KeypointTable",
        "drawn_figures": ".data.drawn_figures:DrawnFigures",
    },
    bundled=("drawn_figures",),
    recipes={
        "coco_keypoints": "finetune_keypoints",
        "yolo_pose": "finetune_keypoints",
        "keypoint_table": "finetune_keypoints",
        "drawn_figures": "heatmap_figures",
        KEYPOINT_LABELS: "heatmap_figures",
        "keypoint_detection": "detrpose_figures",
    },
    functions={
        f"guess {KEYPOINT_LABELS}": ".guessing:guess_keypoints",
        f"find {KEYPOINT_LABELS}": ".guessing:find_keypoints",
    },
    spellings={
        "dataset": {
            "coco_pose": "coco_keypoints",
            "coco_person": "coco_keypoints",
            "ultralytics_pose": "yolo_pose",
            "point_table": "keypoint_table",
        }
    },
    commands={
        "evaluate keypoints": (
            ".evaluate_command:run",
            "COCO scores of keypoints from any program; runs without Paddle",
        ),
    },
)
