"""What ``TO_STATIC`` gains: a compiled model's training step and evaluation against the same model as it is.

    python benchmarks/compiled.py

Both models live in one process and take turns. Compiling happens in the warm-up; its seconds are given beside.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import children
import clock
import rounds
from rounds import Spread
from smallest import SHALLOW, sized

NAME, BATCH, ROUNDS, PROCESSES = "vit_tiny_patch16_224", sized(8, 1), 9, 2  # threads as with two processes
PLAIN, COMPILED = "as it is", "compiled"


def contenders(training: bool) -> dict[str, Callable[[], float]]:
    """Seconds of a step of each model."""
    import numpy as np
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.engine.precision import compile_passes

    generator = np.random.default_rng(0)
    images = paddle.to_tensor(generator.standard_normal((BATCH, 3, 224, 224)).astype("float32"))
    labels = paddle.to_tensor(generator.integers(0, 1000, BATCH))

    def of(is_compiled: bool) -> Callable[[], float]:
        paddle.seed(1)
        model = create_model(NAME, num_classes=1000, drop_path=0.1 if training else 0.0, **SHALLOW)
        model.train() if training else model.eval()
        optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())
        if is_compiled:
            compile_passes(model)

        def step() -> float:
            started = clock.now()
            if training:
                loss = paddle.nn.functional.cross_entropy(model(images), labels)
                loss.backward()
                optimizer.step()
                optimizer.clear_grad(False)
            else:
                with paddle.no_grad():
                    model(images)
            return clock.now() - started

        what, way = "training step" if training else "evaluation", COMPILED if is_compiled else PLAIN
        print(f"first {what}, {way}: {step():.1f} s")
        return step

    return {PLAIN: of(False), COMPILED: of(True)}


def main() -> None:
    rounds.print_machine(cpu_only=False)
    result: dict[str, Any] = {}
    rows = []
    for what, training in (("training step", True), ("evaluation", False)):
        seconds = rounds.interleave(contenders(training), ROUNDS)
        faster = rounds.ratios(seconds[PLAIN], seconds[COMPILED])
        rows.append([what, *(Spread.of(seconds[way]).text(1e3, 0) for way in (PLAIN, COMPILED)), faster.text()])
        result[f"{what.replace(' ', '_')}_times_as_fast"] = faster.median
    header = ["", f"{PLAIN}, ms", f"{COMPILED}, ms", "times as fast"]
    rounds.print_table(f"{NAME} on {clock.device_facts()['device']}, {BATCH} images, {ROUNDS} rounds", header, rows)
    rounds.print_result(result)


if __name__ == "__main__":
    if os.environ.get("PADDLEVIT_DIST_ENVIRONMENT") != "benchmark":
        command = [sys.executable, "-W", "ignore", __file__]
        os.execve(sys.executable, command, children.tuned_environment(PROCESSES, hides_gpus=False))
    main()
