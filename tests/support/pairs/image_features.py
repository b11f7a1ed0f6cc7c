"""Settings of tasks on images: networks of seconds, layouts of data, sizes, augmentation, losses and protocols."""

from .values import NONE, Model, Task, Value

_DISTILLATION = "TRAIN.TEACHER_MODEL resnet18 TRAIN.TEACHER_WEIGHTS {base:resnet18} TRAIN.DISTILLATION_TYPE"
_IMAGE = "-cfg=vit_digits DATA.IMAGE_SIZE 32 TRAIN.SMOOTHING 0.0 TRAIN.WARMUP_EPOCHS 0"
_VIT = "MODEL.EMBED_DIM 24 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 8 MODEL.MLP_RATIO 2.0"
# Blocks scaled by 1e-6 have gradients so small that steps of norms are lost in rounding.
_CONVNEXT = "MODEL.NAME convnext_tiny MODEL.DIMS [8,12,16,24] MODEL.DEPTHS [1,1,2,1] MODEL.INIT_VALUES 0.1"
_PVT = "MODEL.NAME pvtv2_b0 MODEL.EMBED_DIM [8,12,16,24] MODEL.DEPTHS [1,1,1,1] MODEL.SR_RATIO [4,2,1,1]"
_PVT += " MODEL.NUM_HEADS [1,1,2,2] MODEL.MLP_RATIO [4,4,2,2]"
_SWIN = "MODEL.NAME swin_tiny_patch4_window7_224 MODEL.EMBED_DIM 12 MODEL.DEPTHS [1,1,2,1] MODEL.NUM_HEADS [1,2,3,4]"
_DRAWN = "DATA.SHAPES.TRAIN 40 DATA.SHAPES.VAL 7"
_TABLE = "-dataset=table -data_path={data:table}/labels.csv DATA.TABLE.IMAGE photo DATA.TABLE.LABELS [kind]"
READING = {  # no image is turned or unreadable
    "plain": Value(),
    "careful": Value("DATA.ON_INVALID_SAMPLE skip DATA.EXIF_ROTATE True DATA.MAX_PIXELS 100000", "plain"),
}
ALBUMENTATIONS = "DATA.ALBUMENTATIONS {data:transforms}/transforms.yaml"

