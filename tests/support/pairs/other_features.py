"""Settings of tasks on points and volumes, and of tasks from outside the package."""

from pathlib import Path

from .values import NONE, Model, Task, Value

_ROOMS = "POINTS.ROOMS.TRAIN 16 POINTS.ROOMS.VAL 3 POINTS.ROOMS.SPACING_M 0.12 DATA.VOXEL_SIZE_M 0.3"
_OTHER = "-allow_changes"  # where the first weights lack a layer of this input or of these outputs
_STORE = "-dataset=scenes -data_path={data:scenes}"
# The Lovasz loss sorts the points of each rank.
_SEMANTIC = f"-cfg=minkunet14_synthetic_rooms {_ROOMS} TRAIN.LOVASZ_WEIGHT 0.0"

_SORTED = (
    'MODEL.NAME ptv3 MODEL.OPTIONS {"encoder_depths":[2,2],"encoder_channels":[8,40],"encoder_heads":[1,2],'
    '"strides":[2],"decoder_depths":[1],"decoder_channels":[8],"decoder_heads":[1],"patch_size":32,"drop_path":0}'
)

SCENES = Task(
    4,
    {
        "tutorial": Model(f"{_SEMANTIC} MODEL.NAME minkunet_tutorial", has_batch_norm=True, exports=False),
        "rooms": Model(_SEMANTIC, has_batch_norm=True, exports=False),
        "sorted": Model(f"{_SEMANTIC} {_SORTED}", has_batch_norm=True, has_blocks=True, exports=False),
    },
    {
        "data": {
            "drawn": Value(),
            "store": Value(_STORE),
            "feet": Value(f"{_STORE} DATA.UNIT_M 0.3048 DATA.VOXEL_SIZE_M 0.1"),
        },
        "inputs": NONE
        | {
            "positions": Value(f"{_OTHER} POINTS.FEATURES [xyz,ones] POINTS.VOXEL_FEATURES mean"),
            "colors": Value(f"{_OTHER} POINTS.COLOR_RANGE [-0.5,0.5] POINTS.VOXEL_FEATURES mean"),
            "channels": Value(f"{_OTHER} POINTS.FEATURES [rgb,normal,intensity/255,height]"),
        },
        "crop": NONE
        | {
            "sphere": Value("POINTS.CROP sphere POINTS.CROP_SIZE_M 2.5"),
            "block": Value("POINTS.CROP block POINTS.CROP_SIZE_M 2.0 POINTS.FRAGMENT_SIZE_M 2.5"),
            "points": Value("POINTS.MAX_POINTS 900"),
        },
        "blocks": NONE
        | {
            "blocks": Value("POINTS.FRAGMENT_SIZE_M 2.0 POINTS.FRAGMENT_OVERLAP_M 0.5", "none"),
            "turned": Value("POINTS.TEST_ROTATIONS 3", "none"),
            "mirrored": Value("POINTS.TEST_FLIPS True", "none"),
            "scaled": Value("POINTS.TEST_SCALES [0.9,1.1]", "none"),
            "voting": Value("POINTS.TEST_VOTES 3", "none"),
        },
        "mix": NONE | {"mixed": Value("POINTS.MIX_PROB 0.8")},
        "loss": NONE
        | {
            "dice": Value("TRAIN.DICE_WEIGHT 0.5"),
            "focal": Value("POINTS.FOCAL_GAMMA 2.0 TRAIN.SMOOTHING 0.1"),
            "weights": Value("POINTS.CLASS_WEIGHTS [" + ",".join(f"{1 + k % 3}" for k in range(20)) + "]"),
        },
        "augment": NONE
        | {
            "dropout": Value("POINTS.AUGMENT.DROPOUT 0.4 POINTS.AUGMENT.JITTER_M 0.01 POINTS.AUGMENT.FLIP 0.0"),
            "elastic": Value("POINTS.AUGMENT.ELASTIC 0.8 POINTS.AUGMENT.SCALE [0.7,1.4] POINTS.AUGMENT.TILT_DEGREES 4"),
            "colors": Value(
                "POINTS.AUGMENT.COLOR_JITTER 9 POINTS.AUGMENT.COLOR_SHIFT 20 POINTS.AUGMENT.COLOR_CONTRAST 0.5 "
                "POINTS.AUGMENT.ROTATION_DEGREES 90"
            ),
        },
    },
    refused=(
        {"inputs": ("channels",), "data": ("drawn",)},
        {"freeze": ("part",), "model": ("tutorial",)},  # whose layers have no numbers
        {"inputs": ("positions", "colors"), "blocks": ("voting",)},  # means of points do not vote
    ),
    may_be_refused=({"crop": ("block",), "blocks": ("blocks",)},),
)
INSTANCES = Task(
    4,
    {
        "instances": Model(
            f"-cfg=pointgroup_synthetic_rooms {_ROOMS} MODEL.OPTIONS.width 8 POINTS.INSTANCES.PREPARE_EPOCHS 1 "
            "MODEL.OPTIONS.repeats 1 "
            "POINTS.INSTANCES.RADIUS_M 0.6",
            has_batch_norm=True,
            draws=True,
            exports=False,
        ),
        "sorted": Model(
            f"-cfg=pointgroup_synthetic_rooms {_ROOMS} POINTS.INSTANCES.PREPARE_EPOCHS 1 MODEL.OPTIONS.repeats 1 "
            'POINTS.INSTANCES.RADIUS_M 0.6 MODEL.OPTIONS {"backbone":"ptv3","backbone_options":{"encoder_depths":[1,1],'
            '"encoder_channels":[8,40],"encoder_heads":[1,2],"strides":[2],"decoder_depths":[1],"decoder_channels":[8],'
            '"decoder_heads":[1],"patch_size":32,"drop_path":0}}',
            has_batch_norm=True,
            draws=True,
            exports=False,
        ),
    },
    {
        "data": {"drawn": Value(), "store": Value(_STORE)},
        "augment": NONE
        | {
            "turned": Value("POINTS.INSTANCES.ROTATION True POINTS.INSTANCES.DISTORTION 0.1"),
            "elastic": Value("POINTS.INSTANCES.ELASTIC True POINTS.MAX_POINTS 900"),
            "box": Value("POINTS.INSTANCES.FULL_SCALE 64"),
        },
        "clusters": NONE
        | {
            "small": Value("POINTS.INSTANCES.CLUSTER_POINTS 20 POINTS.INSTANCES.SCORE_SCALE 8"),
            "stuff": Value("POINTS.INSTANCES.STUFF_CLASSES [wall,floor,door]"),
        },
        "scored": NONE
        | {
            "strict": Value(
                "POINTS.INSTANCES.SCORE_THRESHOLD 0.2 POINTS.INSTANCES.MIN_PREDICTION_POINTS 30 "
                "POINTS.INSTANCES.NMS_IOU 0.5",
                "none",
            ),
            "small": Value("POINTS.INSTANCES.AP_MIN_POINTS 30 POINTS.INSTANCES.MIN_PREDICTION_POINTS 20", "none"),
            "panoptic": Value("POINTS.INSTANCES.PANOPTIC_MIN_POINTS 15", "none"),
        },
        "inputs": NONE | {"positions": Value(f"{_OTHER} POINTS.FEATURES [rgb,xyz] POINTS.VOXEL_FEATURES first")},
    },
)
SHAPES = Task(
    4,
    {
        "solids": Model(
            "-cfg=mink_classifier_solids SHAPES.SOLIDS.TRAIN 32 SHAPES.SOLIDS.VAL 11 SHAPES.POINTS 256",
            has_batch_norm=True,
            start="-epochs=8",
            exports=False,
        )
    },
    {
        "data": {
            "drawn": Value(),
            "modelnet": Value("-dataset=modelnet40 -data_path={data:shapes}"),
            "upright": Value(
                "-dataset=modelnet40 -data_path={data:shapes} SHAPES.UP_AXIS y SHAPES.ROTATION_DEGREES 60"
            ),
        },
        "inputs": NONE
        | {
            "ones": Value(f"{_OTHER} SHAPES.FEATURES [ones]"),
            "normals": Value(f"{_OTHER} SHAPES.FEATURES [xyz,normals]"),
            "coarse": Value("SHAPES.VOXEL_SIZE 0.2"),
        },
        "smoothing": NONE | {"0.1": Value("TRAIN.SMOOTHING 0.1")},
        "turned": NONE | {"turned": Value("SHAPES.ROTATION_DEGREES 180")},
    },
)

