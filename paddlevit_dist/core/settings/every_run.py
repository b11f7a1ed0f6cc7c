"""The keys that every task reads: data and loader, weights, schedule, optimizer, output and devices.

The rules for them are in ``engine.settings``. None means "not set"; the key's meaning names the rule that then decides.
Number of processes and batch size are "neutral": their product is compared as "effective batch". Keys from which
NUM_EPOCHS follows are "neutral", too: NUM_EPOCHS itself is compared.
"""

from collections.abc import Mapping
from typing import Any, Literal

from .key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SEEDS, SHARE, SHARE_BELOW_1, Flag, PathText, Range, Section, key
from .optimizer_keys import LoraSection, LrSchedulerSection, OptimizerSection

DEFAULT_TASK = "classification"


class DataSection(Section):
    """Keys of DATA."""

    BATCH_SIZE: int = key(
        256,
        "training images per device and step",
        AT_LEAST_1,
        effect="neutral",
        flag=Flag("batch_size", "N", "data", 8, "images per device and step, or auto"),
    )
    FIND_BATCH_SIZE: bool = key(
        False,
        "before the run, find the largest BATCH_SIZE that fits in the memory of the GPUs, by trial; the product of "
        "BATCH_SIZE and TRAIN.ACCUM_ITER stays (-batch_size=auto)",
        training_only=True,
        effect="neutral",
    )
    GLOBAL_BATCH_SIZE: int | None = key(
        None,
        "training images per update over all devices; reduced to a quarter of a small training set, but at least 4; a "
        "BATCH_SIZE in a later file or on the command line overrides it",
        AT_LEAST_1,
        training_only=True,
        effect="neutral",
    )
    BATCH_SIZE_EVAL: int | None = key(
        None,
        "evaluation images per device; None: DATA.BATCH_SIZE",
        AT_LEAST_1,
        effect="neutral",
        flag=Flag("batch_size_eval", "N", "data", 9, "images per device in evaluation"),
    )
    DATASET: str = key(
        "digits",
        "name of a registered dataset; guessed if only DATA_PATH is set",
        flag=Flag("dataset", "NAME", "data", 1, "registered name; else guessed from -data_path"),
    )
    DATA_PATH: PathText | None = key(
        None,
        "folder or file of the dataset; not needed for digits",
        effect="machine",
        flag=Flag("data_path", "PATH", "data", 2, "folder or file of the dataset"),
    )
    SPLIT: str = key(
        "val",
        "split that EVAL evaluates, such as test; without labels it is only predicted",
        effect="start",
        flag=Flag("split", "SPLIT", "data", 3, "split to evaluate, or to predict if unlabeled"),
    )
    NUM_WORKERS: int | None = key(
        None,
        "loader processes per device; None: from cores and devices",
        AT_LEAST_0,
        effect="machine",
        flag=Flag("num_workers", "N", "data", 10, "loader processes per device"),
    )
    PREFETCH: int = key(
        2, "batches that each loader process prepares in advance; 1 saves memory", AT_LEAST_1, effect="machine"
    )
    CACHE_FOLDER: PathText | None = key(
        None, "folder for indexes and converted files, shared by runs; None: SAVE/data", effect="machine"
    )
    LOADER_TIMEOUT_SECONDS: float = key(
        600.0, "time limit for a batch, after which the run ends", ABOVE_0, effect="machine"
    )


class ModelSection(Section):
    """Keys of MODEL."""

    TYPE: str = key("vit", "family of the model", effect="training")
    NAME: str = key("vit", "name of a registered model: a family or one of its variants")
    OPTIONS: Mapping[str, Any] | None = key(
        None, "options of the network by the names of its parameters, such as {pool: average}; None: the variant's"
    )
    NUM_CLASSES: int | None = key(
        None,
        "classes of the classifier; None: as in the dataset",
        Range(low=1, high=10**8),
        effect="training",
        flag=Flag("num_classes", "N", "model", 1, "classes; default: as in the dataset"),
    )
    PRETRAINED: PathText | None = key(
        None,
        "weights to start from or to evaluate: a file, with or without extension; a run folder (its best weights, else "
        "its last); a URL; or a name such as vit_small_patch16_224.augreg_in21k_ft_in1k",
        effect="start",
        flag=Flag("pretrained", "PATH", "model", 2, "weights: file, run folder, URL or name"),
    )
    PRETRAINED_REQUIRED: bool = key(
        False,
        "require PRETRAINED or RESUME in training; MODEL.NAME and a PRETRAINED that is a name then imply each other",
        training_only=True,
        effect="start",
    )
    PRETRAINED_PART: str | None = key(
        None,
        "entry of the pretrained weights to use if they have several, or what its names begin with: model_ema, student",
        effect="start",
    )
    MIN_LOADED_FRACTION: float = key(
        0.9,
        "fraction of the parameters that PRETRAINED must fill in training",
        SHARE,
        training_only=True,
        effect="start",
    )
    RESUME: PathText | None = key(
        None,
        "checkpoint or run folder to resume from; auto: the latest in SAVE, if any",
        effect="start",
        flag=Flag("resume", "PATH", "model", 3, "run or checkpoint; auto: the latest, if any"),
    )