_LONG = "-epochs=6"  # after fewer, all images are of the most frequent class
CLASSIFICATION = Task(
    16,
    {
        "vit": Model(f"{_IMAGE} {_VIT}", has_blocks=True, start=_LONG),
        "scaled_vit": Model(
            f"{_IMAGE} {_VIT} MODEL.QKV_BIAS False MODEL.INIT_VALUES 0.1 MODEL.ATTN_HEAD_SIZE 8", has_blocks=True
        ),
        "vit_of_options": Model(
            f"{_IMAGE} {_VIT} MODEL.OPTIONS.registers 2 MODEL.OPTIONS.pool average MODEL.OPTIONS.pool_norm True",
            has_blocks=True,
            start=_LONG,
        ),
        "timm:test_vit": Model(f"{_IMAGE} MODEL.NAME timm:test_vit", has_blocks=True, start=_LONG),
        "swin": Model(f"{_IMAGE} {_SWIN} MODEL.WINDOW_SIZE 4 MODEL.DROPPATH 0.0", has_blocks=True, start=_LONG),
        "pvt": Model(f"{_IMAGE} {_PVT} MODEL.DROPPATH 0.0", has_blocks=True, start=_LONG),
        "convnext": Model(f"{_IMAGE} {_CONVNEXT} MODEL.DROPPATH 0.0", has_blocks=True, start=_LONG),
    }
    | {
        name: Model(f"{_IMAGE} MODEL.NAME {name}", has_batch_norm=True, start="-epochs=3")
        for name in ("timm:test_resnet", "timm:test_efficientnet", "resnet18")
    },
    {
        "data": {
            "folder": Value("-dataset=folder -data_path={data:folder}"),
            "pages": Value("-dataset=tar -data_path={data:pages}"),
            "jpeg": Value("-dataset=tar -data_path={data:jpeg}"),
            "http": Value("-dataset=tar -data_path={address:pages} DATA.REMOTE_CACHE_GIGABYTES 1", "pages"),
            "lists": Value("-dataset=imagenet2012 -data_path={data:lists}"),
            "table": Value(f"{_TABLE} DATA.TABLE.IMAGES {{data:table}}/pictures"),
            "fold": Value(f"{_TABLE} DATA.TABLE.IMAGES {{data:table}}/pictures DATA.TABLE.FOLD 2"),
            "hub": Value("-data_path={data:hub} DATA.CACHE_FOLDER {data:hub}/cache", "folder"),
            "held_out": Value("-dataset=folder -data_path={data:unsplit} DATA.VAL_FRACTION 0.25 DATA.VAL_SEED 3"),
        },
        "lora": NONE
        | {
            "rank2": Value("TRAIN.LORA.RANK 2"),
            "mlp": Value("TRAIN.LORA.RANK 2 TRAIN.LORA.TARGETS [mlp] TRAIN.LORA.ALPHA 4"),
        },
        "mix": NONE
        | {
            "mixup": Value("TRAIN.MIXUP_ALPHA 0.8 TRAIN.MIXUP_PROB 0.7"),
            "both": Value(
                "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.MIXUP_MODE elem TRAIN.MIXUP_SWITCH_PROB 0.3"
            ),
            "boxes": Value("TRAIN.CUTMIX_MINMAX [0.2,0.6] TRAIN.MIXUP_MODE pair"),
        },
        "smoothing": NONE | {"0.1": Value("TRAIN.SMOOTHING 0.1")},
        "teacher": NONE
        | {"soft": Value(f"{_DISTILLATION} soft"), "hard": Value(f"{_DISTILLATION} hard TRAIN.DISTILLATION_ALPHA 0.3")},
        "classes": NONE
        | {
            "weights": Value("TRAIN.CLASS_WEIGHTS balanced"),
            "list": Value("TRAIN.CLASS_WEIGHTS [1.0,2.0,0.5,3.0]"),
            "sampling": Value("DATA.CLASS_BALANCED True"),
        },
        "dropout": NONE
        | {
            "path": Value("MODEL.DROPPATH 0.2"),
            "dense": Value("MODEL.DROPOUT 0.2"),
            "attention": Value("MODEL.ATTENTION_DROPOUT 0.2"),
        },
        "augment": NONE
        | {
            "rand": Value("TRAIN.RAND_AUGMENT True TRAIN.RANDOM_ERASE_PROB 0.5"),
            "auto": Value(
                "TRAIN.AUTO_AUGMENT True TRAIN.RANDOM_ERASE_PROB 0.5 TRAIN.RANDOM_ERASE_MODE const "
                "TRAIN.RANDOM_ERASE_COUNT 2"
            ),
            "few": Value("TRAIN.RAND_AUGMENT True TRAIN.RAND_AUGMENT_LAYERS 1 TRAIN.RAND_AUGMENT_MAGNITUDE 5"),
            "color": Value("TRAIN.COLOR_JITTER 0.4 DATA.DECODER fast"),
            "file": Value(ALBUMENTATIONS),
        },
        "input": {
            "color": Value("DATA.IMAGE_CHANNELS 3"),
            "gray": Value("DATA.IMAGE_CHANNELS 1"),
            "large": Value("DATA.IMAGE_CHANNELS 3 DATA.IMAGE_SIZE 48 DATA.CROP_SCALE [0.3,0.6]"),
            "wide": Value("DATA.IMAGE_CHANNELS 3 DATA.IMAGE_SIZE [32,48]"),
            "tall": Value(
                "DATA.IMAGE_CHANNELS 3 DATA.IMAGE_SIZE [48,32] DATA.CROP_MODE border DATA.INTERPOLATION lanczos"
            ),
            "squash": Value("DATA.IMAGE_CHANNELS 3 DATA.CROP_MODE squash DATA.INTERPOLATION bilinear"),
            "crop": Value("DATA.IMAGE_CHANNELS 3 DATA.CROP_PCT 0.7 DATA.CROP_RATIO [0.5,0.8]"),
            "scaled": Value(
                "DATA.IMAGE_CHANNELS 3 DATA.IMAGENET_MEAN [0.2,0.4,0.6] DATA.IMAGENET_STD [0.3,0.2,0.1] "
                "DATA.HORIZONTAL_FLIP 0.1"
            ),
        },
        "views": NONE
        | {
            "mirrored": Value("DATA.TEST_VIEWS [mirrored]", "none"),
            "scales": Value("DATA.TEST_VIEWS [five_crops] DATA.TEST_SCALES [1.0,1.2]", "none"),
        },
        "reading": READING,
        "command": {name: Value() for name in ("probe", "neighbors")},
    },
    may_be_refused=(
        {"input": ("gray",), "teacher": ("soft", "hard")},
        {"model": ("timm:test_vit", "timm:test_resnet", "timm:test_efficientnet"), "dropout": ("attention", "path")},
        {"model": ("swin",), "input": ("large", "wide", "tall")},
        {"model": ("pvt",), "freeze": ("part",), "optimizer": ("Muon",)},  # each of its blocks is the first of a stage
    ),
)

