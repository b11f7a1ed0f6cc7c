"""The keys that every run reads, whatever its task: data and loader, weights, schedule, optimizer, output and devices.

None means "not set": the rule named in the meaning decides.
"""

from collections.abc import Mapping, Sequence

from yacs.config import CfgNode

from ..checkpoint.published import published
from ..settings import run_length
from ..settings.key import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    COMMAND_LINE,
    SEEDS,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    Key,
    Range,
    Setting,
    Table,
    optional,
)
from ..settings.own_imports import KEY as IMPORTS
from .settings_checks import check, unused

_DATA = (
    Key("DATA.BATCH_SIZE", 256, "int", "training images per device and step", AT_LEAST_1),
    optional(
        "DATA.GLOBAL_BATCH_SIZE",
        "int",
        "training images per update, shared among the devices; of a small training set a quarter, or four; a "
        "BATCH_SIZE of a later file or of the command line takes its place",
        AT_LEAST_1,
    ),
    optional("DATA.BATCH_SIZE_EVAL", "int", "evaluation images per device; None: DATA.BATCH_SIZE", AT_LEAST_1),
    Key("DATA.DATASET", "digits", "text", "name of a registered dataset; with DATA_PATH alone it is guessed"),
    optional("DATA.DATA_PATH", "path", "folder or file of the dataset; not needed for digits"),
    Key("DATA.SPLIT", "val", "text", "with EVAL: what is evaluated, such as test; without labels it is predicted only"),
    optional("DATA.NUM_WORKERS", "int", "loader processes per device; None: from cores and devices", AT_LEAST_0),
    Key("DATA.PREFETCH", 2, "int", "batches that each loader process makes in advance; 1 saves memory", AT_LEAST_1),
    optional("DATA.CACHE_FOLDER", "path", "folder for indexes and converted files, to share them; None: SAVE/data"),
    Key("DATA.LOADER_TIMEOUT_SECONDS", 600.0, "float", "a batch that takes longer ends the run", ABOVE_0),
)

_MODEL = (
    Key("MODEL.TYPE", "vit", "text", "family of the model"),
    Key("MODEL.NAME", "vit", "text", "name of a registered model: a family or one of its variants"),
    optional(
        "MODEL.NUM_CLASSES", "int", "outputs of the classifier; None: the dataset's classes", Range(low=1, high=10**8)
    ),
    optional(
        "MODEL.PRETRAINED",
        "path",
        "weights to start from or to evaluate: a file, with or without extension; a run's folder: its best, else last; "
        "an address; or a name such as vit_small_patch16_224.augreg_in21k_ft_in1k",
    ),
    Key(
        "MODEL.PRETRAINED_REQUIRED",
        False,
        "bool",
        "a training that neither starts from PRETRAINED nor resumes is refused; MODEL.NAME and a PRETRAINED that is a "
        "name follow one another",
    ),
    optional("MODEL.PRETRAINED_PART", "text", "entry of PRETRAINED to use if it has several, such as model_ema"),
    Key("MODEL.MINIMUM_LOADED", 0.9, "float", "training: share of the parameters that PRETRAINED must fill", SHARE),
    optional(
        "MODEL.RESUME", "path", "checkpoint to resume from, or a run's folder; auto: the last one in SAVE, if any"
    ),
)