class TrainSection(Section):
    """Keys of TRAIN."""

    LAST_EPOCH: int = key(
        0, "epochs already trained", AT_LEAST_0, effect="start", flag=Flag("last_epoch", "N", "training", 4)
    )
    NUM_EPOCHS: int = key(
        300, "epochs of the training run", Range(low=1, high=1_000_000), flag=Flag("epochs", "N", "training", 1)
    )
    NUM_SAMPLES: int | None = key(
        None,
        "total training samples; NUM_EPOCHS follows from the size of the training set; a NUM_EPOCHS in a later file or "
        "on the command line overrides it",
        Range(low=1, high=1e15),
        effect="neutral",
    )
    EPOCH_LIMITS: tuple[int, int] = key(
        (10, 100), "minimum and maximum epochs for NUM_SAMPLES", AT_LEAST_1, effect="neutral"
    )
    STOP_AFTER_EPOCH: int | None = key(
        None,
        "epoch to stop after, to resume later; the schedule follows NUM_EPOCHS",
        AT_LEAST_1,
        effect="neutral",
        flag=Flag("stop_after_epoch", "N", "training", 2, "stop early, to resume later; same schedule"),
    )
    PATIENCE: int = key(
        0,
        "early stopping: evaluations in a row without a better score than the best checkpoint's before the run ends; "
        "0: never",
        AT_LEAST_0,
        effect="neutral",
    )
    MIN_IMPROVEMENT: float = key(
        0.0,
        "smallest improvement that resets PATIENCE, in the unit of the score in metrics.jsonl",
        AT_LEAST_0,
        effect="neutral",
    )
    WARMUP_EPOCHS: int | float = key(0, "epochs of linear warm-up, fractions allowed", AT_LEAST_0, counts="epochs")
    WARMUP_STEPS: int | None = key(
        None, "updates of linear warm-up; overrides WARMUP_EPOCHS", AT_LEAST_0, counts="updates"
    )
    WEIGHT_DECAY: float = key(
        0.05, "weight decay, except for biases, norms, position embeddings and tokens", AT_LEAST_0
    )
    WEIGHT_DECAY_END: float | None = key(
        None, "weight decay at the end, to which WEIGHT_DECAY moves by a cosine; None: it is constant", AT_LEAST_0
    )
    BASE_LR: float = key(1e-3, "learning rate after warm-up", ABOVE_0)
    WARMUP_START_LR: float = key(1e-6, "learning rate at the first update of the warm-up", AT_LEAST_0)
    END_LR: float = key(0.0, "learning rate at the end (cosine, poly)", AT_LEAST_0)
    GRAD_CLIP: float | None = key(None, "maximum norm of the gradients, see GRAD_CLIP_MODE; None: no clipping", ABOVE_0)
    GRAD_CLIP_MODE: Literal["global", "tensor"] = key(
        "global", "norm that GRAD_CLIP limits: of all gradients together (global), or of each tensor's own (tensor)"
    )
    MAX_SKIPPED_UPDATES: int = key(
        5,
        "updates in a row with a non-finite loss or gradient that end the run; each is skipped; AMP with float16 "
        "allows 50 more for its loss scaler",
        AT_LEAST_1,
        effect="neutral",
    )
    ACCUM_ITER: int = key(
        1, "batches per update", AT_LEAST_1, effect="neutral", flag=Flag("accum_iter", "N", "training", 5)
    )
    BATCH_NORM: Literal["sync", "local"] | None = key(
        None,
        "batch-norm statistics: sync: over all devices, with 2 small messages per layer; local: per device, and "
        "rank 0's running statistics are saved. None: sync for points, volumes and segmentation, and on several GPUs "
        "with fewer than 32 samples each; otherwise local",
    )
    BATCH_NORM_MOMENTUM: float | None = key(
        None,
        "momentum of batch-norm running statistics, as in Paddle: 1 minus PyTorch's (0.02 there is 0.98 here); "
        "None: the model's own",
        SHARE,
    )
    TF32: bool = key(
        True,
        "compute float32 products and convolutions in TF32 (10-bit mantissa) on GPUs that support it (Ampere and "
        "later); False: full float32",
        training_only=False,
        effect="score",
    )
    BUCKET_MEGABYTES: int = key(
        25,
        "size in MiB of the gradient buckets that devices exchange; smaller ones overlap more of the backward pass, "
        "larger ones cost less to send",
        AT_LEAST_1,
        effect="neutral",
    )
    CAPTURE: Literal[True, False, "auto"] = key(
        "auto",
        "on CUDA GPUs, launch forward and backward passes of a task and network that allow it as a graph, by one call "
        "of the host, after a comparison with the passes themselves; auto: for image classification on one GPU, in "
        "runs of 300 updates or more",
        effect="neutral",
    )
    FIND_UNUSED_PARAMETERS: bool = key(
        False,
        "on several devices, give parameters that a step does not use zero gradients; costs a few percent",
        effect="neutral",
    )
    LINEAR_SCALED_LR: int | None = key(
        None,
        "batch size from which the learning rates are scaled linearly; None: unscaled",
        AT_LEAST_1,
    )
    MODEL_EMA: bool = key(
        False, "keep an exponential moving average of the weights, and select the best checkpoint by it"
    )
    MODEL_EMA_DECAY: float = key(0.99996, "decay of the moving average per update", SHARE_BELOW_1)
    MODEL_EMA_WARMUP: int = key(
        0,
        "updates after which the decay has risen to 63 % of MODEL_EMA_DECAY; 0: constant decay",
        AT_LEAST_0,
    )
    LAYER_DECAY: float | None = key(
        None,
        "layer-wise learning rate decay: factor from each block to the one before it; None: no decay",
        Range(low=0, high=1, low_open=True),
    )
    FREEZE: list[str] = key(
        [],
        "parameters to freeze, with * as a wildcard, such as patch_embed.* or blocks.*; a batch norm that is frozen "
        "keeps its running statistics, and normalizes by them",
    )
    SHARDING: Literal["optimizer"] | None = key(
        None,
        "optimizer: each device keeps the optimizer's state and the averaged weights of its share of the parameters "
        "only, and broadcasts the share after each update; None: all devices keep all",
        effect="neutral",
    )
    RECOMPUTE: bool = key(
        False,
        "recompute blocks in the backward pass instead of storing activations: less memory, more time",
        effect="neutral",
        flag=Flag("recompute", None, "training", 7, "less memory, slower backward pass"),
    )
    REPEATED_AUGMENT: int = key(
        1, "repeated augmentation: copies of each sample in an epoch of unchanged length", AT_LEAST_1
    )
    LORA: LoraSection
    LR_SCHEDULER: LrSchedulerSection
    OPTIMIZER: OptimizerSection


