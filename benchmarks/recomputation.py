"""What ``-recompute`` costs and saves: peak memory and time of a training step, with and without.

    python benchmarks/recomputation.py                                        # ViT-S/16 and Swin-T at 224 pixels
    python benchmarks/recomputation.py vit_small_patch16_224                  # one of them

Each measurement is a process of its own: high-water marks cannot be set back. Memory is what a step adds at most to
model, gradients and optimizer state, which the first step has made: of the process by the kernel's count on a CPU, of
tensors on the GPU where there is one.
"""

import functools
import json
import statistics
import subprocess
import sys

import children
import clock
import rounds
from process_memory import status_bytes
from rounds import Spread
from smallest import SHALLOW, sized

from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Recomputable

BATCHES = {"vit_small_patch16_224": sized(16, 1), "swin_tiny_patch4_window7_224": 16}
ROUNDS, STEPS = 5, sized(3, 1)
RECOMPUTED, KEPT = "recomputed", "kept"


def work(name: str, way: str) -> None:
    """Print the seconds of a step and the bytes that it adds."""
    import numpy as np
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core import settings
    from paddlevit_dist.core.distributed import recompute_layers
    from paddlevit_dist.images.classification.task import Classification

    paddle.seed(1)
    model = create_model(name, num_classes=1000, drop_path=0.1, **SHALLOW)
    model.train()
    if way == RECOMPUTED:
        recompute_layers(
            get_aspect(Classification(settings.load([f"MODEL.NAME={name}"]).values), Recomputable).recomputed_layers(
                model
            )
        )
    optimizer = paddle.optimizer.AdamW(1e-4, parameters=model.parameters())
    generator = np.random.default_rng(0)

    def step(batch: int) -> float:
        images = paddle.to_tensor(generator.standard_normal((batch, 3, 224, 224)).astype("float32"))
        labels = paddle.to_tensor(generator.integers(0, 1000, batch))
        started = clock.now()
        loss = paddle.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(False)
        return clock.now() - started

    step(1)
    is_on_gpu = clock.peak_bytes() is not None
    before = paddle.device.cuda.memory_allocated() if is_on_gpu else status_bytes("self", "VmRSS")
    seconds = [step(BATCHES[name]) for _ in range(STEPS + 1)][1:]
    peak = clock.peak_bytes() if is_on_gpu else status_bytes("self", "VmHWM")
    device = clock.device_facts()["device"]
    print(json.dumps({"seconds": statistics.median(seconds), "bytes": peak - before, "device": device}))


def measured(name: str, way: str, memory: dict[str, list[float]], seen: set[str]) -> float:
    """Seconds of a step in a new process; its bytes go to ``memory``, its device to ``seen``."""
    command = [sys.executable, "-W", "ignore", __file__, "work", name, way]
    process = children.start(command, children.tuned_environment(1, hides_gpus=False), stdout=subprocess.PIPE)
    try:
        output, _ = process.communicate(timeout=600)
    finally:
        children.end(process)
    if process.returncode:
        raise SystemExit(f"{name}, {way}: exit code {process.returncode}")
    result = json.loads(output.splitlines()[-1])
    memory[way].append(result["bytes"])
    seen.add(result["device"])
    return result["seconds"]


def main(names: list[str]) -> None:
    rounds.print_machine(cpu_only=False)
    result = {}
    for name in names:
        memory: dict[str, list[float]] = {RECOMPUTED: [], KEPT: []}
        seen: set[str] = set()
        ways = {way: functools.partial(measured, name, way, memory, seen) for way in (RECOMPUTED, KEPT)}
        seconds = rounds.interleave(ways, ROUNDS, warm_up=0)
        rows = [
            [way, Spread.of(seconds[way]).text(1e3, 0), Spread.of(memory[way]).text(1e-6, 0)]
            for way in (KEPT, RECOMPUTED)
        ]
        title = f"{name} on {', '.join(seen)}, batch {BATCHES[name]}, {ROUNDS} rounds"
        rounds.print_table(title, ["blocks", "ms per step", "MB added"], rows)
        saved = rounds.ratios(memory[KEPT], memory[RECOMPUTED])
        slower = rounds.ratios(seconds[RECOMPUTED], seconds[KEPT])
        print(f"memory {saved.text()} times smaller, step {slower.text()} times longer")
        result[f"{name}_memory_kept_over_recomputed"] = saved.median
        result[f"{name}_time_recomputed_over_kept"] = slower.median
    rounds.print_result(result)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    else:
        unknown = set(sys.argv[1:]) - set(BATCHES)
        if unknown:
            raise SystemExit(f"expected {' or '.join(BATCHES)}, not {unknown.pop()}")
        main(sys.argv[1:] or sized(list(BATCHES), list(BATCHES)[:1]))
