"""What the watchdog costs: a note of a place, and the meeting of ranks before an update's exchange of gradients.

    python benchmarks/watchdog.py

The digits recipe with 2 processes, in one run: blocks of updates with notes and meetings take turns with blocks
without, in the order ABBA. The meeting over the group's store, as between machines, is timed by itself.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import children
import rounds
from framework_overhead import Repeated
from rounds import ROOT, Spread
from smallest import sized

from paddlevit_dist.core import settings as configuration
from paddlevit_dist.core.launch import launch_workers, plan_processes, status

BLOCK_UPDATES, BLOCKS, CALLS = sized((5, 44, 4_000), (1, 12, 40))
BATCH = 32  # per process


class Turns:
    """Switches notes and meetings off for every other pair of blocks, and notes each block's seconds per update."""

    def __init__(self) -> None:
        from paddlevit_dist.core.engine import step

        self.step = step
        self.on = {
            "host_barrier": step.host_barrier,
            "set_detail": status.set_detail,
            "note": status.note,
            "move": status.move,
        }
        self.seconds: dict[str, list[float]] = {"with": [], "without": []}
        self._updates = 0
        self._block = 0
        self._started = 0.0

    def before_step(self) -> None:
        if self._updates % BLOCK_UPDATES == 0:
            now = time.perf_counter()
            if self._block:
                self.seconds[self._name(self._block - 1)].append((now - self._started) / BLOCK_UPDATES)
            self._switch(self._name(self._block) == "with")
            self._block += 1
            self._started = time.perf_counter()
        self._updates += 1

    @staticmethod
    def _name(block: int) -> str:
        return "with" if block % 4 in (0, 3) else "without"

    def _switch(self, is_on: bool) -> None:
        def nothing(*_: Any, **__: Any) -> None:
            return None

        self.step.host_barrier = self.on["host_barrier"] if is_on else nothing
        for name in ("set_detail", "note", "move"):
            setattr(status, name, self.on[name] if is_on else nothing)


def work(folder: str) -> None:
    from paddlevit_dist import Trainer, is_main
    from paddlevit_dist.core.logging.record import make_folder
    from paddlevit_dist.images.classification.task import Classification

    turns = Turns()

    class Timed(Classification):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            turns.before_step()
            return super().train_step(model, batch, step)

    make_folder(f"{folder}/run")
    arguments = [f"-cfg={ROOT}/configs/vit_digits.yaml", f"-output={folder}/run", "-num_workers=0"]
    arguments += ["TRAIN.WARMUP_EPOCHS", "0", "TRAIN.NUM_EPOCHS", "1", "REPORT_FREQ", "1000"]
    config = configuration.load([*arguments, f"-batch_size={BATCH}"]).values
    task = Timed(config)
    train, validation = (task.build_dataset(split, Path(folder)) for split in ("train", "val"))
    samples = Repeated(train, (BLOCKS + 1) * BLOCK_UPDATES * BATCH * 2)
    Trainer(config, task, {"train": samples, "val": Repeated(validation, BATCH)}).train()
    for name, function in turns.on.items():
        setattr(turns.step if name == "host_barrier" else status, name, function)
    calls = {
        "note of a place": lambda: status.set_detail("in its forward pass"),
        "meeting": turns.step.host_barrier,
    }
    micros = {}
    for name, call in calls.items():
        number = CALLS if name != "meeting" else CALLS // 10
        started = time.perf_counter()
        for _ in range(number):
            call()
        micros[name] = 1e6 * (time.perf_counter() - started) / number
    if is_main():
        Path(folder, "times.json").write_text(json.dumps([turns.seconds, micros]), encoding="utf-8")


def main() -> None:
    if "--work" in sys.argv:
        launch_workers(work, (sys.argv[2],), plan_processes(2))
        return
    rounds.print_machine()
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        children.run([sys.executable, __file__, "--work", folder], children.tuned_environment(2), 600.0)
        seconds, micros = json.loads(Path(folder, "times.json").read_text(encoding="utf-8"))
    pairs = [(seconds["with"][2 * i : 2 * i + 2], seconds["without"][2 * i : 2 * i + 2]) for i in range(BLOCKS // 4)]
    pairs = [pair for pair in pairs[1:] if len(pair[0]) == len(pair[1]) == 2]  # the first are a warm-up
    percent = statistics.median(100.0 * (sum(on) / sum(off) - 1.0) for on, off in pairs)
    for name, micro in micros.items():
        print(f"{name}: {micro:.1f} microseconds")
    for name in ("with", "without"):
        print(f"update {name}: {Spread.of(seconds[name]).text(1e3)} ms")
    print(f"notes and meetings: median {percent:+.2f} % of an update over {len(pairs)} rounds")
    rounds.print_result({"percent_of_an_update": percent, **micros})


if __name__ == "__main__":
    main()
