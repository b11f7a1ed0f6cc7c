"""Exported classifiers in onnxruntime on a GPU against timm in eager torch on the same GPU.

    python benchmarks/exported_onnx.py FOLDER [--batch 256] [--rounds 9]

FOLDER has what these commands write, from any weights of the two models (NAME is vit_tiny_patch16_224 and pvtv2_b0, and
PRECISION float32 and float16):

    python -m paddlevit_dist export WEIGHTS FOLDER/NAME.PRECISION -model=NAME -format=onnxruntime -precision=PRECISION

Needs onnxruntime-gpu, torch with CUDA and timm; not Paddle. Both sides read images that are on the GPU already and
leave their logits there, onnxruntime by IO binding. A turn is some batches of one contender; the contenders take turns,
and the one that begins changes from round to round. float32 is measured twice, with TF32 in products and convolutions
switched off on both sides, and switched on. onnxruntime's fused attention is allowed for short sequences in float32,
too, by its environment variable, as a user would set it.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from smallest import lacks, need, sized

need("onnxruntime", "timm", "torch")

import onnxruntime  # noqa: E402
import timm  # noqa: E402
import torch  # noqa: E402

PEERS = {"vit_tiny_patch16_224": "vit_tiny_patch16_224", "pvtv2_b0": "pvt_v2_b0"}
MODES = ("float32", "float32 with TF32", "float16")
BATCHES_IN_A_TURN, WARM_UP = 10, 5


def ours(file: Path, images: torch.Tensor, uses_tf32: bool) -> Callable[[], Any]:
    """Computes one batch of the exported model and waits for it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    provider = {"prefer_nhwc": "1", "use_tf32": str(int(uses_tf32))}
    session = onnxruntime.InferenceSession(str(file), options, providers=[("CUDAExecutionProvider", provider)])
    (source,), (target,) = session.get_inputs(), session.get_outputs()
    logits = torch.empty(len(images), target.shape[1], device="cuda")
    binding = session.io_binding()
    for bind, name, tensor in ((binding.bind_input, source.name, images), (binding.bind_output, target.name, logits)):
        kind = np.float16 if tensor.dtype == torch.float16 else np.float32
        bind(name, "cuda", 0, kind, tuple(tensor.shape), tensor.data_ptr())

    def compute() -> torch.Tensor:
        session.run_with_iobinding(binding)
        return logits

    return compute


def theirs(name: str, images: torch.Tensor, uses_tf32: bool) -> Callable[[], Any]:
    """Computes one batch with timm's model."""
    model = timm.create_model(name).cuda().eval().to(images.dtype)

    def compute() -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = uses_tf32
        with torch.inference_mode():
            return model(images)

    return compute


def rate(compute: Callable[[], Any], batch: int) -> float:
    """Images per second of one turn."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(BATCHES_IN_A_TURN):
        compute()
    torch.cuda.synchronize()
    return BATCHES_IN_A_TURN * batch / (time.perf_counter() - started)


def compare(folder: Path, name: str, mode: str, batch: int, rounds: int) -> dict[str, list[float]]:
    """Rates of both contenders, one for each round."""
    precision = mode.split()[0]
    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.randn(batch, 3, 224, 224, device="cuda", generator=generator).to(getattr(torch, precision))
    uses_tf32 = mode != "float32"
    contenders = {
        "ours": ours(folder / f"{name}.{precision}.onnx", images, uses_tf32),
        "timm": theirs(PEERS[name], images, uses_tf32),
    }
    for compute in contenders.values():
        for _ in range(WARM_UP):
            compute()
    rates: dict[str, list[float]] = {who: [] for who in contenders}
    for number in range(rounds):
        for who in sorted(contenders, reverse=bool(number % 2)):
            rates[who].append(rate(contenders[who], batch))
    return rates


def shown(values: list[float], form: str = ",.0f") -> str:
    """Median, lowest and highest."""
    return f"{statistics.median(values):{form}} [{min(values):{form}}, {max(values):{form}}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--batch", type=int, default=sized(256, 2))
    parser.add_argument("--rounds", type=int, default=sized(9, 1))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise lacks("a GPU")
    if options.folder is None:
        raise lacks("FOLDER, with exported networks: see -h")
    os.environ.setdefault("ORT_MIN_SEQ_LEN_EFFICIENT_ATTENTION_FP32", "0")  # read when a session is made
    onnxruntime.preload_dlls()  # torch's own CUDA libraries
    gpu, versions = torch.cuda.get_device_name(), f"torch {torch.__version__}, timm {timm.__version__}"
    print(f"{gpu}, onnxruntime-gpu {onnxruntime.__version__}, {versions}, batch {options.batch}")
    print("| model, precision | onnxruntime, images/s | timm eager, images/s | onnxruntime / timm |\n|---|---|---|---|")
    result = {}
    for name in PEERS:
        for mode in MODES:
            rates = compare(options.folder, name, mode, options.batch, options.rounds)
            ratios = [mine / other for mine, other in zip(rates["ours"], rates["timm"])]
            cells = (f"{name}, {mode}", shown(rates["ours"]), shown(rates["timm"]), shown(ratios, ".2f"))
            print(f"| {' | '.join(cells)} |", flush=True)
            result[f"{name} {mode}"] = round(statistics.median(ratios), 3)
    print("RESULT", json.dumps(result))


if __name__ == "__main__":
    main()