_SHARED = ("lora", "mix", "smoothing", "teacher", "dropout", "augment", "views", "reading")
_TAGS = f"{_IMAGE} TASK multi_label DATA.IMAGE_CHANNELS 3"
MULTI_LABEL = Task(
    16,
    {
        "vit": Model(f"{_TAGS} {_VIT}", has_blocks=True),
        "convnext": Model(f"{_TAGS} {_CONVNEXT} MODEL.DROPPATH 0.0", has_blocks=True),
        "timm:test_resnet": Model(f"{_TAGS} MODEL.NAME timm:test_resnet", has_batch_norm=True),
        "resnet18": Model(f"{_TAGS} MODEL.NAME resnet18", has_batch_norm=True),
    },
    {
        "data": {
            "columns": Value("-dataset=table -data_path={data:tags}/columns.csv"),  # with unknown labels
            "lists": Value("-dataset=table -data_path={data:tags}/lists.csv"),
            "absent": Value("-dataset=table -data_path={data:tags}/columns.csv DATA.TABLE.EMPTY absent"),
            "hub": Value("-data_path={data:hub_tags}", "lists"),
        },
        "loss": NONE
        | {
            "balanced": Value("MULTI_LABEL.POSITIVE_WEIGHTS balanced"),
            "list": Value("MULTI_LABEL.POSITIVE_WEIGHTS [0.5,2.0,1.0]"),
            "asymmetric": Value("MULTI_LABEL.LOSS asymmetric"),
            "focused": Value("MULTI_LABEL.LOSS asymmetric MULTI_LABEL.GAMMA_POSITIVE 2 MULTI_LABEL.MARGIN 0"),
        },
        "thresholds": NONE
        | {
            "lower": Value("MULTI_LABEL.THRESHOLD 0.3", "none"),
            "f1": Value("MULTI_LABEL.THRESHOLDS f1", "none"),
            "recall": Value("MULTI_LABEL.THRESHOLDS recall MULTI_LABEL.WISHED 0.8", "none"),
            "precision": Value("MULTI_LABEL.THRESHOLDS precision MULTI_LABEL.WISHED 0.6", "none"),
        },
        **{name: CLASSIFICATION.features[name] for name in _SHARED},
        "input": {name: CLASSIFICATION.features["input"][name] for name in ("color", "squash", "crop", "wide")},
    },
    may_be_refused=({"model": ("timm:test_resnet",), "dropout": ("attention", "path")},),
)

