"""How fast passes are with fused kernels on a GPU, whether a graph of them can be captured, and losses over axis 1."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from support.processes import ROOT

PROCESSES, AT_ONCE = 24, 4
WRONG = 1e-3  # share of the loss: rounding of float32 is far below


class Sizes(NamedTuple):
    """Of what is measured."""

    batch: int = 256
    rounds: int = 5
    updates: int = 20


class Passes:
    """Forward pass, loss and backward pass of ViT-Ti/16 in bfloat16, and AdamW."""

    def __init__(self, is_fused: bool, batch: int, **options: Any) -> None:
        import paddle

        from paddlevit_dist import create_model
        from paddlevit_dist.core.engine.precision import TrainingPrecision
        from paddlevit_dist.extensions.gpu_kernels.hook import use_fused_kernels

        paddle.seed(0)
        self.model = create_model("vit_tiny_patch16_224", **{"num_classes": 1000, **options})
        self.model.train()
        self.precision = TrainingPrecision(True, "bfloat16")
        self.lines = use_fused_kernels(self.model, self.precision) if is_fused else []
        generator, side = np.random.default_rng(0), self.model.image_size[0]
        images = generator.standard_normal((batch, 3, side, side)).astype("f4")
        labels = generator.integers(0, 10, (batch,))
        self.batch = {"images": paddle.to_tensor(images), "labels": paddle.to_tensor(labels)}
        self._optimizer = paddle.optimizer.AdamW(1e-4, parameters=self.model.parameters())

    def compute(self) -> Any:
        """Return the loss, after its gradients were computed."""
        import paddle

        with self.precision.autocast():
            logits = self.model(self.batch["images"])
        loss = paddle.nn.functional.cross_entropy(logits.astype("float32"), self.batch["labels"])
        loss.backward()
        return loss

    def step(self) -> None:
        """Update the weights."""
        self._optimizer.step()
        self._optimizer.clear_grad(set_to_zero=False)

    def update(self) -> None:
        """Make a whole update."""
        self.compute()
        self.step()


def time_updates(update: Callable[[], Any], updates: int) -> float:
    """Return the seconds of an update, with the device's."""
    wait_for_device()
    began = time.perf_counter()
    for _ in range(updates):
        update()
    wait_for_device()
    return (time.perf_counter() - began) / updates


def wait_for_device() -> None:
    """Wait for all that a GPU has to do; a CPU is never late."""
    import paddle

    if paddle.get_device() != "cpu":
        paddle.device.synchronize()


def compare(plain: Passes, fused: Passes, sizes: Sizes) -> tuple[float, float, float]:
    """Return the seconds of an update of both, and the ratio of the fused one's; medians of rounds in turn."""
    for passes in (plain, fused):
        time_updates(passes.update, 3)
    seconds = [[time_updates(one.update, sizes.updates) for one in (plain, fused)] for _ in range(sizes.rounds)]
    of_plain, of_fused = np.median(seconds, axis=0)
    return float(of_plain), float(of_fused), float(np.median([fused / plain for plain, fused in seconds]))


