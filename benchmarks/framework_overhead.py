"""What the engine costs: its training step against a bare loop written by hand, in the same process.

    python benchmarks/framework_overhead.py            # all cases
    python benchmarks/framework_overhead.py digits_1   # one of them

The engine's side is a whole ``Trainer.train()``: loader without worker processes, sampler, updates, meters with a
report in each round (of 20 updates or fewer), progress, log. Between two of its steps, at a fixed rhythm, the bare
loop gets its turn, in the same processes and on the same data, read through ``paddle.io.DataLoader``. With a GPU the
processes drive one each; ``gpu_throughput.py`` measures there what a whole GPU is busy with.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import children
import clock
import rounds
from rounds import ROOT, Spread
from smallest import sized

from paddlevit_dist.core import settings as configuration
from paddlevit_dist.core.launch import launch_workers, plan_processes
from paddlevit_dist.core.launch.devices import count_gpus
from paddlevit_dist.core.tasks.dataset import TransformedDataset

WARM_UP_ROUNDS = 1


class Case(NamedTuple):
    """One model, batch and number of processes."""

    recipe: str
    overrides: list[str]
    synthetic_size_px: int  # 0: the recipe's own data
    processes: int
    block_updates: int  # updates in one turn
    blocks: int  # turns in one round; even, as the order is ABBA
    rounds: int
    timeout_seconds: float

    @property
    def round_updates(self) -> int:
        return self.blocks * self.block_updates

    @property
    def updates(self) -> int:
        """Of the engine: warm-up round and rounds, and the one whose beginning ends the last turn."""
        return (WARM_UP_ROUNDS + self.rounds) * self.round_updates + 1


_DIGITS = ("configs/vit_digits.yaml", ["TRAIN.WARMUP_EPOCHS", "0"], 0)
_TINY = (
    "configs/vit_tiny_patch16_224.yaml",
    ["DATA.BATCH_SIZE", "8", "MODEL.NUM_CLASSES", "1000", "MODEL.DROPOUT", "0.0", "TRAIN.WARMUP_EPOCHS", "0"],
    224,
)
CASES = {
    "digits_1": Case(*_DIGITS, processes=1, block_updates=5, blocks=4, rounds=sized(11, 1), timeout_seconds=150),
    "digits_2": Case(*_DIGITS, processes=2, block_updates=5, blocks=4, rounds=11, timeout_seconds=150),
    "vit_tiny_1": Case(*_TINY, processes=1, block_updates=1, blocks=2, rounds=9, timeout_seconds=240),
    "vit_tiny_2": Case(*_TINY, processes=2, block_updates=1, blocks=2, rounds=9, timeout_seconds=240),
}


class Repeated(TransformedDataset):
    """The first ``length`` samples of a dataset that begins again when it ends: one epoch holds all rounds."""

    def __init__(self, samples: Any, length: int) -> None:
        self.samples = samples
        self.length = length

    def __len__(self) -> int:
        return self.length

    def sample(self, index: int, generator: Any) -> Any:
        return self.samples.sample(index % len(self.samples), generator)

    def describe(self, index: int) -> str:
        return self.samples.describe(index % len(self.samples))


class Synthetic(TransformedDataset):
    """Noise images that cost nothing to read."""

    def __init__(self, size_px: int, classes: int = 1000, channels: int = 3, count: int = 64) -> None:
        import numpy as np

        shape = (count, channels, size_px, size_px)
        self.images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        self.classes = classes

    def __len__(self) -> int:
        return len(self.images)

    def sample(self, index: int, generator: Any) -> Any:
        return self.images[index], index % self.classes

    def describe(self, index: int) -> str:
        return f"noise image {index}"


class Turns:
    """Lets engine and bare loop take turns, in the order ABBA, and notes the seconds of each turn."""

    def __init__(self, block_updates: int) -> None:
        self.block_updates = block_updates
        self.bare_steps: Iterator[None] = iter(())
        self.seconds: dict[str, list[float]] = {"engine": [], "bare": []}
        self.cpu_seconds: dict[str, list[float]] = {"engine": [], "bare": []}
        self._updates = 0
        self._started = (0.0, 0.0)

    def before_engine_step(self) -> None:
        """Called where an engine's step begins: that is where the one before it, with all its trimmings, has ended."""
        if self._updates == self.block_updates:
            self._note("engine")
            self._updates = 0
            if len(self.seconds["engine"]) % 2:
                self._bare_turn()
                self._bare_turn()
        if self._updates == 0:
            self._start()
        self._updates += 1

    def _bare_turn(self) -> None:
        self._start()
        for _ in range(self.block_updates):
            next(self.bare_steps)
        self._note("bare")

    def _start(self) -> None:
        self._started = clock.now(), time.process_time()

    def _note(self, name: str) -> None:
        self.seconds[name].append(clock.now() - self._started[0])
        self.cpu_seconds[name].append(time.process_time() - self._started[1])