_TRAIN = (
    Key("TRAIN.LAST_EPOCH", 0, "int", "epochs already trained", AT_LEAST_0),
    Key("TRAIN.NUM_EPOCHS", 300, "int", "epochs of the whole training run", Range(low=1, high=1_000_000)),
    optional(
        "TRAIN.NUM_SAMPLES",
        "int",
        "samples that the training reads in all: NUM_EPOCHS follows from the size of the training set; a NUM_EPOCHS of "
        "a later file or of the command line takes its place",
        Range(low=1, high=1e15),
    ),
    Key("TRAIN.EPOCH_LIMITS", (10, 100), "int", "NUM_SAMPLES: fewest and most epochs", AT_LEAST_1, None, True, 2),
    optional("TRAIN.STOP_AFTER_EPOCH", "int", "stop here, keeping NUM_EPOCHS' schedule, to resume later", AT_LEAST_1),
    Key(
        "TRAIN.PATIENCE",
        0,
        "int",
        "the training ends after this many evaluations in a row that do not improve the score of the best checkpoint; "
        "0: never early",
        AT_LEAST_0,
    ),
    Key(
        "TRAIN.MIN_IMPROVEMENT",
        0.0,
        "float",
        "PATIENCE: only more than this is an improvement, in the unit of the score in metrics.jsonl",
        AT_LEAST_0,
    ),
    Key("TRAIN.WARMUP_EPOCHS", 0, "number", "epochs of linear warm-up, fractions allowed", AT_LEAST_0),
    optional("TRAIN.WARMUP_STEPS", "int", "updates of linear warm-up, instead of WARMUP_EPOCHS", AT_LEAST_0),
    Key("TRAIN.WEIGHT_DECAY", 0.05, "float", "not on biases, norms, position embeddings and tokens", AT_LEAST_0),
    Key("TRAIN.BASE_LR", 1e-3, "float", "learning rate after warm-up", ABOVE_0),
    Key("TRAIN.WARMUP_START_LR", 1e-6, "float", "learning rate at the first update of a warm-up", AT_LEAST_0),
    Key("TRAIN.END_LR", 0.0, "float", "learning rate at the end (cosine, poly)", AT_LEAST_0),
    optional("TRAIN.GRAD_CLIP", "float", "largest global norm of the gradients; None: no clipping", ABOVE_0),
    Key(
        "TRAIN.MAX_SKIPPED_UPDATES",
        5,
        "int",
        "this many updates in a row whose loss or gradients are not finite end the run, each is skipped; AMP with "
        "float16: 50 more, which its loss scaler may need",
        AT_LEAST_1,
    ),
    Key("TRAIN.ACCUM_ITER", 1, "int", "batches per update", AT_LEAST_1),
    Key(
        "TRAIN.BATCH_NORM",
        None,
        "text",
        "statistics of the rows of all devices (sync: as one device with the whole batch, 2 small messages a layer) or "
        "of each its own (local: the first one's are used in the end); None: sync for points, volumes and "
        "segmentation, and on GPUs "
        "where there are several with fewer than 32 samples each; local else",
        choices=("sync", "local"),
        optional=True,
    ),
    optional(
        "TRAIN.BATCH_NORM_MOMENTUM",
        "float",
        "share of its running statistics that a batch norm keeps in a step: Paddle's momentum, which is "
        "1 minus PyTorch's (0.02 there is 0.98 here); None: the model's own",
        SHARE,
    ),
    Key(
        "TRAIN.TF32",
        True,
        "bool",
        "GPU: products and convolutions of float32 round their factors to TF32, 10 bits behind the point, on GPUs that "
        "have it (from Ampere on); False: float32 throughout",
    ),
    Key(
        "TRAIN.BUCKET_MEGABYTES",
        25,
        "int",
        "several devices: gradients travel together until they are this many MiB; fewer overlap more of the backward "
        "pass, more are cheaper to send",
        AT_LEAST_1,
    ),
    Key(
        "TRAIN.FIND_UNUSED_PARAMETERS",
        False,
        "bool",
        "several devices: parameters that a step does not use get zero gradients; the search takes a few percent",
    ),
    optional(
        "TRAIN.LINEAR_SCALED_LR", "int", "batch that the learning rates are meant for; None: as given", AT_LEAST_1
    ),
    Key(
        "TRAIN.MODEL_EMA", False, "bool", "keep an exponential moving average of the weights, and choose the best by it"
    ),
    Key("TRAIN.MODEL_EMA_DECAY", 0.99996, "float", "share of the average that an update keeps", SHARE_BELOW_1),
    optional(
        "TRAIN.LAYER_DECAY",
        "float",
        "factor of the learning rate from each block to the one before it; None: the same for all",
        Range(low=0, high=1, low_open=True),
    ),
    Key(
        "TRAIN.FREEZE",
        [],
        "text",
        "names of parameters to freeze, with * for any part, such as patch_embed.* or blocks.*",
        many=True,
    ),
    Key(
        "TRAIN.RECOMPUTE",
        False,
        "bool",
        "recompute each block in the backward pass instead of keeping its values: less memory for more time",
    ),
    Key("TRAIN.REPEATED_AUGMENT", 1, "int", "readings of each sample within an epoch of unchanged length", AT_LEAST_1),
    Key(
        "TRAIN.LR_SCHEDULER.NAME",
        "cosine",
        "text",
        "learning rate schedule after warm-up",
        choices=("cosine", "constant", "step", "poly", "onecycle"),
    ),
    Key("TRAIN.LR_SCHEDULER.MILESTONES", [], "int", "step: epochs at which the rate falls", AT_LEAST_1, many=True),
    Key("TRAIN.LR_SCHEDULER.GAMMA", 0.1, "float", "step: factor at each milestone", SHARE_ABOVE_0),
    Key("TRAIN.LR_SCHEDULER.POWER", 0.9, "float", "poly: exponent", ABOVE_0),
    Key("TRAIN.OPTIMIZER.NAME", "AdamW", "text", "optimizer", choices=("AdamW", "Adam", "SGD")),
    Key("TRAIN.OPTIMIZER.EPS", 1e-8, "float", "AdamW, Adam: added to the denominator", ABOVE_0),
    Key("TRAIN.OPTIMIZER.BETAS", (0.9, 0.999), "float", "AdamW, Adam: decay of moments", SHARE_BELOW_1, None, True, 2),
    Key("TRAIN.OPTIMIZER.MOMENTUM", 0.9, "float", "SGD: momentum", SHARE_BELOW_1),
    Key(
        "TRAIN.OPTIMIZER.DAMPENING",
        0.0,
        "float",
        "SGD: share of each gradient but the first that its momentum leaves out, as PyTorch's",
        SHARE_BELOW_1,
    ),
    Key(
        "TRAIN.OPTIMIZER.FUSED",
        True,
        "bool",
        "all parameters at once: on a CPU, from a million on, in one compiled pass with the bits of Paddle's own "
        "updates; else AdamW and SGD by operations that take lists. False: one by one, as Paddle does",
    ),
)

