"""One contender of ``gpu_throughput.py``: as many processes as devices, which make updates when they are asked to.

    python benchmarks/gpu_throughput_worker.py KIND ADDRESS PRECISION OPTIONS

It is run by the interpreter that has the framework, and needs nothing of this repository but ``clock.py`` for timm.
Each process connects to the Unix socket ADDRESS, says its rank and device, and answers each request, a number of
updates, with the seconds that they took, the peak of its device's memory, the losses of its first three updates, and
whether passes are captured; to so many below 0, what the profiler has seen in them. OPTIONS is a JSON object.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import clock

PLAIN, TRAINER, RECIPE, TIMM = "plain", "trainer", "recipe", "timm"
COMPILED_TIMM = "timm, compiled"
# Level and type of each way to compute; a way without a type is float32.
PRECISIONS = {
    "float32": ("", ""),
    "O1 float16": ("O1", "float16"),
    "O1 bfloat16": ("O1", "bfloat16"),
    "O2 float16": ("O2", "float16"),
}
WEIGHTS = "weights"  # no contender: it writes the weights that all of them start with
FIRST_LOSSES = 3  # of so many updates each contender tells the losses
RATE, DECAY = 1e-3, 0.05
# With these keys all contenders compute the same: timm's models drop nothing unless they are asked to.
SAME = (
    *"MODEL.DROPOUT 0.0 MODEL.ATTENTION_DROPOUT 0.0 MODEL.DROPPATH 0.0".split(),
    *"TRAIN.SMOOTHING 0.0 TRAIN.MIXUP_ALPHA 0.0 TRAIN.CUTMIX_ALPHA 0.0 TRAIN.OPTIMIZER.NAME AdamW".split(),
    *f"TRAIN.LINEAR_SCALED_LR None TRAIN.BASE_LR {RATE} TRAIN.WEIGHT_DECAY {DECAY}".split(),
)
# From 65,536 a scale would be lowered first, and Paddle's scaler says so in a way that NumPy 2.4 takes for an error.
LOSS_SCALE = 1024.0

# The images are noise that needs no transform; what is erased of one is drawn with its transform.
# A run's end, its evaluations and its checkpoints are not measured: they do not come.
ENDLESS = (
    "TRAIN.NUM_EPOCHS 9999 VALIDATE_FREQ 9999 SAVE_FREQ 9999 TRAIN.WARMUP_STEPS None TRAIN.WARMUP_EPOCHS 0".split()
)
IMAGES_AS_THEY_ARE = ("TRAIN.RANDOM_ERASE_PROB", "0.0")


class Turns:
    """Waits for requests between updates, and answers them.

    Args:
        parent: the connection with the parent.
    """

    _profile: Any = None

    #: of the first updates, which are not measured
    losses: list[float]
    #: told with each answer
    facts: dict[str, Any]

    def __init__(self, parent: Any, rank: int, **facts: Any) -> None:
        self._parent = parent
        self.losses = []
        self.facts: dict[str, Any] = {}
        self._left = 0
        self._started = 0.0
        self._parent.send({"rank": rank, **clock.device_facts(), **facts})

    def update_begins(self) -> None:
        """Call before each update: that is where the one before it, with all its trimmings, has ended."""
        if self._left == 0:
            if self._profile is not None:
                self._parent.send(self._profile.end())
            elif self._started:
                seconds = clock.now() - self._started
                memory = {"peak_bytes": clock.peak_bytes(), **clock.memory_bytes()}
                self._parent.send({"seconds": seconds, "losses": self.losses, **memory, **self.facts})
            try:
                asked = self._parent.recv()
            except EOFError:
                os._exit(0)  # nothing more is wanted; a group need not be taken down in order
            self._left, self._profile = abs(asked), None
            if asked < 0:
                from gpu_profile import Profile

                self._profile = Profile()
            self._started = clock.now()
        self._left -= 1

    def note_loss(self, read: Callable[[], float]) -> None:
        """Read the loss of an update, if it is one of the first, before any gradient."""
        if len(self.losses) < FIRST_LOSSES:
            self.losses.append(read())


# ---- Paddle ----------------------------------------------------------------------------------------------------


def get_words(options: dict[str, Any], precision: str, is_recipe: bool) -> list[str]:
    """The command line of the run that is measured, without its output folder.

    Args:
        is_recipe: a classifier has the recipe's dropout, labels and optimizer; otherwise those of all contenders.
    """
    level, dtype = PRECISIONS[precision]
    words = [f"-cfg={options['recipe']}", "-accum_iter=1", f"-num_workers={options['workers']}", *ENDLESS]
    words += ["REPORT_FREQ", str(options["updates"]), "TRAIN.TF32", str(options["tf32"])]
    if options["batch"]:
        words.append(f"-batch_size={options['batch']}")
    if options["classifies"]:
        words += [f"-image_size={options['image_size']}", "MODEL.NUM_CLASSES", str(options["classes"])]
        words += [*IMAGES_AS_THEY_ARE]
        halves = str([0.5] * options["channels"])
        limit = ["TRAIN.GRAD_CLIP", "1e6"] if options["clips"] else []  # the work of clipping, without its effect
        words += [] if is_recipe else [*SAME, *limit, "DATA.IMAGENET_MEAN", halves, "DATA.IMAGENET_STD", halves]
    return words + (["-amp", "AMP_LEVEL", level, "AMP_DTYPE", dtype] if dtype else []) + options["keys"]


def work(kind: str, address: str, precision: str, options: dict[str, Any], folder: str) -> None:
    """Every process of a Paddle contender."""
    from paddlevit_dist import rank
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.launch import gpu
    from paddlevit_dist.core.logging.record import make_folder
    from paddlevit_dist.core.runtime.transfers import is_on_gpu

    words = get_words(options, precision, kind == RECIPE)
    if options["weights"] and kind not in (RECIPE, WEIGHTS):
        words.append(f"-pretrained={options['weights']}")
    values = settings.load([*words, f"-output={folder}"]).values
    if kind == WEIGHTS:
        write_weights(values, address)
        return
    make_folder(values.SAVE)
    run = plain_loop if kind == PLAIN else trainer_loop

    def start(**facts: Any) -> Turns:
        return Turns(Client(address), rank(), tf32=is_on_gpu() and gpu.rounds_to_tf32(), **facts)

    run(values, start, kind == RECIPE)


def write_weights(values: Any, target: str) -> None:
    """Write drawn weights of the recipe's model with timm's names, for timm and for Paddle."""
    import paddle

    from paddlevit_dist.core.commands.convert import convert
    from paddlevit_dist.core.tasks.task_factory import make_task

    paddle.seed(0)
    own = f"{target}.pdparams"
    paddle.save(make_task(values).build_model().state_dict(), own)
    convert(own, target)


def get_samples(values: Any, task: Any) -> dict[str, Any]:
    """Those of a run: noise for a classifier, otherwise the recipe's own."""
    from framework_overhead import Repeated, Synthetic

    from paddlevit_dist import rank, world_size

    if values.TASK != "classification":
        folder = Path(values.SAVE, f"cache_{rank()}")
        folder.mkdir()
        return {split: task.build_dataset(split, folder) for split in ("train", "val")}
    images = Synthetic(values.DATA.IMAGE_SIZE, values.MODEL.NUM_CLASSES, values.DATA.IMAGE_CHANNELS)
    endless = Repeated(images, 100 * values.DATA.BATCH_SIZE * world_size())
    return {"train": endless, "val": Repeated(images, values.DATA.BATCH_SIZE)}


