"""Our own networks beside timm's files on Paddle: forward and backward passes of the same models, one thread.

    python benchmarks/bridged_models.py [--batch 4] [--rounds 3]

Each pair is the same network with 1,000 classes in training mode. ``ours over timm`` is how many times as fast ours is.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import paddle

import paddlevit_dist  # noqa: F401  (before Paddle: it chooses MKL's instructions)
from paddlevit_dist.models import create_model

PAIRS = ("vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "convnext_tiny", "resnet18")


def seconds(model: paddle.nn.Layer, images: paddle.Tensor) -> float:
    """Return how long one forward and backward pass takes."""
    begun = time.perf_counter()
    model(images).sum().backward()
    model.clear_gradients()
    return time.perf_counter() - begun


def main() -> None:
    """Time each pair in turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    images = paddle.randn([options.batch, 3, 224, 224])
    ratios = {}
    for name in PAIRS:
        models = {"ours": create_model(name), "timm": create_model(f"timm:{name}")}
        times: dict[str, list[float]] = {kind: [] for kind in models}
        for turn in range(options.rounds + 1):
            for kind, model in models.items():
                model.train()
                taken = seconds(model, images)
                if turn:
                    times[kind].append(taken)
        ours, theirs = (statistics.median(times[kind]) for kind in ("ours", "timm"))
        ratios[f"{name}: ours over timm"] = round(theirs / ours, 2)
        print(
            f"{name}: ours {options.batch / ours:.1f} images/s, timm's files {options.batch / theirs:.1f}", flush=True
        )
    print("RESULT", json.dumps(ratios))


if __name__ == "__main__":
    main()