_RUN = (
    Key("BASE", [], "text", "YAML files read before this one, relative to it; only inside a file", many=True),
    IMPORTS,
    Key("TASK", "classification", "text", "name of a registered task"),
    Key(
        "SAVE",
        "./output",
        "path",
        "output folder: log, metrics, configuration, checkpoints; not set: one in ./output, named by the recipe and "
        "numbered, such as vit_digits-2; of an evaluation vit_digits_eval",
    ),
    Key("SAVE_FREQ", 10, "int", "epochs between checkpoints that are kept", AT_LEAST_1),
    Key("SAVE_EVERY_UPDATES", 0, "int", "updates between mid-epoch checkpoints; 0: none", AT_LEAST_0),
    Key("SAVE_EVERY_MINUTES", 30.0, "float", "minutes without a checkpoint until one is saved; 0: none", AT_LEAST_0),
    Key("SAVE_IN_BACKGROUND", True, "bool", "go on training while a copy of the state is written; False saves memory"),
    Key("KEEP_EPOCHS", 1, "int", "how many of the newest checkpoints of epochs are kept in any case", AT_LEAST_1),
    Key("KEEP_UPDATES", 2, "int", "how many of the newest mid-epoch checkpoints are kept", AT_LEAST_1),
    optional(
        "STOP_AFTER_SECONDS", "float", "save and stop, with exit code 75, this long after the command's start", ABOVE_0
    ),
    Key("VALIDATE_FREQ", 1, "int", "epochs between evaluations", AT_LEAST_1),
    Key("REPORT_FREQ", 20, "int", "updates between lines of the log", AT_LEAST_1),
    Key("LOG_TO", [], "text", "tensorboard, visualdl, wandb, mlflow, or names of your own callbacks", many=True),
    Key("SEED", 0, "int", "seed of all random number generators", SEEDS),
    Key(
        "DETERMINISTIC",
        False,
        "bool",
        "GPU: take kernels whose results repeat bit for bit where there are any, some of them slower",
    ),
    Key("EVAL", False, "bool", "evaluate only"),
    Key(
        "ALLOW_CHANGES",
        False,
        "bool",
        "evaluate or resume even if the checkpoint has other settings or files, or has been trained on what is "
        "evaluated; differences are reported",
    ),
    Key(
        "EVALUATION.INTERVAL",
        95,
        "switch",
        "percent of the interval that stands beside the main score of an evaluation, by bootstrap over its samples; "
        "off: none",
        choices=(False, 95, 99),
    ),
    Key(
        "EVALUATION.RESAMPLES",
        1000,
        "int",
        "INTERVAL: sets of samples drawn with replacement from those that were evaluated",
        Range(low=100, high=1_000_000),
    ),
    optional(
        "EVALUATION.GROUP",
        "path",
        "INTERVAL: samples of one patient, video or place are drawn together: a file sample,group, a column of one as "
        "FILE:COLUMN, or a word of the data set, such as scene of ScanNet's",
    ),
    Key("SAVE_PREDICTIONS", False, "bool", "with EVAL: write what the model predicts to SAVE/predictions"),
    Key("AMP", False, "bool", "mixed precision in training, on GPUs; weights and checkpoints stay float32"),
    Key(
        "EVAL_AMP",
        False,
        "bool",
        "mixed precision in evaluation and prediction, on GPUs; it gives other numbers, and stands beside them",
    ),
    Key(
        "AMP_DTYPE",
        "float16",
        "text",
        "half precision that AMP and EVAL_AMP compute in",
        choices=("float16", "bfloat16"),
    ),
    Key(
        "AMP_LEVEL",
        "O1",
        "text",
        "O1: products, and what follows from them alone, in half precision; O2: softmax and norms as well",
        choices=("O1", "O2"),
    ),
    Key("TO_STATIC", False, "bool", "compile the model's passes with paddle.jit.to_static, in training and evaluation"),
    Key("NGPUS", -1, "int", "devices (without a GPU: processes); -1: all visible ones", Range(low=1, also=(-1,))),
    Key(
        "WATCHDOG_SECONDS",
        300.0,
        "float",
        "several processes: one that makes no progress for this long, other than waiting for the others or for data, "
        "ends the run",
        ABOVE_0,
    ),
    Key("CPU_TUNING", True, "bool", "set the environment that makes MKL and malloc fast on this processor"),
)