def plain_loop(values: Any, start: Callable[..., Turns], _: bool) -> None:
    """What one writes by hand: forward pass, loss, backward pass, AdamW, on a batch that is on the device."""
    import paddle

    from paddlevit_dist import load_weights, world_size
    from paddlevit_dist.core.engine.precision import TrainingPrecision
    from paddlevit_dist.core.launch import gpu
    from paddlevit_dist.core.tasks.task_factory import make_task

    paddle.seed(0)
    task = make_task(values)
    gpu.prepare(values.TRAIN.TF32, values.DETERMINISTIC, task.traits.fixed_shapes, values.AMP)  # as our trainer does
    loss_of_model = classification_loss if values.TASK == "classification" else loss_of_task
    samples = get_samples(values, task)["train"]  # which may say how many classes the model has
    inner = task.build_model()
    if values.MODEL.PRETRAINED:
        load_weights(inner, values.MODEL.PRETRAINED)
    inner.train()
    with_loss = loss_of_model(values, task, samples)
    model = paddle.DataParallel(inner) if world_size() > 1 else inner
    learning = [parameter for parameter in inner.parameters() if not parameter.stop_gradient]
    optimizer = paddle.optimizer.AdamW(RATE, parameters=learning, weight_decay=DECAY)
    precision = TrainingPrecision(values.AMP, values.AMP_DTYPE, values.AMP_LEVEL)
    scaler = paddle.amp.GradScaler(values.AMP and values.AMP_DTYPE == "float16", init_loss_scaling=LOSS_SCALE)
    turns = start()
    while True:
        turns.update_begins()
        with precision.autocast():
            loss = with_loss(model)
        turns.note_loss(loss.item)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad(set_to_zero=False)