_LONGER = "DATA.SHAPES.TRAIN 240 -epochs=5 VALIDATE_FREQ 5 TRAIN.WARMUP_STEPS 5"
_CROPPED = "DATA.CROP_PROBABILITY 1.0 DATA.CROP_SHORTEST_SIDES [40] DATA.CROP_SIDES [24,40] DATA.RESIZE_TO_SQUARE True"
_SMALL = "-cfg=mask_rcnn_shapes DATA.SHORTEST_SIDES [48] DATA.EVAL_SHORTEST_SIDE 48"
DETECTION = Task(
    8,
    {
        name: Model(
            f"-cfg={name}_shapes {_DRAWN} DATA.RESIZE_TO_SQUARE True", has_batch_norm=True, draws=True, start=_LONGER
        )
        for name in ("dfine", "rtdetr")
    }
    | {
        "detr": Model(
            f"-cfg=detr_shapes {_DRAWN} MODEL.NUM_QUERIES 9 "
            "MODEL.OPTIONS.encoder_layers 1 MODEL.OPTIONS.decoder_layers 2",
            has_batch_norm=True,
            draws=True,
            start=_LONGER,
        )
    }
    | {"rfdetr_seg": Model(f"-cfg=rfdetr_seg_shapes {_DRAWN}", draws=True, has_blocks=True, start=_LONGER)}
    | {
        "eomt": Model(
            f"-cfg=rfdetr_seg_shapes {_DRAWN} MODEL.TYPE eomt MODEL.NAME eomt_instance_shapes "
            "MODEL.OPTIONS.loss_points 64",
            draws=True,
            has_blocks=True,
            start=_LONGER,
            exports_coarsely=True,
        )
    }
    | {  # which selects regions on the host
        "mask_rcnn": Model(
            f"{_SMALL} {_DRAWN}",
            has_batch_norm=True,
            draws=True,
            start="DATA.SHAPES.TRAIN 160 -epochs=3",
            exports=False,
        )
    },
    {
        "data": {
            "drawn": Value(),
            "unequal": Value(
                "DATA.SHAPES.SIDES [40,72] DATA.SHAPES.OBJECTS_PER_IMAGE [0,3] "
                "DATA.SHAPES.CATEGORIES [triangle,cross,circle]"
            ),
            "coco": Value("-dataset=coco -data_path={data:coco}"),
            "named": Value(
                "-dataset=coco -data_path={data:coco} DATA.TRAIN_ANNOTATIONS annotations/train.json "
                "DATA.VAL_ANNOTATIONS annotations/val.json DATA.TRAIN_IMAGES train DATA.VAL_IMAGES val"
            ),
            "voc": Value("-dataset=voc -data_path={data:voc} DATA.VOC_CORNERS edges"),
            "yolo": Value("-dataset=yolo -data_path={data:yolo}"),
            "table": Value("-dataset=box_table -data_path={data:box_table} DATA.TABLE.BOXES xywh"),
            "hub": Value("-data_path={data:hub_boxes} DATA.CACHE_FOLDER {data:hub_boxes}/cache", "coco"),
        },
        "crops": NONE
        | {
            "crop": Value(_CROPPED),
            "ssd": Value("DATA.SSD_AUGMENT True DATA.RESIZE_TO_SQUARE True"),
            "mosaic": Value("DATA.MOSAIC 0.7"),
            "quiet": Value("DATA.MOSAIC 0.7 DATA.NO_AUGMENT_EPOCHS 1"),
            "paste": Value("DATA.COPY_PASTE 0.7"),
            "jitter": Value("DATA.SCALE_JITTER [0.5,2.0]"),
            "file": Value(ALBUMENTATIONS),
        },
        "windows": NONE
        | {
            "windows": Value("DETECTION.WINDOW [40,32] DETECTION.WINDOW_OVERLAP 0.3", "none"),
            "flip": Value("DETECTION.FLIP True DETECTION.MERGE_IOU 0.6", "none"),
        },
        "shapes": NONE | {"grouped": Value("DATA.GROUP_BY_SHAPE 32")},
        "sizes": NONE
        | {
            "several": Value("DATA.SHORTEST_SIDES [48,64] DATA.LONGEST_SIDE 80"),
            "batch": Value("DATA.SHORTEST_SIDES [48] DATA.RESIZE_TO_SQUARE True DATA.BATCH_SIDES [64,96]"),
            "padded": Value("DETECTION.PAD_TO_BATCH_MAX False"),
            "masked": Value("MODEL.MASK_PADDING True"),
        },
        "scored": NONE
        | {
            "limits": Value("DETECTION.MAX_DETECTIONS 12 DETECTION.SCORE_THRESHOLD 0.3", "none"),
            "wishes": Value("DETECTION.WISHED_PRECISION 0.5 DETECTION.WISHED_RECALL 0.5", "none"),
            "torchvision": Value("DATA.EVAL_RESIZE torchvision DATA.EVAL_SHORTEST_SIDE 64 DATA.EVAL_LONGEST_SIDE 96"),
        },
        "losses": NONE
        | {
            "reference": Value("TRAIN.DETECTION_NORMALIZER reference"),
            "classes": Value("TRAIN.CLASS_LOSS_WEIGHT 2.0 TRAIN.DECAY_ALL_PARAMETERS False"),
            "determined": Value("TRAIN.RANDOM_SAMPLING False"),
        },
        "batching": NONE
        | {
            "single": Value("DETECTION.EVAL_BATCHING single", "none"),
            "equal": Value("DETECTION.EVAL_BATCHING equal_shapes", "none"),
        },
        "backbone": NONE
        | {
            "slow": Value("TRAIN.BACKBONE_LR_FACTOR 0.1 TRAIN.COLOR_JITTER 0.3"),
            "late": Value("TRAIN.BACKBONE_WARMUP_STEPS 2"),
        },
        "empty": NONE | {"without": Value("DATA.KEEP_EMPTY_IMAGES False")},
        "reading": READING,
    },
    refused=(
        {"model": ("mask_rcnn", "rfdetr_seg", "eomt"), "data": ("voc", "yolo", "table", "hub")},
        {  # sides of images that keep their proportions are no multiples of 16
            "model": ("dfine", "rtdetr", "rfdetr_seg"),
            "batching": ("single", "equal"),
            "data": ("unequal", "coco", "named", "voc", "yolo", "table", "hub"),
        },
    ),
    may_be_refused=(
        {"data": ("voc", "yolo", "table", "hub"), "crops": ("paste",)},
        {"scored": ("torchvision",), "model": ("dfine", "rtdetr", "rfdetr_seg")},
        {"sizes": ("batch",), "model": ("mask_rcnn", "detr")},
        {"sizes": ("several", "padded"), "model": ("dfine", "rtdetr", "rfdetr_seg")},
        {"sizes": ("masked",), "model": ("dfine", "rtdetr", "rfdetr_seg", "mask_rcnn", "eomt")},
        {"losses": ("determined",), "model": ("dfine", "rtdetr", "detr")},
    ),
)

