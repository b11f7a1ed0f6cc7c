"""The table of configuration keys: the only place where a default lives, but for keys that only one room reads
(``registry.SETTINGS``).

None means "not set": the dataset, the variant that MODEL.NAME stands for, or the rule named in the meaning decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yacs.config import CfgNode

from ..registry import room_keys
from .key import Key, Range

_AT_LEAST_0 = Range(low=0)
_AT_LEAST_1 = Range(low=1)
_ABOVE_0 = Range(low=0, low_open=True)
_SHARE = Range(low=0, high=1)
_SHARE_BELOW_1 = Range(low=0, high=1, high_open=True)
_SHARE_ABOVE_0 = Range(low=0, high=1, low_open=True)
_SHARE_INSIDE = Range(low=0, high=1, low_open=True, high_open=True)
_SEED = Range(low=0, high=2**31 - 1)


def _optional(name: str, kind: str, meaning: str, within: Range | None = None) -> Key:
    return Key(name, None, kind, meaning, within, optional=True)


def _dimension(name: str, kind: str, meaning: str, or_many: bool = False) -> Key:
    within = _AT_LEAST_1 if kind == "int" else _ABOVE_0
    return Key(name, None, kind, f"{meaning}; None: the variant's", within, optional=True, or_many=or_many)


_DATA = (
    Key("DATA.BATCH_SIZE", 256, "int", "training images per device and step", _AT_LEAST_1),
    _optional("DATA.BATCH_SIZE_EVAL", "int", "evaluation images per device; None: DATA.BATCH_SIZE", _AT_LEAST_1),
    Key("DATA.DATASET", "digits", "text", "name of a registered data set; with DATA_PATH alone it is guessed"),
    _optional("DATA.DATA_PATH", "path", "folder or file of the dataset; not needed for digits"),
    Key("DATA.IMAGE_SIZE", 224, "int", "height and width in pixels that the model sees", _AT_LEAST_1),
    Key("DATA.IMAGE_CHANNELS", 3, "int", "3 for colour, 1 for grey", choices=(1, 3)),
    Key("DATA.CROP_PCT", 0.875, "float", "evaluation: share of the resized image that is kept", _SHARE_ABOVE_0),
    _optional("DATA.NUM_WORKERS", "int", "loader processes per device; None: from cores and devices", _AT_LEAST_0),
    Key("DATA.PREFETCH", 2, "int", "batches that each loader process makes in advance; 1 saves memory", _AT_LEAST_1),
    Key("DATA.IMAGENET_MEAN", [0.5] * 3, "float", "mean per channel, of pixels from 0 to 1", _SHARE, many=True),
    Key("DATA.IMAGENET_STD", [0.5] * 3, "float", "standard deviation per channel", _ABOVE_0, many=True),
    Key(
        "DATA.DECODER",
        "exact",
        "text",
        "training pictures: exact (Pillow) or fast (OpenCV, about 1/255 off); evaluation is always exact",
        choices=("exact", "fast"),
    ),
    Key("DATA.CROP_SCALE", [0.08, 1.0], "float", "training crop: share of the area", _SHARE_ABOVE_0, None, True, 2),
    Key("DATA.CROP_RATIO", [0.75, 4 / 3], "float", "training crop: width to height", _ABOVE_0, None, True, 2),
    Key("DATA.HORIZONTAL_FLIP", 0.5, "float", "training: probability of a mirrored image", _SHARE),
    Key(
        "DATA.GLYPH_DISTORTION",
        1.0,
        "float",
        "training on signs: strength of the small affine maps, 0 for none",
        _SHARE,
    ),
    _optional("DATA.CACHE_FOLDER", "path", "folder for indexes and converted files, to share them; None: SAVE/data"),
    _optional("DATA.VAL_FRACTION", "float", "hold out this share of each training class for validation", _SHARE_INSIDE),
    Key(
        "DATA.VAL_SEED", 0, "int", "seed of what VAL_FRACTION holds out: not SEED, so that runs can be compared", _SEED
    ),
    Key("DATA.CLASS_BALANCED", False, "bool", "training reads all classes equally often"),
    Key(
        "DATA.ON_BAD_SAMPLE",
        "stop",
        "text",
        "training: an unreadable picture ends the run, or the next readable one takes its place and it is listed",
        choices=("stop", "skip"),
    ),
    Key("DATA.EXIF_ROTATE", False, "bool", "turn pictures as their EXIF orientation says"),
    Key("DATA.MAX_PIXELS", 178_956_970, "int", "a larger picture counts as unreadable", _AT_LEAST_1),
    Key("DATA.LOADER_TIMEOUT_SECONDS", 600.0, "float", "a batch that takes longer ends the run", _ABOVE_0),
)

_MODEL = (
    Key("MODEL.TYPE", "vit", "text", "family of the model"),
    Key("MODEL.NAME", "vit", "text", "name of a registered model: a family or one of its variants"),
    _optional("MODEL.NUM_CLASSES", "int", "outputs of the classifier; None: the dataset's classes", _AT_LEAST_1),
    _optional(
        "MODEL.PRETRAINED",
        "path",
        "weights to start from or to evaluate, with or without extension; a run's folder: its best, else last",
    ),
    _optional(
        "MODEL.PRETRAINED_PART", "text", "entry of PRETRAINED that is meant, if it has several, such as model_ema"
    ),
    Key("MODEL.MINIMUM_LOADED", 0.9, "float", "training: share of the parameters that PRETRAINED must fill", _SHARE),
    _optional(
        "MODEL.RESUME", "path", "checkpoint to continue from, or a run's folder; auto: the last one in SAVE, if any"
    ),
    Key("MODEL.DROPOUT", 0.0, "float", "probability, after dense layers", _SHARE_BELOW_1),
    Key("MODEL.ATTENTION_DROPOUT", 0.0, "float", "probability, on attention weights", _SHARE_BELOW_1),
    Key("MODEL.DROPPATH", 0.0, "float", "probability of skipping the last residual branch", _SHARE_BELOW_1),
    _dimension("MODEL.PATCH_SIZE", "int", "height and width of a patch in pixels"),
    _dimension("MODEL.EMBED_DIM", "int", "width of a token", or_many=True),
    _dimension("MODEL.NUM_HEADS", "int", "attention heads", or_many=True),
    _dimension("MODEL.ATTN_HEAD_SIZE", "int", "width of a head, else EMBED_DIM / NUM_HEADS"),
    _dimension("MODEL.DEPTH", "int", "blocks"),
    _dimension("MODEL.DEPTHS", "int", "blocks of each stage", or_many=True),
    _dimension("MODEL.DIMS", "int", "channels of each stage", or_many=True),
    _dimension("MODEL.WINDOW_SIZE", "int", "side of a window of attention, in patches"),
    _dimension("MODEL.SR_RATIO", "int", "reduction of keys and values in each stage", or_many=True),
    _dimension("MODEL.DEPTH_TOKEN_ONLY", "int", "blocks in which only the class token changes"),
    _dimension("MODEL.MLP_RATIO", "float", "hidden width of a block's MLP to EMBED_DIM", or_many=True),
    _dimension("MODEL.INIT_VALUES", "float", "first value of the scale of each residual branch"),
    _optional("MODEL.QKV_BIAS", "bool", "bias of queries, keys and values; None: the variant's"),
    _optional("MODEL.LINEAR", "bool", "attention to pooled keys; None: the variant's"),
)

_TRAIN = (
    Key("TRAIN.LAST_EPOCH", 0, "int", "epochs that are already trained", _AT_LEAST_0),
    Key("TRAIN.NUM_EPOCHS", 300, "int", "epochs of the whole training", _AT_LEAST_1),
    _optional(
        "TRAIN.STOP_AFTER_EPOCH", "int", "stop here, on the schedule of NUM_EPOCHS, to resume later", _AT_LEAST_1
    ),
    Key("TRAIN.WARMUP_EPOCHS", 0, "number", "epochs of linear warm-up, a fraction too", _AT_LEAST_0),
    _optional("TRAIN.WARMUP_STEPS", "int", "updates of linear warm-up, instead of WARMUP_EPOCHS", _AT_LEAST_0),
    Key("TRAIN.WEIGHT_DECAY", 0.05, "float", "not on biases, norms, position embeddings and tokens", _AT_LEAST_0),
    Key("TRAIN.BASE_LR", 1e-3, "float", "learning rate after warm-up", _ABOVE_0),
    Key("TRAIN.WARMUP_START_LR", 1e-6, "float", "learning rate at the first update of a warm-up", _AT_LEAST_0),
    Key("TRAIN.END_LR", 0.0, "float", "learning rate at the end (cosine, poly)", _AT_LEAST_0),
    _optional("TRAIN.GRAD_CLIP", "float", "largest global norm of the gradients; None: no clipping", _ABOVE_0),
    Key("TRAIN.ACCUM_ITER", 1, "int", "batches per update", _AT_LEAST_1),
    Key(
        "TRAIN.BATCH_NORM",
        None,
        "text",
        "statistics of the rows of all devices (sync: as one device with the whole batch, 2 small messages a layer) or "
        "of each its own (local: the first one's are used in the end); None: images local, points and volumes sync",
        choices=("sync", "local"),
        optional=True,
    ),
    _optional(
        "TRAIN.BATCH_NORM_MOMENTUM",
        "float",
        "share of its running statistics that a batch norm keeps in a step: Paddle's momentum, which is "
        "1 minus PyTorch's (0.02 there is 0.98 here); None: the model's own",
        _SHARE,
    ),
    Key(
        "TRAIN.EMPTY_CACHE_FREQ",
        None,
        "int",
        "GPU: updates between returning unused memory to the device, 0: never; None: 10 for points, whose batches "
        "differ in size, 0 for others",
        _AT_LEAST_0,
        optional=True,
    ),
    Key(
        "TRAIN.FIND_UNUSED_PARAMETERS",
        False,
        "bool",
        "several devices: parameters that a step does not use get zero gradients; the search takes a few percent",
    ),
    _optional(
        "TRAIN.LINEAR_SCALED_LR", "int", "batch that the learning rates are meant for; None: as given", _AT_LEAST_1
    ),
    Key("TRAIN.SMOOTHING", 0.0, "float", "label smoothing", _SHARE_BELOW_1),
    Key(
        "TRAIN.CLASS_WEIGHTS",
        None,
        "float",
        "weight of each class in the loss, scaled to a mean of 1 over the training set; balanced: 1 / its frequency",
        _AT_LEAST_0,
        many=True,
        optional=True,
        words=("balanced",),
    ),
    Key(
        "TRAIN.DISTILLATION_TYPE",
        "none",
        "text",
        "learn from a teacher too: its decisions (hard) or its distribution (soft)",
        choices=("none", "soft", "hard"),
    ),
    Key("TRAIN.DISTILLATION_ALPHA", 0.5, "float", "share of the teacher in the loss", _SHARE),
    Key("TRAIN.DISTILLATION_TAU", 1.0, "float", "soft: temperature of both distributions", _ABOVE_0),
    _optional("TRAIN.TEACHER_MODEL", "path", "a registered model, or the path of an exported one without extension"),
    _optional("TRAIN.TEACHER_WEIGHTS", "path", "weights of a registered teacher, with or without extension"),
    Key(
        "TRAIN.MODEL_EMA", False, "bool", "keep an exponential moving average of the weights, and choose the best by it"
    ),
    Key("TRAIN.MODEL_EMA_DECAY", 0.99996, "float", "share of the average that an update keeps", _SHARE_BELOW_1),
    _optional(
        "TRAIN.LAYER_DECAY",
        "float",
        "factor of the learning rate from each block to the one before it; None: all learn alike",
        Range(low=0, high=1, low_open=True),
    ),
    Key(
        "TRAIN.FREEZE",
        [],
        "text",
        "names of parameters that stay as they are, with * for any part, such as patch_embed.* or blocks.*",
        many=True,
    ),
    Key(
        "TRAIN.RECOMPUTE",
        False,
        "bool",
        "compute each block again in the backward pass instead of keeping its values: less memory for more time",
    ),
    Key("TRAIN.REPEATED_AUGMENT", 1, "int", "readings of each sample within an epoch of unchanged length", _AT_LEAST_1),
    Key(
        "TRAIN.LR_SCHEDULER.NAME",
        "cosine",
        "text",
        "course of the learning rate after warm-up",
        choices=("cosine", "constant", "step", "poly"),
    ),
    Key("TRAIN.LR_SCHEDULER.MILESTONES", [], "int", "step: epochs at which the rate falls", _AT_LEAST_1, many=True),
    Key("TRAIN.LR_SCHEDULER.GAMMA", 0.1, "float", "step: factor at each milestone", _SHARE_ABOVE_0),
    Key("TRAIN.LR_SCHEDULER.POWER", 0.9, "float", "poly: exponent", _ABOVE_0),
    Key("TRAIN.OPTIMIZER.NAME", "AdamW", "text", "optimizer", choices=("AdamW", "Adam", "SGD")),
    Key("TRAIN.OPTIMIZER.EPS", 1e-8, "float", "AdamW, Adam: added to the denominator", _ABOVE_0),
    Key("TRAIN.OPTIMIZER.BETAS", (0.9, 0.999), "float", "AdamW, Adam: decay of moments", _SHARE_BELOW_1, None, True, 2),
    Key("TRAIN.OPTIMIZER.MOMENTUM", 0.9, "float", "SGD: momentum", _SHARE_BELOW_1),
    Key(
        "TRAIN.OPTIMIZER.DAMPENING",
        0.0,
        "float",
        "SGD: share of each gradient but the first that its momentum leaves out, as PyTorch's",
        _SHARE_BELOW_1,
    ),
)

_AUGMENT = (
    Key("TRAIN.RAND_AUGMENT", False, "switch", "RandAugment: true, or timm's text such as rand-m9-mstd0.5-inc1"),
    Key("TRAIN.RAND_AUGMENT_LAYERS", 2, "int", "RAND_AUGMENT true: operations per image", _AT_LEAST_1),
    Key("TRAIN.RAND_AUGMENT_MAGNITUDE", 9, "int", "RAND_AUGMENT true: strength", Range(low=0, high=10)),
    Key("TRAIN.AUTO_AUGMENT", False, "switch", "without RAND_AUGMENT: true (original), originalr, v0, v0r or 3a"),
    Key("TRAIN.COLOR_JITTER", 0.0, "float", "without RAND_AUGMENT and AUTO_AUGMENT, or with 3a: range", _AT_LEAST_0),
    Key("TRAIN.GRAYSCALE_PROB", 0.0, "float", "probability of a grey image", _SHARE),
    Key("TRAIN.GAUSSIAN_BLUR_PROB", 0.0, "float", "probability of a blur of 0.1 to 2 pixels", _SHARE),
    Key("TRAIN.SOLARIZE_PROB", 0.0, "float", "probability of inverting all values from 128 on", _SHARE),
    Key("TRAIN.RANDOM_ERASE_PROB", 0.0, "float", "probability of erasing boxes of an image", _SHARE),
    Key(
        "TRAIN.RANDOM_ERASE_MODE",
        "pixel",
        "text",
        "boxes become the mean (const), a random colour (rand) or noise (pixel)",
        choices=("const", "rand", "pixel"),
    ),
    Key("TRAIN.RANDOM_ERASE_COUNT", 1, "int", "most boxes of an image", _AT_LEAST_1),
    Key("TRAIN.MIXUP_ALPHA", 0.0, "float", "mixup: of the distribution Beta(alpha, alpha); 0: off", _AT_LEAST_0),
    Key("TRAIN.CUTMIX_ALPHA", 0.0, "float", "cutmix: of the distribution Beta(alpha, alpha); 0: off", _AT_LEAST_0),
    Key(
        "TRAIN.CUTMIX_MINMAX",
        None,
        "float",
        "cutmix: shortest and longest side of the box to the image's, instead of CUTMIX_ALPHA",
        _SHARE_ABOVE_0,
        None,
        True,
        2,
        True,
    ),
    Key("TRAIN.MIXUP_PROB", 1.0, "float", "probability of mixing at all (mixup or cutmix)", _SHARE),
    Key("TRAIN.MIXUP_SWITCH_PROB", 0.5, "float", "probability of cutmix where both are on", _SHARE),
    Key(
        "TRAIN.MIXUP_MODE",
        "batch",
        "text",
        "one draw for a whole batch, for each pair of images or for each image",
        choices=("batch", "pair", "elem"),
    ),
)

_RUN = (
    Key("BASE", [], "text", "YAML files read before this one, relative to it; only inside a file", many=True),
    Key("TASK", "classification", "text", "name of a registered task"),
    Key("SAVE", "./output", "path", "output folder: log, metrics, configuration, checkpoints"),
    Key("SAVE_FREQ", 10, "int", "epochs between kept checkpoints", _AT_LEAST_1),
    Key("SAVE_EVERY_UPDATES", 0, "int", "updates between checkpoints in the middle of epochs; 0: none", _AT_LEAST_0),
    Key("SAVE_EVERY_MINUTES", 30.0, "float", "minutes without a checkpoint until one is saved; 0: none", _AT_LEAST_0),
    Key("KEEP_UPDATES", 2, "int", "how many of the newest checkpoints in the middle of epochs stay", _AT_LEAST_1),
    Key("VALIDATE_FREQ", 1, "int", "epochs between evaluations", _AT_LEAST_1),
    Key("REPORT_FREQ", 20, "int", "updates between lines of the log", _AT_LEAST_1),
    Key("SEED", 0, "int", "seed of everything random", _SEED),
    Key("EVAL", False, "bool", "evaluate only"),
    Key(
        "ALLOW_CHANGES",
        False,
        "bool",
        "evaluate or resume though the checkpoint comes from other settings; what differs is told",
    ),
    Key("SAVE_PREDICTIONS", False, "bool", "with EVAL: write what the model predicts to SAVE/predictions"),
    Key("AMP", False, "bool", "mixed precision in training, on GPUs; weights and checkpoints stay float32"),
    Key("AMP_DTYPE", "float16", "text", "half precision that AMP computes in", choices=("float16", "bfloat16")),
    Key(
        "AMP_LEVEL",
        "O1",
        "text",
        "O1: products and convolutions in half precision; O2: all but norms, sums and the like",
        choices=("O1", "O2"),
    ),
    Key("TO_STATIC", False, "bool", "compile the model's passes with paddle.jit.to_static, in training and evaluation"),
    Key("NGPUS", -1, "int", "devices (without a GPU: processes); -1: all that are visible", Range(low=1, also=(-1,))),
    Key("CPU_TUNING", True, "bool", "set the environment that makes MKL and malloc fast on this processor"),
)

KEYS: dict[str, Key] = {key.name: key for key in (*_DATA, *_MODEL, *_TRAIN, *_AUGMENT, *_RUN, *room_keys())}


def default_config() -> CfgNode:
    """A new tree of all keys with their defaults, not frozen."""
    config = CfgNode()
    for key in KEYS.values():
        default = key.default
        put(config, key.name, type(default)(default) if key.many and default is not None else default)
    return config


def put(config: CfgNode, name: str, value: Any) -> None:
    """Set the dotted ``name`` in the tree; missing sections are made."""
    *sections, last = name.split(".")
    for section in sections:
        if section not in config:
            config[section] = CfgNode()
        config = config[section]
    config[last] = value


def leaves(config: CfgNode, above: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every key in the tree, in its order."""
    for name, value in config.items():
        if isinstance(value, CfgNode):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