def classification_loss(values: Any, task: Any, samples: Any) -> Callable[[Any], Any]:
    """Cross-entropy of a model on noise."""
    import paddle

    from paddlevit_dist import rank

    pixels, labels = noise_of(values, rank())
    images, labels = paddle.to_tensor(scale(pixels)), paddle.to_tensor(labels)
    return lambda model: paddle.nn.functional.cross_entropy(model(images), labels)


def noise_of(values: Any, rank: int) -> Any:
    """The batch of a classifier, as it comes from the loader: images uint8 and labels int64."""
    shape = (values.DATA.BATCH_SIZE, values.DATA.IMAGE_CHANNELS, values.DATA.IMAGE_SIZE, values.DATA.IMAGE_SIZE)
    return noise(shape, values.MODEL.NUM_CLASSES, rank)


def loss_of_task(values: Any, task: Any, samples: Any) -> Callable[[Any], Any]:
    """A task's own losses on its first samples, by the counts of this process."""
    import numpy as np
    import paddle

    from paddlevit_dist.core.engine import compute_loss
    from paddlevit_dist.core.tasks.step_types import StepPosition

    generator = np.random.default_rng(0)
    chosen = [samples.sample(index, generator) for index in range(values.DATA.BATCH_SIZE)]
    arrays = task.collate(chosen)
    counts = {name: max(1.0, float(count)) for name, count in task.loss_normalizers(arrays).items()}
    # What is no array stays with the host: sizes and names of samples.
    batch = {name: paddle.to_tensor(a) if isinstance(a, np.ndarray) else a for name, a in arrays.items()}
    return lambda model: compute_loss(task.train_step(model, dict(batch), StepPosition(1, 0, 1)), counts, 1, 1)


def name_fused(model: Any) -> str:
    """Which layers train by fused kernels (GPU_KERNELS), such as "12 ViTBlock, 12 Mlp"; "none"."""
    names = [type(one).__name__ for one in model.sublayers() if type(one).__module__.endswith("gpu_kernels.layers")]
    return ", ".join(f"{number} {name}" for name, number in Counter(names).items()) or "none"