def timed_task(config: Any, turns: Turns) -> Any:
    """The classification task, which gives the bare loop its turns."""
    from paddlevit_dist.images.classification.task import Classification

    class Timed(Classification):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            turns.before_engine_step()
            return super().train_step(model, batch, step)

    return Timed(config)


def bare_loop(config: Any, model: Any, samples: Any, total_updates: int) -> Iterator[None]:
    """The loop that one writes by hand: one update for each ``next``. No meters, no seeds, no accuracy, no log."""
    import numpy as np
    import paddle
    import paddle.nn.functional as F
    from paddle import distributed as dist

    class Readings(paddle.io.Dataset):
        generator = np.random.default_rng(0)

        def __getitem__(self, index: int) -> Any:
            return samples.sample(index, self.generator)

        def __len__(self) -> int:
            return len(samples)

    batch_size, train = config.DATA.BATCH_SIZE, config.TRAIN
    parameters = [p for p in model.parameters() if not p.stop_gradient]
    still = [p for name, p in model.named_parameters() if p.ndim <= 1 or name in ("cls_token", "pos_embed")]
    decayed = [p for p in parameters if all(p is not other for other in still)]
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(train.BASE_LR, total_updates)
    optimizer = paddle.optimizer.AdamW(
        schedule,
        parameters=[{"params": decayed, "weight_decay": train.WEIGHT_DECAY}, {"params": still, "weight_decay": 0.0}],
    )
    wrapped = model
    sampler = paddle.io.BatchSampler(Readings(), shuffle=True, batch_size=batch_size, drop_last=True)
    if dist.is_initialized():
        wrapped = paddle.DataParallel(model)
        sampler = paddle.io.DistributedBatchSampler(Readings(), batch_size, shuffle=True, drop_last=True)
    channels = config.DATA.IMAGE_CHANNELS
    mean = paddle.to_tensor(config.DATA.IMAGENET_MEAN, dtype="float32").reshape([1, channels, 1, 1])
    deviation = paddle.to_tensor(config.DATA.IMAGENET_STD, dtype="float32").reshape([1, channels, 1, 1])
    scale, offset = 1.0 / (255.0 * deviation), -mean / deviation
    smoothing = train.SMOOTHING
    model.train()
    for images, labels in paddle.io.DataLoader(Readings(), batch_sampler=sampler, num_workers=0):
        logits = wrapped(images.astype("float32") * scale + offset)  # (batch, classes)
        loss = F.cross_entropy(logits, labels)
        if smoothing:
            loss = (1.0 - smoothing) * loss - smoothing * F.log_softmax(logits, axis=-1).mean()
        loss.backward()
        paddle.nn.utils.clip_grad_norm_(parameters, train.GRAD_CLIP)
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        schedule.step()
        yield