_FEW = f"-import={Path(__file__).with_name('few_volumes.py')} VOLUMES.UNET_WIDTH 4 VOLUMES.UNET_DEPTH 2"
_ORGANS = f"-cfg=volume_unet3d_phantoms -dataset=few_organs {_FEW}"
_HEADS = f"-cfg=landmark_unet3d -dataset=few_heads {_FEW}"
_UNEVEN = f"{_OTHER} VOLUMES.MAX_VOXELS 200000 VOLUMES.SPACING_MM [3.0,2.2,2.6] VOLUMES.CROP_SIZE [16,24,20]"
_TWO = "VOLUMES.INTENSITY_WINDOW [-100,1200,-5,20] VOLUMES.INTENSITY_MEAN_STD [300,400,5,3]"
_NNUNET = f"-dataset=nnunet -data_path={{data:volumes}} {_UNEVEN}"
_DISTURBED = {
    "noise": NONE
    | {
        "yes": Value("VOLUMES.NOISE 0.5 VOLUMES.BLUR 0.5 VOLUMES.GAMMA 0.5"),
        "coarse": Value("VOLUMES.LOW_RESOLUTION 0.7 VOLUMES.INTENSITY_JITTER 0.3"),
    },
    "geometry": NONE | {"yes": Value("VOLUMES.ROTATION_DEGREES 10 VOLUMES.SCALE 0.1")},
    "windows": NONE
    | {
        "few": Value("VOLUMES.OVERLAP 0.1", "none"),
        "smooth": Value("VOLUMES.OVERLAP 0.3 VOLUMES.WINDOW_WEIGHTS gaussian", "none"),
        "linear": Value("VOLUMES.WINDOW_WEIGHTS linear", "none"),
        "crop": Value("VOLUMES.CROP_SIZE [16,24,20]"),
    },
}
ORGANS = Task(
    4,
    {
        "organs": Model(_ORGANS),
        "flat": Model(f"{_ORGANS} VOLUMES.UNET_KERNELS [1x3x3,3x3x3,3x3x3] VOLUMES.UNET_STRIDES [1x2x2,2x2x2]"),
        "normed": Model(f"{_ORGANS} VOLUMES.UNET_NORM batch VOLUMES.UNET_MAX_WIDTH 8", has_batch_norm=True),
    },
    _DISTURBED
    | {
        "data": {
            "drawn": Value(),
            "files": Value(f"{_NNUNET} VOLUMES.NORMALIZE [ct,z_score] {_TWO}"),
            "fold": Value(
                f"{_NNUNET} VOLUMES.FOLD 2 VOLUMES.NORMALIZE [percentiles,min_max] VOLUMES.INTENSITY_WINDOW None"
            ),
            "regions": Value(
                f"-dataset=nnunet -data_path={{data:regions}} {_UNEVEN} VOLUMES.NORMALIZE [z_score,none] "
                "VOLUMES.INTENSITY_WINDOW None"
            ),
        },
        "mirrors": {
            "width": Value(),
            "none": Value("VOLUMES.MIRROR_AXES []"),
            "tested": Value("VOLUMES.MIRROR_AXES [depth,width] VOLUMES.TEST_MIRROR True"),
        },
        "loss": NONE
        | {
            "flat": Value("VOLUMES.DEEP_SUPERVISION False"),
            "foreground": Value("VOLUMES.FOREGROUND_FRACTION 1.0 VOLUMES.UNET_ACTIVATION relu"),
        },
        "scored": NONE
        | {
            "component": Value("VOLUMES.LARGEST_COMPONENT [foreground]", "none"),
            "overlaps": Value("VOLUMES.SURFACE_DISTANCES False", "none"),
        },
    },
    may_be_refused=({"loss": ("flat",), "model": ("flat",)},),
)
LANDMARKS = Task(
    4,
    {"heads": Model(_HEADS, has_batch_norm=True)},
    _DISTURBED
    | {
        "data": {
            "drawn": Value(),
            "files": Value(
                f"-dataset=landmarks -data_path={{data:heads}} {_UNEVEN} VOLUMES.MIRROR_PAIRS [ear_left:ear_right]"
            ),
            "ordered": Value(
                f"-dataset=landmarks -data_path={{data:heads}} {_UNEVEN} VOLUMES.LANDMARKS [nose,ear_right,ear_left] "
                "VOLUMES.MIRROR_PAIRS none VOLUMES.FLIP 0.0 VOLUMES.COORDINATE_SYSTEM ras"
            ),
        },
        "scaling": NONE
        | {
            "percentiles": Value("VOLUMES.INTENSITY_WINDOW None"),
            "deviations": Value("VOLUMES.NORMALIZE [z_score] VOLUMES.INTENSITY_WINDOW None"),
        },
        "heatmap": NONE
        | {
            "radius": Value("VOLUMES.HEATMAP radius VOLUMES.RADIUS 3"),
            "focal": Value("VOLUMES.LOSS focal VOLUMES.SIGMA_MM [5.0,4.0,6.0]"),
            "peaks": Value("VOLUMES.PEAK_WEIGHT 3.0"),
            "soft": Value("VOLUMES.DECODING soft_argmax", "none"),
        },
        "mirrors": NONE | {"none": Value("VOLUMES.FLIP 0.0")},
    },
)

# Programs of docs/guides/extending.md, on fewer images; they have no keys of other tasks.
_OWN = "-import={data:programs}/few_dots.py -cfg={data:programs}/few_dots.yaml TASK"
OUTSIDE = Task(
    8,
    {
        "sums": Model(f"{_OWN} few_counting_files", start="-epochs=4", has_rows=False),
        "rows": Model(f"{_OWN} few_paired_counting", start="-epochs=4", exports=False),
        "labels": Model(f"{_OWN} few_labels", start="-epochs=4"),
    },
    {
        "interval": {"tens": Value("EVALUATION.RESAMPLES 100 EVALUATION.GROUP tens")},
        "dots": {"9": Value(), "5": Value("DATA.DOTS.MAX 5")},
        "command": {"groups": Value()},
    },
    may_be_refused=({"model": ("sums",), "interval": ("tens",)},),
)