def trainer_loop(values: Any, start: Callable[..., Turns], loads: bool) -> None:
    """``Trainer.train()`` as a run calls it.

    Args:
        loads: the run's own loader hands over a new batch for each update; otherwise each has the same batch, which is
            on the device: for a classifier that of all contenders, else the loader's first one.
    """
    import paddle

    from paddlevit_dist import Trainer, rank
    from paddlevit_dist.core.engine.hooks import Hook, UpdateRecord
    from paddlevit_dist.core.tasks.task_factory import make_task

    task = make_task(values)
    classifies = values.TASK == "classification"

    class TurnsHook(Hook):
        """Times updates, not calls of ``train_step``, which captured passes do not make."""

        def __init__(self, trainer: Any) -> None:
            self.trainer = trainer
            self.turns = start(**{"fused kernels": name_fused(trainer.model)})

        def before_step(self, step: Any) -> None:
            captured = self.trainer.step.captured
            self.turns.facts["captured"] = captured is not None and captured.is_on
            self.turns.update_begins()

        def after_step(self, update: UpdateRecord) -> None:
            if classifies and not loads:
                terms = update.terms[0].values()
                self.turns.note_loss(lambda: sum(t.weight * t.sum.item() / values.DATA.BATCH_SIZE for t in terms))

    class TimedTrainer(Trainer):
        def _add_hooks(self) -> None:
            super()._add_hooks()
            self.hooks.append(TurnsHook(self))

    class FirstBatchAgain(TimedTrainer):
        def prepare_training(self) -> None:
            super().prepare_training()
            epochs = self.loader.epochs
            if self.precision.scaler is not None:
                self.precision.scaler.value = LOSS_SCALE

            def again(*where: Any) -> Any:
                batches = epochs(*where)
                first = next(batches)
                batches.close()
                if classifies:
                    first.update(zip(("images", "labels"), map(paddle.to_tensor, noise_of(values, rank()))))
                while True:
                    yield dict(first)

            self.loader.epochs = again

    (TimedTrainer if loads else FirstBatchAgain)(values, task, get_samples(values, task)).train()


def noise(shape: Any, classes: int, seed: int) -> Any:
    """Images uint8 of ``shape`` and labels int64 (batch,)."""
    import numpy as np

    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, shape, dtype=np.uint8), generator.integers(0, classes, shape[0])


def scale(pixels: Any) -> Any:
    """Images float32 from -1 to 1, as our trainer normalizes them."""
    return (pixels / 127.5 - 1).astype("float32")


# ---- torch -----------------------------------------------------------------------------------------------------


def timm_loop(address: str, precision: str, options: dict[str, Any], is_compiled: bool) -> None:
    """timm's model in a plain loop: autocast, a scaler for float16, fused AdamW, DistributedDataParallel.

    Args:
        is_compiled: the model by ``torch.compile``; otherwise eager.
    """
    import timm
    import torch
    from safetensors.torch import load_file

    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options["tf32"]
    torch.backends.cudnn.benchmark = True  # as in timm's own program, and as our trainer has it
    torch.manual_seed(0)
    sizes = {"img_size": options["image_size"]} if options["image_size"] != 224 else {}
    model = timm.create_model(options["peer_model"], num_classes=options["classes"], **sizes)
    keys = model.load_state_dict(load_file(options["weights"]), strict=False)
    if left := [name for key in keys for name in key if not name.endswith("num_batches_tracked")]:
        raise SystemExit(f"{options['peer_model']} has other weights than the recipe: {', '.join(left[:3])}")
    model.to(device)
    if processes > 1:
        torch.distributed.init_process_group("nccl" if on_gpu else "gloo")
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank] if on_gpu else None)
    if is_compiled:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    dtype = PRECISIONS[precision][1]
    scaler = torch.amp.GradScaler(device.type, init_scale=LOSS_SCALE, enabled=dtype == "float16")
    shape = (options["batch"], options["channels"], options["image_size"], options["image_size"])
    pixels, labels = noise(shape, options["classes"], rank)
    images, labels = (torch.from_numpy(values).to(device) for values in (scale(pixels), labels))
    turns = Turns(Client(address), rank, tf32=on_gpu and options["tf32"], timm=timm.__version__)
    while True:
        turns.update_begins()
        with torch.autocast(device.type, getattr(torch, dtype or "float32"), enabled=bool(dtype)):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        turns.note_loss(loss.item)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def main(kind: str, address: str, precision: str, given: str) -> None:
    options = json.loads(given)
    if kind in (TIMM, COMPILED_TIMM):
        timm_loop(address, precision, options, kind == COMPILED_TIMM)
        return
    from paddlevit_dist.core.launch import launch_workers, plan_processes

    plan = plan_processes(options["processes"])
    launch_workers(work, (kind, address, precision, options, f"{address}.run"), plan)


if __name__ == "__main__":
    main(*sys.argv[1:])