def capture(passes: Passes, sizes: Sizes) -> str:
    """Say how long an update with captured passes (TRAIN.CAPTURE) takes, the optimizer's step included, or why not."""
    import paddle

    from paddlevit_dist.core.engine import TrainStep
    from paddlevit_dist.core.engine.fused_optimizers import FusedAdamW
    from paddlevit_dist.core.tasks import Capturable, LossTerm, StepPosition, Task, TaskTraits

    class LabelsTask(Task, Capturable):
        """A cross-entropy with labels."""

        traits = TaskTraits(normalizers_per_sample={"loss": 1}, normalizer_names=("loss",))

        def find_obstacle(self) -> str:
            return ""

        def train_step(self, model: Any, batch: Any, step: Any) -> dict[str, LossTerm]:
            logits = model(batch["images"]).astype("float32")
            loss = paddle.nn.functional.cross_entropy(logits, batch["labels"], reduction="sum")
            return {"loss": LossTerm(loss, batch["images"].shape[0])}

    parameters, lines = passes.model.parameters(), list[str]()
    step = TrainStep(
        LabelsTask(SimpleNamespace(TASK="labels")),  # type: ignore[arg-type]
        passes.model,
        FusedAdamW(
            {one.name: 0.0 for one in parameters},
            learning_rate=0.0,
            parameters=[{"params": parameters, "weight_decay": 0.0}],
            weight_decay=0.0,
        ),
        passes.precision,
        seed=0,
        samples_per_update=passes.batch["labels"].shape[0],
        accumulation_steps=1,
        gradient_clip=None,
        captures=True,
        log=lines.append,
    )

    def update() -> None:
        step.launch([dict(passes.batch)], StepPosition(1, 0, 1), 1e-4)

    time_updates(update, 3)  # the second one captures
    seconds = time_updates(update, sizes.updates)
    step.flush()
    is_on = step.captured is not None and step.captured.is_on
    return f"with TRAIN.CAPTURE {1e3 * seconds:.1f} ms" if is_on else f"no graph is captured: {lines[-1]}"


def measure_loss_over_axis_1() -> list[float]:
    """Return the largest share by which cross-entropy over axis 1 of 4 and 5 axes is off, for each way of it."""
    import paddle

    from paddlevit_dist.core.losses.cross_entropy import CANDIDATES

    worst = [0.0] * len(CANDIDATES)
    for shape in ((2, 19, 32, 32), (1, 4, 16, 16, 16)):
        generator = np.random.default_rng(0)
        logits = generator.standard_normal(shape).astype("f4")
        labels = generator.integers(0, shape[1], (shape[0], *shape[2:]))
        wide = logits.astype("f8")
        expected = (np.log(np.exp(wide).sum(1)) - np.take_along_axis(wide, labels[:, None], 1)[:, 0]).sum()
        for position, compute in enumerate(CANDIDATES.values()):
            found = compute(paddle.to_tensor(logits), paddle.to_tensor(labels), -100, 1).sum().item()
            difference = abs(found - expected) / expected if np.isfinite(found) else np.inf
            worst[position] = max(worst[position], float(difference))
    return worst


def count_wrong(processes: int = PROCESSES) -> str:
    """Say in how many new processes each way to compute cross-entropy over axis 1 is wrong."""
    from paddlevit_dist.core.losses.cross_entropy import CANDIDATES

    command = [sys.executable, "-W", "ignore", "-m", __name__]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    found: list[list[float]] = []
    for first in range(0, processes, AT_ONCE):
        number = min(AT_ONCE, processes - first)
        group = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(number)]
        for process in group:
            said, _ = process.communicate(timeout=120)
            assert process.returncode == 0, f"a process ended with exit code {process.returncode}"
            found.append([float(word) for word in said.split()[-len(CANDIDATES) :]])
    numbers = [sum(not one[position] <= WRONG for one in found) for position in range(len(CANDIDATES))]
    wrong = ", ".join(f"{number} by {name}" for number, name in zip(numbers, CANDIDATES))
    return f"of {processes} processes cross-entropy over axis 1 is wrong in {wrong}"


def measure_all(sizes: Sizes, processes: int = PROCESSES, **options: Any) -> tuple[float, str]:
    """Return the time of updates with fused kernels over that without, and all results in words."""
    plain, fused = Passes(False, sizes.batch, **options), Passes(True, sizes.batch, **options)
    assert fused.lines and fused.lines[0].startswith("fused kernels (GPU_KERNELS): "), fused.lines
    of_plain, of_fused, ratio = compare(plain, fused, sizes)
    times = f"an update takes {1e3 * of_fused:.1f} ms for {1e3 * of_plain:.1f}"
    return ratio, f"{times}, {capture(fused, sizes)}; {count_wrong(processes)}"


if __name__ == "__main__":
    print(*measure_loss_over_axis_1())
