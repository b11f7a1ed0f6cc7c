"""What bfloat16 gives on a CPU that has instructions for it (``avx512_bf16``, AMX).

    python benchmarks/bfloat16.py                                  # ViT-Ti/16
    python benchmarks/bfloat16.py pvt_v2_b0 convnext_tiny          # other models

First which of Paddle's operations compute in bfloat16 outside of its inference engine. Then the evaluation of a batch
of 8: the model as it is, and exported into Paddle's inference engine (``paddle.inference``), plain, with oneDNN, and
with oneDNN in bfloat16. Peer: the model as it is. The error is the largest of the logits' errors, as a share of the
largest logit.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rounds
from smallest import SHALLOW, sized

BATCH, SIDE, ROUNDS = sized(8, 1), 224, 7
ENGINES = ("plain", "onednn", "bfloat16")


def refused_operations() -> dict[str, str]:
    """For each operation that a transformer needs, what Paddle says to operands in bfloat16; empty: it computes."""
    import paddle
    from paddle.nn import functional as F

    x, w = (paddle.ones(shape).astype("bfloat16") for shape in ([8, 16], [16, 4]))
    attempts: dict[str, Callable[[], Any]] = {
        "matmul": lambda: paddle.matmul(x, w),
        "linear": lambda: F.linear(x, w),
        "add": lambda: x + x,
        "softmax": lambda: F.softmax(x),
        "gelu": lambda: F.gelu(x),
        "layer_norm": lambda: F.layer_norm(x, 16),
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            attempt()
            said[name] = ""
        except RuntimeError as error:
            said[name] = str(error).strip().split("\n")[0]
    return said


def get_engine(folder: str, kind: str, images: np.ndarray) -> Callable[[], np.ndarray]:
    """The exported model in Paddle's inference engine, as a function that returns the logits of ``images``."""
    from paddle import inference

    program = next(path for path in Path(folder).iterdir() if path.suffix in (".json", ".pdmodel"))
    options = inference.Config(str(program), str(program.with_suffix(".pdiparams")))
    options.disable_gpu()
    options.disable_glog_info()
    options.set_cpu_math_library_num_threads(1)
    options.disable_mkldnn() if kind == "plain" else options.enable_mkldnn()
    if kind == "bfloat16":
        options.enable_mkldnn_bfloat16()
    engine = inference.create_predictor(options)
    given = engine.get_input_handle(engine.get_input_names()[0])

    def compute() -> np.ndarray:
        given.copy_from_cpu(images)
        engine.run()
        return engine.get_output_handle(engine.get_output_names()[0]).copy_to_cpu()

    return compute


def measure(name: str) -> dict[str, float]:
    """Print the table of one model; returns how many times as fast as the model itself each engine is."""
    import paddle

    from paddlevit_dist import create_model

    paddle.seed(0)
    model = create_model(name, **SHALLOW)
    model.eval()
    images = np.random.default_rng(0).standard_normal((BATCH, 3, SIDE, SIDE)).astype(np.float32)

    def as_it_is() -> np.ndarray:
        with paddle.no_grad():
            return model(paddle.to_tensor(images)).numpy()

    expected = as_it_is()
    contenders, errors = {"model": as_it_is}, {"model": "0"}
    with tempfile.TemporaryDirectory(prefix="benchmark_") as folder:
        specification = [paddle.static.InputSpec([None, 3, SIDE, SIDE], "float32")]
        paddle.jit.save(model, f"{folder}/model", input_spec=specification)
        for kind in ENGINES:
            try:
                compute = get_engine(folder, kind, images)
                error = np.abs(compute() - expected).max() / np.abs(expected).max()
                contenders[kind], errors[kind] = compute, f"{error:.1e}"
            except (RuntimeError, ValueError) as problem:
                print(f"{name}, {kind}: refused: {str(problem).strip().splitlines()[-1][:160]}")
        seconds = rounds.interleave({kind: _timed(compute) for kind, compute in contenders.items()}, ROUNDS)
    rows, gains = [], {}
    for kind, values in seconds.items():
        gain = rounds.ratios(seconds["model"], values)
        rows.append([kind, rounds.Spread.of(values).text(1000.0, digits=0), gain.text(), errors[kind]])
        gains[f"{name}_{kind}"] = gain.median
    rounds.table(f"{name}, batch {BATCH}", ["", "ms", "times as fast", "error"], rows)
    return gains


def _timed(compute: Callable[[], np.ndarray]) -> Callable[[], float]:
    def seconds() -> float:
        began = time.perf_counter()
        compute()
        return time.perf_counter() - began

    return seconds


def main() -> None:
    if sys.argv[1:2] == ["--measured"]:
        has = sorted(flag for flag in rounds.tuning.processor()["flags"] if "bf16" in flag or "amx" in flag)
        print(f"instructions: {', '.join(has) or 'none'}")
        said = refused_operations()
        print("in bfloat16, outside of the inference engine:")
        for operation, answer in said.items():
            print(f"  {operation}: {answer or 'computes'}")
        result: dict[str, float] = {"refused_operations": float(sum(bool(answer) for answer in said.values()))}
        for name in sys.argv[2:]:
            result.update(measure(name))
        rounds.print_result(result)
        return
    rounds.print_machine()
    command = [sys.executable, "-W", "ignore", __file__, "--measured", *(sys.argv[1:] or ["vit_tiny_patch16_224"])]
    process = rounds.start(command, {**rounds.tuned_environment(1), "OMP_NUM_THREADS": "1"})
    try:
        if process.wait(timeout=900):
            raise SystemExit(f"it ended with exit code {process.returncode}")
    finally:
        rounds.end(process)


if __name__ == "__main__":
    main()