def _complete(values: CfgNode, settings: Mapping[str, Setting], all_settings: Sequence[Setting]) -> list[str]:
    _leave_out_start(values, settings)
    (epochs,) = (key for key in _TRAIN if key.name == "TRAIN.NUM_EPOCHS")
    notices = run_length.settle(values, settings, all_settings)
    return notices + run_length.shorten_warmup(values, settings, all_settings, epochs)


def _leave_out_start(values: CfgNode, settings: Mapping[str, Setting]) -> None:
    """An evaluation looks at a run, not at what its recipe starts from."""
    model, given = values.MODEL, settings.get("MODEL.PRETRAINED")
    is_of_recipe = model.PRETRAINED_REQUIRED and given is not None and given.source != COMMAND_LINE
    if values.EVAL and is_of_recipe and published(model.PRETRAINED) is not None:
        model.PRETRAINED = None


TABLE = Table(
    keys=(*_DATA, *_MODEL, *_TRAIN, *_RUN),
    training=(
        *(key.name for key in _TRAIN if key.name != "TRAIN.TF32"),
        *("MODEL.MINIMUM_LOADED", "MODEL.PRETRAINED_REQUIRED", "DATA.GLOBAL_BATCH_SIZE"),
        *("SAVE_FREQ", "SAVE_EVERY_UPDATES", "SAVE_EVERY_MINUTES", "SAVE_IN_BACKGROUND", "KEEP_EPOCHS", "KEEP_UPDATES"),
        "STOP_AFTER_SECONDS",
        *("VALIDATE_FREQ", "REPORT_FREQ", "LOG_TO"),
        "AMP",
    ),
    # Processes and batches change no number: they count by their product, which is compared as "effective batch"; and
    # what follows from the size of the training set counts by what followed, NUM_EPOCHS.
    effects={
        "network": ("TASK",),
        "score": ("TRAIN.TF32",),
        "training": ("MODEL.TYPE", "MODEL.NUM_CLASSES", "SEED", "AMP", "AMP_DTYPE", "AMP_LEVEL"),
        "neutral": (
            *("DATA.BATCH_SIZE", "DATA.GLOBAL_BATCH_SIZE", "DATA.BATCH_SIZE_EVAL", "TRAIN.ACCUM_ITER"),
            *("TRAIN.NUM_SAMPLES", "TRAIN.EPOCH_LIMITS", "TRAIN.STOP_AFTER_EPOCH", "TRAIN.MAX_SKIPPED_UPDATES"),
            *("TRAIN.PATIENCE", "TRAIN.MIN_IMPROVEMENT"),
            *("TRAIN.BUCKET_MEGABYTES", "TRAIN.FIND_UNUSED_PARAMETERS", "TRAIN.RECOMPUTE"),
            *("TRAIN.OPTIMIZER.FUSED", "SAVE_FREQ", "SAVE_EVERY_UPDATES", "SAVE_EVERY_MINUTES", "SAVE_IN_BACKGROUND"),
            *("KEEP_EPOCHS", "KEEP_UPDATES", "STOP_AFTER_SECONDS", "VALIDATE_FREQ", "REPORT_FREQ", "DETERMINISTIC"),
            *("EVALUATION.", "SAVE_PREDICTIONS", "EVAL_AMP", "TO_STATIC"),
        ),
        "machine": (
            *("DATA.DATA_PATH", "DATA.NUM_WORKERS", "DATA.PREFETCH", "DATA.CACHE_FOLDER"),
            *("DATA.LOADER_TIMEOUT_SECONDS", "LOG_TO", "NGPUS", "WATCHDOG_SECONDS", "CPU_TUNING"),
        ),
        "start": (
            *("DATA.SPLIT", "MODEL.PRETRAINED", "MODEL.PRETRAINED_REQUIRED", "MODEL.PRETRAINED_PART"),
            *("MODEL.MINIMUM_LOADED", "MODEL.RESUME", "TRAIN.LAST_EPOCH", "EVAL", "ALLOW_CHANGES"),
        ),
        "place": ("BASE", "IMPORTS", "SAVE"),
    },
    complete=_complete,
    check=check,
    unused=unused,
    renamed_values={
        ("TRAIN.LR_SCHEDULER.NAME", "warmupcosine"): "cosine",
        ("TO_STATIC", "auto"): False,  # a trial, which is gone
    },
    gone={
        "TRAIN.LR_SCHEDULER.PCT_START": (0.3, "it is 0.3; leave it out"),
        "TRAIN.LR_SCHEDULER.DIV_FACTOR": (25.0, "it is 25; leave it out"),
        "TRAIN.LR_SCHEDULER.FINAL_DIV_FACTOR": (1e4, "it is 10000; leave it out"),
    },
    dropped={
        "TRAIN.EMPTY_CACHE_FREQ": "point clouds empty a GPU's cache after each tenth update",
        "TAG": "runs are told apart by their output folder",
        "LOCAL_RANK": "each process knows its rank",
        "TRAIN.MODEL_EMA_FORCE_CPU": "averaged weights live on the device",
    },
)
