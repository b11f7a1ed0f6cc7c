"""Settings of tasks on images with keypoints: layouts of data and what changes points with their images."""

from .image_features import ALBUMENTATIONS, READING
from .values import NONE, Features, Model, Task, Value

_FIGURES = "DATA.SHAPES.TRAIN 24 DATA.SHAPES.VAL 7 DATA.SHAPES.SIDES [64,80]"
_KEYS = "KEYPOINTS.SIGMAS [0.05,0.05,0.1,0.1,0.05,0.1,0.1] KEYPOINTS.SKELETON [head/neck]"
#: of both tasks
KEYPOINT_DATA: Features = {
    "data": {
        "drawn": Value(_FIGURES),
        "people": Value(f"{_FIGURES} KEYPOINTS.FIGURES [person] DATA.SHAPES.OBJECTS_PER_IMAGE [1,1]"),
        "coco": Value("-dataset=coco_keypoints -data_path={data:coco_keypoints}"),
        "keys": Value(
            "-dataset=coco_keypoints -data_path={data:coco_people} KEYPOINTS.PAIRS [] "
            f"KEYPOINTS.NAMES [head,neck,a,b,hip,c,d] {_KEYS}"
        ),
        "yolo": Value("-dataset=yolo_pose -data_path={data:yolo_pose}"),
        "table": Value("-dataset=keypoint_table -data_path={data:keypoint_table}"),
        "spacing": Value("-dataset=keypoint_table -data_path={data:keypoint_table} KEYPOINTS.SPACING_MM 0.2", "table"),
        "held_out": Value("-dataset=yolo_pose -data_path={data:yolo_pose} DATA.VAL_FRACTION 0.25 DATA.VAL_SEED 3"),
    },
    "mirror": {"half": Value(), "never": Value("DATA.HORIZONTAL_FLIP 0.0")},
    "file": NONE | {"file": Value(ALBUMENTATIONS)},
    "reading": READING,
}
KEYPOINT_HEATMAPS = Task(
    8,
    {
        "heatmap_cnn": Model(
            "-cfg=heatmap_figures HEATMAPS.CROP_SIZE [32,32] MODEL.DIMS [8,8,8] TRAIN.BATCH_NORM sync",
            has_batch_norm=True,
            start="-epochs=3",
        )
    },
    {
        **KEYPOINT_DATA,
        "crops": NONE
        | {
            "still": Value("HEATMAPS.SHIFT 0.0 HEATMAPS.SCALE 0.0 HEATMAPS.ROTATION 0.0"),
            "wide": Value("HEATMAPS.CROP_SIZE [32,48] HEATMAPS.BOX_SCALE 1.5 HEATMAPS.SIGMA 1.0"),
        },
        "seen": NONE
        | {
            "one": Value("HEATMAPS.FLIP False", "none"),
            "whole": Value("HEATMAPS.BOXES image", "none"),
            "kernel": Value("HEATMAPS.KERNEL 5 HEATMAPS.POINT_SCORE 0.0", "none"),
        },
    },
)
KEYPOINT_DETECTION = Task(
    8,
    {
        "detrpose": Model(
            "-cfg=detrpose_figures DATA.SHORTEST_SIDES [48] DATA.EVAL_SHORTEST_SIDE 48 MODEL.NUM_QUERIES 9",
            has_batch_norm=True,
            draws=True,
            start="-epochs=3",
        )
    },
    {
        **KEYPOINT_DATA,
        "composed": NONE
        | {
            "ssd": Value("DATA.SSD_AUGMENT True"),
            "mosaic": Value("DATA.MOSAIC 0.7"),
            "quiet": Value("DATA.MOSAIC 0.7 DATA.NO_AUGMENT_EPOCHS 1"),
            "batch": Value("DATA.BATCH_SIDES [48,64]"),
            "crop": Value("DATA.CROP_PROBABILITY 0.5 DATA.CROP_SHORTEST_SIDES [40,60] DATA.CROP_SIDES [24,40]"),
        },
        "losses": NONE
        | {
            "matched": Value("POSES.CLASS_LOSS mal"),
            "taught": Value("POSES.DISTILL_LOSS_WEIGHT 1.0"),
            "weighted": Value("TRAIN.CLASS_LOSS_WEIGHT 2.0"),
            "reference": Value("TRAIN.DETECTION_NORMALIZER reference"),
        },
        "queries": NONE | {"plain": Value("MODEL.OPTIONS.denoising 0"), "noisy": Value("MODEL.OPTIONS.denoising 9")},
        "scored": NONE | {"limits": Value("DETECTION.MAX_DETECTIONS 12 DETECTION.SCORE_THRESHOLD 0.3", "none")},
        "backbone": NONE | {"slow": Value("TRAIN.BACKBONE_LR_FACTOR 0.1 TRAIN.COLOR_JITTER 0.3")},
        "empty": NONE | {"without": Value("DATA.KEEP_EMPTY_IMAGES False")},
    },
    # A warm-up as long as the run, with fewer images.
    may_be_refused=({"schedule": ("warmup",), "data": ("table", "spacing", "held_out")},),
)
