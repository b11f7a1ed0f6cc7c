"""How long a training stands still for a checkpoint, as a share of the time that writing it takes.

    python benchmarks/saving.py             # all cases
    python benchmarks/saving.py vit_s_1     # one of them

A whole ``Trainer.train()`` on noise images. A round has some updates that nothing disturbs, a checkpoint written in
the background, some updates more, and the same again with the peer: the same files written while the training waits.
The training stands still while the call takes, and while its thread sleeps longer in the updates after it than in those
before: it waits for the interpreter, which one thread has at a time. Sleep is what is left of the clock's time without
the time on a processor and in the queue for one (Linux counts them for each thread), so that other programs on the
machine do not matter.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import children
import rounds
from framework_overhead import Repeated, Synthetic
from rounds import ROOT, Spread
from smallest import sized

from paddlevit_dist.core import settings as configuration
from paddlevit_dist.core.launch import launch_workers, plan_processes

WARM_UP_ROUNDS = 1
BEFORE = sized(6, 1)  # updates that nothing disturbs


class Case(NamedTuple):
    """One model and number of processes."""

    overrides: list[str]
    processes: int
    after: int  # updates after the save, in which its writing should end; else the wait for it counts too
    rounds: int
    timeout_seconds: float

    @property
    def updates(self) -> int:
        return (WARM_UP_ROUNDS + self.rounds) * (3 * BEFORE + self.after) + 1


_RECIPE = "configs/vit_base_patch32_224.yaml"
_SMALL = (
    f"MODEL.EMBED_DIM 384 MODEL.NUM_HEADS 6 MODEL.DEPTH {sized(12, 1)}".split()
)  # of ViT-S/32: few sums for many weights
CASES = {
    "vit_s_1": Case(_SMALL, processes=1, after=sized(30, 2), rounds=sized(7, 1), timeout_seconds=900),
    "vit_s_2": Case(_SMALL, processes=2, after=30, rounds=7, timeout_seconds=1500),
}


def asleep() -> float:
    """Seconds that this thread has neither been on a processor nor waited for one, from some beginning."""
    on, waiting, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return time.perf_counter() - (int(on) + int(waiting)) / 1e9


class Script:
    """What happens between two updates: ``next`` is called where one begins and the one before it has ended."""

    def __init__(self, after: int, folder: Path) -> None:
        self.after = after
        self.folder = folder
        self.training: Any = None
        self.written = 0.0  # when the last checkpoint was
        self.noted: dict[str, list[float]] = {name: [] for name in "call asleep left writing waiting".split()}
        self.steps = self._steps()

    def log_and_print(self, line: str, shown: str | None = None) -> None:
        if line.startswith("saved"):
            self.written = time.perf_counter()

    def _steps(self) -> Iterator[None]:
        while True:
            undisturbed = yield from self._updates(BEFORE)
            began = time.perf_counter()
            self.training.checkpointer.save_update(False, self.training.logger)
            called = time.perf_counter()
            disturbed = yield from self._updates(self.after)
            ended = time.perf_counter()
            self.training.checkpointer.finish()
            self.noted["left"].append(time.perf_counter() - ended)
            self.noted["call"].append(called - began)
            self.noted["asleep"].append(sum(disturbed) - len(disturbed) * statistics.median(undisturbed))
            self.noted["writing"].append(self.written - began)
            yield from self._updates(BEFORE)
            began = time.perf_counter()
            self._save_and_wait()
            self.noted["waiting"].append(time.perf_counter() - began)
            yield from self._updates(BEFORE)

    def _updates(self, number: int) -> Any:
        """Let updates happen; returns the seconds that this thread slept in each."""
        seconds = []
        for _ in range(number):
            began = asleep()
            yield
            seconds.append(asleep() - began)
        return seconds

    def _save_and_wait(self) -> None:
        """The same content, flushed and hashed in the same way, by a training that waits for it."""
        from paddlevit_dist import is_main
        from paddlevit_dist.core.checkpoint import store as checkpoint_store
        from paddlevit_dist.core.distributed import barrier

        parts = self.training
        if is_main():
            extra = {"scaler": {}, "best": None, "global_batch_size": 1}
            position = parts.state.position()
            state = checkpoint_store.RunState(position, parts.state.optimizer_state.state_dict(), extra)
            weights, averages = parts.model.state_dict(), parts.ema.state_dict()
            written = checkpoint_store.save(
                self.folder, checkpoint_store.update_name(position["update"]), weights, state, averages
            )
            checkpoint_store.prune(self.folder, lambda epoch: False, position["update"], 1, good=written)
        barrier()


def scripted_task(config: Any, script: Script) -> Any:
    """The classification task, which goes on with the script where an update begins."""
    from paddlevit_dist.images.classification.task import Classification

    class Scripted(Classification):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            next(script.steps)
            return super().train_step(model, batch, step)

    return Scripted(config)


def work(name: str, folder: str) -> None:
    """Every process of one case."""
    from paddlevit_dist import Trainer, is_main, world_size
    from paddlevit_dist.core.logging.record import make_folder

    case = CASES[name]
    make_folder(f"{folder}/run")
    arguments = [f"-cfg={ROOT / _RECIPE}", f"-output={folder}/run", "-num_workers=0", "-batch_size=1", *case.overrides]
    arguments += "MODEL.NUM_CLASSES 1000 TRAIN.NUM_EPOCHS 1 TRAIN.MODEL_EMA True TRAIN.ACCUM_ITER 1".split()
    arguments += "SAVE_EVERY_MINUTES 0 KEEP_UPDATES 1 TRAIN.WARMUP_EPOCHS 0 REPORT_FREQ 1000".split()
    config = configuration.load(arguments).values
    script = Script(case.after, Path(folder, "peer"))
    noise = Synthetic(224)
    samples = Repeated(noise, case.updates * config.DATA.BATCH_SIZE * world_size())
    task = scripted_task(config, script)
    trainer = Trainer(config, task, {"train": samples, "val": Repeated(noise, config.DATA.BATCH_SIZE)})
    script.training = trainer
    trainer.prepare_training()
    trainer.run_log.log_and_print = script.log_and_print
    trainer.train()
    if is_main():
        (last,) = Path(folder, "peer").glob("update_*")
        bytes_written = sum(file.stat().st_size for file in last.iterdir())
        Path(folder, "noted.json").write_text(json.dumps([script.noted, bytes_written]), encoding="utf-8")


def measure(name: str) -> Any:
    """Seconds of each round, and the size of a checkpoint in bytes."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        command = [sys.executable, __file__, "--case", name, folder]
        children.run(command, children.tuned_environment(2), case.timeout_seconds)  # a thread, and a core to write with
        noted, size = json.loads(Path(folder, "noted.json").read_text(encoding="utf-8"))
    return {key: values[WARM_UP_ROUNDS : WARM_UP_ROUNDS + case.rounds] for key, values in noted.items()}, size