SEGMENTATION = Task(
    8,
    {
        "segformer": Model(
            f"-cfg=segformer_b0_shapes {_DRAWN} MODEL.DROPOUT 0.0",
            has_batch_norm=True,
            draws=True,
            start="DATA.SHAPES.TRAIN 160 -epochs=4 TRAIN.WARMUP_STEPS 2 SEGMENTATION.CLASS_WEIGHTS [0.3,1.0,1.0,1.0]",
        ),
        "eomt": Model(
            f"-cfg=eomt_shapes {_DRAWN} MODEL.OPTIONS.loss_points 64",
            draws=True,
            has_blocks=True,
            start="DATA.SHAPES.TRAIN 160 -epochs=4 TRAIN.WARMUP_STEPS 2",
        ),
    },
    {
        "data": {
            "drawn": Value(),
            "unequal": Value("DATA.SHAPES.SIDES [40,72]"),
            "label_maps": Value("-dataset=label_maps -data_path={data:label_maps} DATA.CLASS_LIST classes.txt"),
            "hub": Value("-data_path={data:hub_label_maps} DATA.CLASS_LIST classes.txt", "label_maps"),
            "background": Value("-dataset=label_maps -data_path={data:label_maps} DATA.REDUCE_ZERO_LABEL True"),
            "outlines": Value("-dataset=yolo_outlines -data_path={data:outlines} DATA.UNLABELED_PIXELS background"),
            "objects": Value("-dataset=coco_outlines -data_path={data:coco} DATA.UNLABELED_PIXELS background"),
            "ade20k": Value("-dataset=ade20k -data_path={data:ade20k}"),
        },
        "windows": NONE
        | {
            "windows": Value(
                "SEGMENTATION.PROTOCOL slide SEGMENTATION.CROP [48,32] SEGMENTATION.STRIDE [24,30]", "none"
            ),
            "spread": Value("SEGMENTATION.PROTOCOL spread SEGMENTATION.CROP [48,48]", "none"),
            "flip": Value("SEGMENTATION.FLIP True", "none"),
            "scales": Value("SEGMENTATION.SCALES [0.75,1.25]", "none"),
        },
        "loss": NONE
        | {
            "dice": Value("TRAIN.DICE_WEIGHT 1.0"),
            "ohem": Value("SEGMENTATION.OHEM_THRESHOLD 0.9 SEGMENTATION.OHEM_MIN_KEPT 500"),
            "entropy": Value("TRAIN.LOVASZ_WEIGHT 0.0"),
            "weights": Value("SEGMENTATION.CLASS_WEIGHTS [0.5,1.0,2.0,1.5]"),
            "own": Value("-import={data:programs}/tversky.py TASK tversky"),
        },
        "dropout": NONE | {"dense": Value("MODEL.DROPOUT 0.1")},
        "photometric": NONE
        | {
            "yes": Value("DATA.PHOTOMETRIC True"),
            "file": Value(ALBUMENTATIONS),
            "own": Value("-import={data:programs}/shadows.py DATA.TRANSFORMS [shadow]"),
        },
        "crop": NONE
        | {
            "wide": Value("DATA.CROP_SIZE [40,56]"),
            "odd": Value("DATA.CROP_SIZE [43,57]"),  # no whole number of patches
            "scaled": Value(
                "DATA.CROP_SIZE [64,48] DATA.BASE_SHORTEST_SIDE 50 DATA.BASE_LONGEST_SIDE 90 DATA.SCALE_RANGE [0.6,1.1]"
            ),
            "opencv": Value("DATA.RESIZE opencv DATA.MAX_CLASS_FRACTION 0.8"),
        },
        "sizes": NONE
        | {
            "short": Value("DATA.EVAL_SHORTEST_SIDE 48 DATA.EVAL_LONGEST_SIDE 70 DATA.EVAL_DIVISOR 32"),
            "stored": Value("SEGMENTATION.RESIZE_LOGITS_VIA stored", "none"),
        },
        "backbone": NONE
        | {
            "slow": Value("TRAIN.BACKBONE_LR_FACTOR 0.1"),
            "late": Value("TRAIN.BACKBONE_WARMUP_STEPS 2 TRAIN.DECAY_ALL_PARAMETERS True"),
            "determined": Value("TRAIN.RANDOM_SAMPLING False"),
        },
        "reading": {"plain": Value(), "careful": Value("DATA.ON_INVALID_SAMPLE skip DATA.MAX_PIXELS 100000", "plain")},
    },
    refused=({"model": ("eomt",), "loss": ("dice", "ohem", "weights", "own")},),
    may_be_refused=({"loss": ("weights",), "data": ("ade20k", "background")},),
)