class EvaluationSection(Section):
    """Keys of EVALUATION."""

    INTERVAL: Literal[False, 95, 99] = key(
        95,
        "percent of the confidence interval that is reported with the main score; off: none",
        effect="neutral",
        flag=Flag("interval", "PERCENT", "data", 4, "confidence level: 95, 99, or off"),
    )
    RESAMPLES: int = key(1000, "half samples for INTERVAL", Range(low=100, high=1_000_000), effect="neutral")
    GROUP: PathText | None = key(
        None,
        "groups (patients, videos, places) that INTERVAL takes as a whole: a file sample,group; a column, "
        "FILE:COLUMN; or a name that the dataset defines, such as scene for ScanNet",
        effect="neutral",
        flag=Flag("group", "FILE", "data", 5, "table of sample,group to resample as groups"),
    )


class RunSettings(Section):
    """The keys that all tasks share."""

    DATA: DataSection
    MODEL: ModelSection
    TRAIN: TrainSection
    BASE: list[str] = key(
        [], "YAML files to read before this one, with paths relative to it; only in a file", effect="place"
    )
    IMPORTS: list[str] = key(
        [],
        "your Python modules or files to import in every process",
        effect="place",
        flag=Flag("import", "MODULE", "run", 2, "your module or file, imported in every process"),
    )
    TASK: str = key(DEFAULT_TASK, "name of a registered task", effect="network")
    SAVE: PathText = key(
        "./output",
        "output folder for log, metrics, configuration and checkpoints; not set: a numbered one in ./output with the "
        "recipe's name, such as vit_digits-2, for an evaluation vit_digits_eval",
        effect="place",
        flag=Flag("output", "FOLDER", "run", 4, "output folder (default: a new one in ./output)"),
    )
    SAVE_FREQ: int = key(10, "epochs between permanent checkpoints", AT_LEAST_1, training_only=True, effect="neutral")
    SAVE_EVERY_UPDATES: int = key(
        0, "updates between mid-epoch checkpoints; 0: never", AT_LEAST_0, training_only=True, effect="neutral"
    )
    SAVE_EVERY_MINUTES: float = key(
        30.0,
        "minutes after the last checkpoint until one is saved; 0: never",
        AT_LEAST_0,
        training_only=True,
        effect="neutral",
    )
    SAVE_IN_BACKGROUND: bool = key(
        True, "write checkpoints while training continues; False saves memory", training_only=True, effect="neutral"
    )
    KEEP_EPOCHS: int = key(
        1, "number of newest epoch checkpoints that are always kept", AT_LEAST_1, training_only=True, effect="neutral"
    )
    KEEP_UPDATES: int = key(
        2, "number of newest mid-epoch checkpoints to keep", AT_LEAST_1, training_only=True, effect="neutral"
    )
    STOP_AFTER_SECONDS: float | None = key(
        None,
        "seconds after the command's start at which to save and stop, with exit code 75",
        ABOVE_0,
        training_only=True,
        effect="neutral",
        flag=Flag("stop_after_seconds", "N", "training", 3, "save and stop after N s, with exit code 75"),
    )
    VALIDATE_FREQ: int = key(1, "epochs between evaluations", AT_LEAST_1, training_only=True, effect="neutral")
    REPORT_FREQ: int = key(20, "updates between log lines", AT_LEAST_1, training_only=True, effect="neutral")
    LOG_TO: list[str] = key(
        [],
        "loggers: tensorboard, visualdl, wandb, mlflow, or your own callbacks",
        training_only=True,
        effect="machine",
        flag=Flag("log_to", "NAMES", "training", 8, "loggers such as tensorboard, or your callbacks"),
    )
    SEED: int = key(
        0, "seed of all random number generators", SEEDS, effect="training", flag=Flag("seed", "N", "machine", 3)
    )
    DETERMINISTIC: bool = key(
        False,
        "use kernels with bitwise reproducible results on GPUs where Paddle has them; some are slower",
        effect="neutral",
    )
    EVAL: bool = key(False, "evaluate only", effect="start", flag=Flag("eval", None, "run", 3))
    ALLOW_CHANGES: bool = key(
        False,
        "evaluate or resume although settings or files have changed or evaluation samples were trained on, or start "
        "from weights that lack tensors; differences are reported",
        effect="start",
        flag=Flag("allow_changes", None, "model", 4, "continue despite changed settings or files"),
    )
    EVALUATION: EvaluationSection
    SAVE_PREDICTIONS: bool = key(
        False, "write the model's predictions to SAVE/predictions; needs EVAL", effect="neutral"
    )
    AMP: bool = key(
        False,
        "mixed precision in training, on GPUs; weights and checkpoints stay float32",
        training_only=True,
        flag=Flag("amp", None, "training", 6, "mixed precision, on GPUs"),
    )
    EVAL_AMP: bool = key(
        False,
        "mixed precision in evaluation and prediction, on GPUs; results differ and are marked as such",
        effect="neutral",
    )
    AMP_DTYPE: Literal["float16", "bfloat16"] = key(
        "float16", "half-precision type of AMP and EVAL_AMP", effect="training"
    )
    AMP_LEVEL: Literal["O1", "O2"] = key(
        "O1",
        "O1: matrix products and the operations that depend only on them in half precision; O2: also softmax and norms "
        "with half-precision input (a ViT with fused attention has none); weights and gradients are float32 in both",
        effect="training",
    )
    TO_STATIC: bool = key(
        False,
        "compile the model with paddle.jit.to_static for training on CPUs and for evaluation; refused for training on "
        "GPUs, where the gradients of biases would be slow: 0.8 of the speed without it (ViT-Ti, H100)",
        effect="neutral",
    )
    NGPUS: int = key(
        -1,
        "devices, or processes without a GPU; -1: all visible devices",
        Range(low=1, also=(-1,)),
        effect="machine",
        flag=Flag("ngpus", "N", "machine", 1, "devices, or processes on a CPU; -1: all visible"),
    )
    DEVICE: str = key(
        "auto",
        "kind of device: gpu, cpu, xpu, npu or another of Paddle's; auto: an accelerator if there is one",
        effect="machine",
        flag=Flag("device", "KIND", "machine", 2, "gpu, cpu, npu, ...; auto: an accelerator if any"),
    )
    WATCHDOG_SECONDS: float = key(
        300.0,
        "seconds without progress after which a process ends the run of several; waiting for other processes or for "
        "data does not count",
        ABOVE_0,
        effect="machine",
    )
    CPU_TUNING: bool = key(
        True, "set environment variables that make MKL and malloc fast on this processor", effect="machine"
    )
