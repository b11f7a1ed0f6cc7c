"""The keys that every run reads, whatever its task: data and loader, weights, schedule, optimizer, output and devices.
Their rules are in ``engine.settings``.

None means "not set": the rule named in the meaning decides.
"""

from typing import Literal

from .key import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SEEDS, SHARE, SHARE_ABOVE_0, SHARE_BELOW_1, Range
from .section import PathText, Section, key


class DataSection(Section):
    BATCH_SIZE: int = key(256, "training images per device and step", AT_LEAST_1)
    GLOBAL_BATCH_SIZE: int | None = key(
        None,
        "training images per update, shared among the devices; of a small training set a quarter, or four; a "
        "BATCH_SIZE of a later file or of the command line takes its place",
        AT_LEAST_1,
    )
    BATCH_SIZE_EVAL: int | None = key(None, "evaluation images per device; None: DATA.BATCH_SIZE", AT_LEAST_1)
    DATASET: str = key("digits", "name of a registered dataset; with DATA_PATH alone it is guessed")
    DATA_PATH: PathText | None = key(None, "folder or file of the dataset; not needed for digits")
    SPLIT: str = key("val", "with EVAL: what is evaluated, such as test; without labels it is predicted only")
    NUM_WORKERS: int | None = key(None, "loader processes per device; None: from cores and devices", AT_LEAST_0)
    PREFETCH: int = key(2, "batches that each loader process makes in advance; 1 saves memory", AT_LEAST_1)
    CACHE_FOLDER: PathText | None = key(None, "folder for indexes and converted files, to share them; None: SAVE/data")
    LOADER_TIMEOUT_SECONDS: float = key(600.0, "a batch that takes longer ends the run", ABOVE_0)


class ModelSection(Section):
    TYPE: str = key("vit", "family of the model")
    NAME: str = key("vit", "name of a registered model: a family or one of its variants")
    NUM_CLASSES: int | None = key(
        None, "outputs of the classifier; None: the dataset's classes", Range(low=1, high=10**8)
    )
    PRETRAINED: PathText | None = key(
        None,
        "weights to start from or to evaluate: a file, with or without extension; a run's folder: its best, else last; "
        "an address; or a name such as vit_small_patch16_224.augreg_in21k_ft_in1k",
    )
    PRETRAINED_REQUIRED: bool = key(
        False,
        "a training that neither starts from PRETRAINED nor resumes is refused; MODEL.NAME and a PRETRAINED that is a "
        "name follow one another",
    )
    PRETRAINED_PART: str | None = key(None, "entry of PRETRAINED to use if it has several, such as model_ema")
    MIN_LOADED_FRACTION: float = key(0.9, "training: share of the parameters that PRETRAINED must fill", SHARE)
    RESUME: PathText | None = key(
        None, "checkpoint to resume from, or a run's folder; auto: the last one in SAVE, if any"
    )


class LrSchedulerSection(Section):
    NAME: Literal["cosine", "constant", "step", "poly", "onecycle"] = key(
        "cosine", "learning rate schedule after warm-up"
    )
    MILESTONES: list[int] = key([], "step: epochs at which the rate falls", AT_LEAST_1)
    GAMMA: float = key(0.1, "step: factor at each milestone", SHARE_ABOVE_0)
    POWER: float = key(0.9, "poly: exponent", ABOVE_0)


class OptimizerSection(Section):
    NAME: Literal["AdamW", "Adam", "SGD"] = key("AdamW", "optimizer")
    EPS: float = key(1e-8, "AdamW, Adam: added to the denominator", ABOVE_0)
    BETAS: tuple[float, float] = key((0.9, 0.999), "AdamW, Adam: decay of moments", SHARE_BELOW_1)
    MOMENTUM: float = key(0.9, "SGD: momentum", SHARE_BELOW_1)
    DAMPENING: float = key(
        0.0, "SGD: share of each gradient but the first that its momentum leaves out, as PyTorch's", SHARE_BELOW_1
    )
    FUSED: bool = key(
        True,
        "all parameters at once: on a CPU, from a million on, in one compiled pass with the bits of Paddle's own "
        "updates; else AdamW and SGD by operations that take lists. False: one by one, as Paddle does",
    )