_SEGMENTS = "-dataset=panoptic -data_path={data:segments}"
_LISTS = " ".join(
    f"DATA.{key}_ANNOTATIONS panoptic/{split}.json DATA.{key}_IMAGES images/{split}"
    for key, split in (("TRAIN", "train"), ("VAL", "val"))
)
PANOPTIC = Task(
    8,
    {
        "eomt": Model(
            f"-cfg=eomt_panoptic_shapes {_DRAWN} MODEL.OPTIONS.loss_points 64 MODEL.OPTIONS.num_queries 8 "
            "PANOPTIC.INPUT_SIZE [48,48] PANOPTIC.SCORE_THRESHOLD 0 PANOPTIC.OVERLAP_THRESHOLD 0.05",
            draws=True,
            has_blocks=True,
        )
    },
    {
        "data": {
            "drawn": Value(),
            "unequal": Value("DATA.SHAPES.SIDES [40,72]"),
            "coco": Value(_SEGMENTS),
            "listed": Value(f"{_SEGMENTS} {_LISTS}", "coco"),
            "numbers": Value("-dataset=panoptic -data_path={data:segment_numbers}"),
            "categories": Value(
                "-dataset=panoptic -data_path={data:segment_numbers} PANOPTIC.CATEGORIES categories.json "
                "PANOPTIC.ID_DIVISOR 1000",
                "numbers",
            ),
        },
        "input": NONE
        | {
            "wide": Value("PANOPTIC.INPUT_SIZE [40,64]"),
            "odd": Value("PANOPTIC.INPUT_SIZE [43,57]"),
            "scales": Value("PANOPTIC.SCALE_RANGE [0.3,2.5] DATA.HORIZONTAL_FLIP 0"),
        },
        "sampling": NONE | {"even": Value("TRAIN.RANDOM_SAMPLING False")},
        "mask_thresholds": NONE | {"masks": Value("PANOPTIC.MASK_THRESHOLD 0.3 PANOPTIC.SCORE_THRESHOLD 0.2", "none")},
        "backbone": NONE | {"slow": Value("TRAIN.BACKBONE_LR_FACTOR 0.1")},
        "lora": CLASSIFICATION.features["lora"],
        "reading": READING,
    },
)