def work(name: str, folder: str) -> None:
    """Every process of one case: train with the engine, and between its steps with the bare loop."""
    from paddlevit_dist import Trainer, is_main, world_size
    from paddlevit_dist.core.logging.record import make_folder

    case = CASES[name]
    make_folder(f"{folder}/run")
    arguments = [f"-cfg={ROOT / case.recipe}", f"-output={folder}/run", "-num_workers=0", *case.overrides]
    arguments += ["TRAIN.NUM_EPOCHS", "1", "REPORT_FREQ", str(case.round_updates)]
    config = configuration.load(arguments).values
    turns = Turns(case.block_updates)
    task = timed_task(config, turns)
    length = case.updates * config.DATA.BATCH_SIZE * world_size()
    if case.synthetic_size_px:
        train = validation = Synthetic(case.synthetic_size_px)
    else:
        train, validation = (task.build_dataset(split, Path(folder)) for split in ("train", "val"))
    samples = Repeated(train, length)
    trainer = Trainer(config, task, {"train": samples, "val": Repeated(validation, config.DATA.BATCH_SIZE)})
    turns.bare_steps = bare_loop(config, task.build_model(), samples, case.updates)
    trainer.train()
    if is_main():
        noted = {"seconds": turns.seconds, "cpu_seconds": turns.cpu_seconds, **clock.device_facts()}
        Path(folder, "turns.json").write_text(json.dumps(noted), encoding="utf-8")


def measure(name: str) -> tuple[dict[str, list[list[float]]], str]:
    """Seconds per update of each round, of the clock and of the processor, for "engine" and "bare"; and the device."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        command = [sys.executable, __file__, "--case", name, folder]
        children.run(command, children.tuned_environment(case.processes, hides_gpus=False), case.timeout_seconds)
        noted = json.loads(Path(folder, "turns.json").read_text(encoding="utf-8"))
    per_update = {
        contender: [_per_update(noted[clock_name][contender], case) for clock_name in ("seconds", "cpu_seconds")]
        for contender in ("engine", "bare")
    }
    return per_update, noted["device"]


def _per_update(turns: list[float], case: Case) -> list[float]:
    sums = [sum(turns[first : first + case.blocks]) for first in range(0, len(turns), case.blocks)]
    return [total / case.round_updates for total in sums[WARM_UP_ROUNDS:]]


def main() -> None:
    if "--case" in sys.argv:
        _, _, name, folder = sys.argv
        launch_workers(work, (name, folder), plan_processes(CASES[name].processes))
        return
    rounds.print_machine(cpu_only=False)
    rows, result = [], {}
    gpus = count_gpus()
    for name in sys.argv[1:] or sized(list(CASES), ["digits_1"]):
        if 0 < gpus < CASES[name].processes:
            print(f"left out: {name}, which takes {CASES[name].processes} GPUs of which there are {gpus}")
            continue
        noted, device = measure(name)
        (engine, engine_cpu), (bare, bare_cpu) = noted["engine"], noted["bare"]
        overhead, cpu = rounds.ratios(engine, bare), rounds.ratios(engine_cpu, bare_cpu)
        percent = [Spread(*(100.0 * (value - 1.0) for value in spread)) for spread in (overhead, cpu)]
        seconds = [Spread.of(values).text(1e3) for values in (engine, bare)]
        rows.append(
            [name, device, CASES[name].processes, len(engine), *seconds, *(spread.text(digits=1) for spread in percent)]
        )
        result[f"{name}_overhead_percent"] = percent[0].median
        result[f"{name}_cpu_overhead_percent"] = percent[1].median
    header = [
        "case",
        "device",
        "processes",
        "rounds",
        "engine ms/update",
        "bare ms/update",
        "overhead %",
        "in processor time %",
    ]
    rounds.print_table("Training step, medians of the rounds [lowest, highest]; goal: overhead <= 2 %", header, rows)
    rounds.print_result(result)


if __name__ == "__main__":
    main()