class TrainSection(Section):
    LAST_EPOCH: int = key(0, "epochs already trained", AT_LEAST_0)
    NUM_EPOCHS: int = key(300, "epochs of the whole training run", Range(low=1, high=1_000_000))
    NUM_SAMPLES: int | None = key(
        None,
        "samples that the training reads in all: NUM_EPOCHS follows from the size of the training set; a NUM_EPOCHS of "
        "a later file or of the command line takes its place",
        Range(low=1, high=1e15),
    )
    EPOCH_LIMITS: tuple[int, int] = key((10, 100), "NUM_SAMPLES: fewest and most epochs", AT_LEAST_1)
    STOP_AFTER_EPOCH: int | None = key(None, "stop here, keeping NUM_EPOCHS' schedule, to resume later", AT_LEAST_1)
    PATIENCE: int = key(
        0,
        "the training ends after this many evaluations in a row that do not improve the score of the best checkpoint; "
        "0: never early",
        AT_LEAST_0,
    )
    MIN_IMPROVEMENT: float = key(
        0.0, "PATIENCE: only more than this is an improvement, in the unit of the score in metrics.jsonl", AT_LEAST_0
    )
    WARMUP_EPOCHS: int | float = key(0, "epochs of linear warm-up, fractions allowed", AT_LEAST_0)
    WARMUP_STEPS: int | None = key(None, "updates of linear warm-up, instead of WARMUP_EPOCHS", AT_LEAST_0)
    WEIGHT_DECAY: float = key(0.05, "not on biases, norms, position embeddings and tokens", AT_LEAST_0)
    BASE_LR: float = key(1e-3, "learning rate after warm-up", ABOVE_0)
    WARMUP_START_LR: float = key(1e-6, "learning rate at the first update of a warm-up", AT_LEAST_0)
    END_LR: float = key(0.0, "learning rate at the end (cosine, poly)", AT_LEAST_0)
    GRAD_CLIP: float | None = key(None, "largest global norm of the gradients; None: no clipping", ABOVE_0)
    MAX_SKIPPED_UPDATES: int = key(
        5,
        "this many updates in a row whose loss or gradients are not finite end the run, each is skipped; AMP with "
        "float16: 50 more, which its loss scaler may need",
        AT_LEAST_1,
    )
    ACCUM_ITER: int = key(1, "batches per update", AT_LEAST_1)
    BATCH_NORM: Literal["sync", "local"] | None = key(
        None,
        "statistics of the rows of all devices (sync: as one device with the whole batch, 2 small messages a layer) or "
        "of each its own (local: the first one's are used in the end); None: sync for points, volumes and "
        "segmentation, and on GPUs "
        "where there are several with fewer than 32 samples each; local else",
    )
    BATCH_NORM_MOMENTUM: float | None = key(
        None,
        "share of its running statistics that a batch norm keeps in a step: Paddle's momentum, which is "
        "1 minus PyTorch's (0.02 there is 0.98 here); None: the model's own",
        SHARE,
    )
    TF32: bool = key(
        True,
        "GPU: products and convolutions of float32 round their factors to TF32, 10 bits behind the point, on GPUs that "
        "have it (from Ampere on); False: float32 throughout",
    )
    BUCKET_MEGABYTES: int = key(
        25,
        "several devices: gradients travel together until they are this many MiB; fewer overlap more of the backward "
        "pass, more are cheaper to send",
        AT_LEAST_1,
    )
    FIND_UNUSED_PARAMETERS: bool = key(
        False, "several devices: parameters that a step does not use get zero gradients; the search takes a few percent"
    )
    LINEAR_SCALED_LR: int | None = key(None, "batch that the learning rates are meant for; None: as given", AT_LEAST_1)
    MODEL_EMA: bool = key(False, "keep an exponential moving average of the weights, and choose the best by it")
    MODEL_EMA_DECAY: float = key(0.99996, "share of the average that an update keeps", SHARE_BELOW_1)
    MODEL_EMA_WARMUP: int = key(
        0,
        "updates over which that share rises, to 63 % of it after so many; 0: it is the same from the first",
        AT_LEAST_0,
    )
    LAYER_DECAY: float | None = key(
        None,
        "factor of the learning rate from each block to the one before it; None: the same for all",
        Range(low=0, high=1, low_open=True),
    )
    FREEZE: list[str] = key([], "names of parameters to freeze, with * for any part, such as patch_embed.* or blocks.*")
    RECOMPUTE: bool = key(
        False, "recompute each block in the backward pass instead of keeping its values: less memory for more time"
    )
    REPEATED_AUGMENT: int = key(1, "readings of each sample within an epoch of unchanged length", AT_LEAST_1)
    LR_SCHEDULER: LrSchedulerSection
    OPTIMIZER: OptimizerSection


