"""Settings of tasks that learn from images without labels: networks of seconds, places of images, what is masked."""

from .values import NONE, Model, Task, Value

_MASKED = (
    "-cfg=mae_digits DATA.IMAGE_SIZE 32 DATA.IMAGE_CHANNELS 3 TRAIN.WARMUP_EPOCHS 0 MODEL.EMBED_DIM 24 MODEL.DEPTH 2 "
    "MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 8 MODEL.MLP_RATIO 2.0 MASKED_AUTOENCODER.DECODER_WIDTH 16 "
    "MASKED_AUTOENCODER.DECODER_DEPTH 1 MASKED_AUTOENCODER.DECODER_HEADS 2"
)
_UNLABELED = "-dataset=unlabeled -data_path="
MASKED_AUTOENCODER = Task(
    16,
    {
        "masked_vit": Model(_MASKED, has_blocks=True, exports=False),
        "masked_deit": Model(f"{_MASKED} MODEL.NAME deit_tiny_distilled_patch16_224", has_blocks=True, exports=False),
        "masked_dinov2": Model(f"{_MASKED} MODEL.NAME vit_small_patch14_reg4_dinov2", has_blocks=True, exports=False),
    },
    {
        "data": {
            "folder": Value("-dataset=folder -data_path={data:folder}"),
            "unlabeled": Value(_UNLABELED + "{data:folder}"),
            "several": Value(
                _UNLABELED + "{data:unsplit} PRETRAINING.MORE_PATHS [{data:folder}/train] "
                "PRETRAINING.LABELED_PATH {data:folder}"
            ),
            "held_out": Value(_UNLABELED + "{data:unsplit} DATA.VAL_FRACTION 0.25"),
            "tar": Value(_UNLABELED + "{data:pages} DATA.VAL_FRACTION 0.25"),
            "table": Value(_UNLABELED + "{data:table}/labels.csv DATA.VAL_FRACTION 0.25"),
        },
        "masked": {
            "most": Value(),
            "half": Value("MASKED_AUTOENCODER.MASK_SHARE 0.5"),
        },
        "target": {"normalized": Value(), "pixels": Value("MASKED_AUTOENCODER.NORMALIZED_PATCHES False")},
        "neighbors": {"20": Value(), "3": Value("PRETRAINING.NEIGHBORS 3", "20")},
        "dropout": NONE | {"path": Value("MODEL.DROPPATH 0.2"), "dense": Value("MODEL.DROPOUT 0.2")},
        "augment": {"crop": Value("DATA.CROP_SCALE [0.2,1.0]"), "color": Value("TRAIN.COLOR_JITTER 0.4")},
        "reading": {
            "plain": Value(),
            "careful": Value("DATA.ON_INVALID_SAMPLE skip DATA.MAX_PIXELS 100000", "plain"),
        },
    },
)

_VIEWS = (
    "-cfg=dino_digits DATA.IMAGE_SIZE 32 DATA.IMAGE_CHANNELS 3 TRAIN.WARMUP_EPOCHS 0 SELF_DISTILLATION.SMALL_SIZE 16 "
    "MODEL.DEPTHS None MODEL.DIMS None "
    "SELF_DISTILLATION.HEAD_WIDTH 16 SELF_DISTILLATION.BOTTLENECK 8 SELF_DISTILLATION.FROZEN_EPOCHS 0 "
    "SELF_DISTILLATION.TEACHER_TEMPERATURES [0.2,0.2] SELF_DISTILLATION.SMALL_VIEWS 2 SELF_DISTILLATION.OUTPUTS 24"
)
_VIT = (
    "MODEL.TYPE vit MODEL.NAME vit MODEL.EMBED_DIM 24 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 8 "
    "MODEL.MLP_RATIO 2.0"
)
SELF_DISTILLATION = Task(
    16,
    {
        "viewed_vit": Model(f"{_VIEWS} {_VIT}", has_blocks=True, exports=False),
        "viewed_resnet": Model(f"{_VIEWS} MODEL.TYPE resnet MODEL.NAME resnet18", has_batch_norm=True, exports=False),
    },
    {
        "data": {
            "folder": Value("-dataset=folder -data_path={data:folder}"),
            "unlabeled": Value(_UNLABELED + "{data:folder}"),
            "held_out": Value(_UNLABELED + "{data:unsplit} DATA.VAL_FRACTION 0.25"),
        },
        "views": {"both": Value(), "large": Value("SELF_DISTILLATION.SMALL_VIEWS 0")},
        "last_layer": {
            "free": Value(),
            "frozen": Value("SELF_DISTILLATION.FROZEN_EPOCHS 1 TRAIN.NUM_EPOCHS 3"),
            "learned": Value("SELF_DISTILLATION.NORM_LAST_LAYER False"),
        },
        "warming": {
            "none": Value(),
            "temperature": Value(
                "SELF_DISTILLATION.TEMPERATURE_WARMUP_EPOCHS 2 SELF_DISTILLATION.TEACHER_TEMPERATURES [0.1,0.3]"
            ),
        },
        "neighbors": {"20": Value(), "3": Value("PRETRAINING.NEIGHBORS 3", "20")},
        "dropout": NONE | {"path": Value("MODEL.DROPPATH 0.2")},
    },
    # Without classes no score tells when to stop, or which trial is better.
    refused=({"average": ("half", "warmup")}, {"evaluation": ("patience",), "data": ("held_out",)}),
    may_be_refused=({"command": ("search",), "data": ("held_out",)},),
)