def main() -> None:
    if "--case" in sys.argv:
        _, _, name, folder = sys.argv
        launch_workers(work, (name, folder), plan_processes(CASES[name].processes))
        return
    rounds.print_machine()
    rows, result = [], {}
    for name in sys.argv[1:] or sized(list(CASES), ["vit_s_1"]):
        noted, size = measure(name)
        stood = [
            call + max(0.0, longer) + left for call, longer, left in zip(*map(noted.get, ("call", "asleep", "left")))
        ]
        shares = {
            "call": rounds.ratios(noted["call"], noted["writing"]),
            "stood_still": rounds.ratios(stood, noted["writing"]),
        }
        percent = [Spread(*(100.0 * value for value in spread)).text(digits=1) for spread in shares.values()]
        seconds = [Spread.of(noted[key]).text() for key in ("waiting", "writing", "call", "asleep", "left")]
        rows.append([name, CASES[name].processes, round(size / 1e6), *seconds, *percent])
        result.update({f"{name}_{key}_percent": 100.0 * spread.median for key, spread in shares.items()})
    header = [
        "case",
        "processes",
        "MB",
        "peer waits s",
        "written after s",
        "call s",
        "asleep longer by s",
        "left to wait for s",
    ]
    title = "A checkpoint, medians of the rounds [lowest, highest]; goal: stands still for <= 10 % of the writing"
    rounds.print_table(title, [*header, "call %", "stands still %"], rows)
    rounds.print_result(result)


if __name__ == "__main__":
    main()