class EvaluationSection(Section):
    INTERVAL: Literal[False, 95, 99] = key(
        95,
        "percent of the interval that stands beside the main score of an evaluation, by bootstrap over its samples; "
        "off: none",
    )
    RESAMPLES: int = key(
        1000,
        "INTERVAL: sets of samples drawn with replacement from those that were evaluated",
        Range(low=100, high=1_000_000),
    )
    GROUP: PathText | None = key(
        None,
        "INTERVAL: samples of one patient, video or place are drawn together: a file sample,group, a column of one as "
        "FILE:COLUMN, or a word of the data set, such as scene of ScanNet's",
    )


class RunSettings(Section):
    """A configuration as far as it is the same for all tasks."""

    DATA: DataSection
    MODEL: ModelSection
    TRAIN: TrainSection
    BASE: list[str] = key([], "YAML files read before this one, relative to it; only inside a file")
    IMPORTS: list[str] = key([], "Python modules or files of yours, imported in every process")
    TASK: str = key("classification", "name of a registered task")
    SAVE: PathText = key(
        "./output",
        "output folder: log, metrics, configuration, checkpoints; not set: one in ./output, named by the recipe and "
        "numbered, such as vit_digits-2; of an evaluation vit_digits_eval",
    )
    SAVE_FREQ: int = key(10, "epochs between checkpoints that are kept", AT_LEAST_1)
    SAVE_EVERY_UPDATES: int = key(0, "updates between mid-epoch checkpoints; 0: none", AT_LEAST_0)
    SAVE_EVERY_MINUTES: float = key(30.0, "minutes without a checkpoint until one is saved; 0: none", AT_LEAST_0)
    SAVE_IN_BACKGROUND: bool = key(True, "go on training while a copy of the state is written; False saves memory")
    KEEP_EPOCHS: int = key(1, "how many of the newest checkpoints of epochs are kept in any case", AT_LEAST_1)
    KEEP_UPDATES: int = key(2, "how many of the newest mid-epoch checkpoints are kept", AT_LEAST_1)
    STOP_AFTER_SECONDS: float | None = key(
        None, "save and stop, with exit code 75, this long after the command's start", ABOVE_0
    )
    VALIDATE_FREQ: int = key(1, "epochs between evaluations", AT_LEAST_1)
    REPORT_FREQ: int = key(20, "updates between lines of the log", AT_LEAST_1)
    LOG_TO: list[str] = key([], "tensorboard, visualdl, wandb, mlflow, or names of your own callbacks")
    SEED: int = key(0, "seed of all random number generators", SEEDS)
    DETERMINISTIC: bool = key(
        False, "GPU: take kernels whose results repeat bit for bit where there are any, some of them slower"
    )
    EVAL: bool = key(False, "evaluate only")
    ALLOW_CHANGES: bool = key(
        False,
        "evaluate or resume even if the checkpoint has other settings or files, or has been trained on what is "
        "evaluated; differences are reported",
    )
    EVALUATION: EvaluationSection
    SAVE_PREDICTIONS: bool = key(False, "with EVAL: write what the model predicts to SAVE/predictions")
    AMP: bool = key(False, "mixed precision in training, on GPUs; weights and checkpoints stay float32")
    EVAL_AMP: bool = key(
        False, "mixed precision in evaluation and prediction, on GPUs; it gives other numbers, and stands beside them"
    )
    AMP_DTYPE: Literal["float16", "bfloat16"] = key("float16", "half precision that AMP and EVAL_AMP compute in")
    AMP_LEVEL: Literal["O1", "O2"] = key(
        "O1",
        "O1: products, and what follows from them alone, in half precision; O2: also softmax and norms that get half "
        "precision, which in a ViT with fused attention none does; weights and their gradients are float32 at either",
    )
    TO_STATIC: bool = key(
        False,
        "compile the model's passes with paddle.jit.to_static, in training and evaluation; on H100s, Paddle 2.6.2, "
        "float32, a training without it was faster: ViT-Ti by 15 %, ViT-B by about 10 %, ResNet-50 by 4 %",
    )
    NGPUS: int = key(-1, "devices (without a GPU: processes); -1: all visible ones", Range(low=1, also=(-1,)))
    DEVICE: str = key("auto", "gpu, cpu, xpu, npu or another kind that Paddle has; auto: an accelerator if it sees one")
    WATCHDOG_SECONDS: float = key(
        300.0,
        "several processes: one that makes no progress for this long, other than waiting for the others or for data, "
        "ends the run",
        ABOVE_0,
    )
    CPU_TUNING: bool = key(True, "set the environment that makes MKL and malloc fast on this processor")
