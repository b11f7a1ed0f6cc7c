"""What a call of ``Predictor`` with one image costs beside its parts: decoding, transform and network.

    python benchmarks/predictor_calls.py

One block of ViT-Ti/16 with random weights, and a JPEG of 640 x 480 pixels. A round reads and transforms the image, runs
the network on it, and calls the predictor; their order changes. Time is that of the processor, of all threads, so that
other programs on the machine matter little.
"""

import io
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import paddle
from PIL import Image
from rounds import Spread, interleave
from smallest import sized

from paddlevit_dist import Predictor, create_model, create_transform

NAME = "vit_tiny_patch16_224"
DEPTH = 1
ROUNDS = sized(200, 3)


def make_jpeg() -> bytes:
    colors = np.random.default_rng(0).integers(0, 256, (15, 20, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(colors).resize((640, 480)).save(file, "JPEG")
    return file.getvalue()


def main() -> None:
    model, content = create_model(NAME, num_classes=10, depth=DEPTH), make_jpeg()
    with tempfile.TemporaryDirectory() as folder:
        weights, recipe = Path(folder) / "vit.pdparams", Path(folder) / "recipe.yaml"
        paddle.save(model.state_dict(), str(weights))
        recipe.write_text(f"MODEL:\n  NAME: {NAME}\n")
        predict = Predictor(weights, recipe=str(recipe), **{"MODEL.DEPTH": DEPTH})
    transform = create_transform(model)
    images = transform(Image.open(io.BytesIO(content)))[None]

    def prepare() -> None:
        transform(Image.open(io.BytesIO(content)))

    def run_network() -> None:
        with paddle.no_grad():
            predict.model(images).numpy()

    def measure(call):
        def seconds() -> float:
            began = time.process_time()
            call()
            return time.process_time() - began

        return seconds

    parts = {
        "decoding and transform": prepare,
        "network": run_network,
        "call": lambda: predict(Image.open(io.BytesIO(content))),
    }
    found = interleave({name: measure(call) for name, call in parts.items()}, ROUNDS, sized(20, 1))
    found["beside"] = [c - a - b for a, b, c in zip(*found.values())]
    for name, seconds in found.items():
        print(f"{name}: {Spread.of(seconds).text(1e3)} ms of processor time")
    print("RESULT", json.dumps({f"{name}_ms": 1e3 * Spread.of(seconds).median for name, seconds in found.items()}))


if __name__ == "__main__":
    main()
