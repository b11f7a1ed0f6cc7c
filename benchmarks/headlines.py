"""Runs the benchmarks and sets what they measure beside goals and stored figures.

    python benchmarks/headlines.py [--all] [--peer-python PYTHON] [--only NAME]

``make bench`` is one row per section of docs/explanation/benchmarks.md in less than 25 minutes on the machine there;
``make bench-all`` is every benchmark in full. Each has its own line ``RESULT {...}``, whose figures the table repeats.
A benchmark that fails or overruns its time is named, the others run on, and the exit code is 1.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import children
import rounds
from smallest import sized

FOLDER = Path(__file__).resolve().parent
PEER = "PEER"  # in a command: "--peer-python PYTHON", or nothing
ALL_SECONDS = 7200


class Headline(NamedTuple):
    """A benchmark's main figure; ``stored`` is from docs/explanation/benchmarks.md, ``goal`` is the bound to keep."""

    name: str
    command: str  # of ``make bench``
    whole: str  # of ``make bench-all``
    key: str
    goal: str
    stored: float | None
    seconds: float  # that ``make bench`` gives it


HEADLINES = (
    Headline(
        "ViT-Ti/16, training, 1 process: torch / ours",
        f"train_throughput.py --models vit_tiny_patch16_224 --modes 1x1 {PEER}",
        f"train_throughput.py {PEER}",
        "vit_tiny_patch16_224 1x1 timm",
        ">= 1.7",
        1.31,
        150,
    ),
    Headline(
        "ViT-Ti/16, evaluation, 1 process: torch / ours",
        f"eval_throughput.py --models vit_tiny_patch16_224 --modes 1x1 {PEER}",
        f"eval_throughput.py {PEER}",
        "vit_tiny_patch16_224 1x1 timm",
        ">= 1.75",
        1.18,
        90,
    ),
    Headline(
        "one update without its passes: Paddle / ours",
        f"update.py {PEER}",
        f"update.py {PEER}",
        "all three: Paddle's own / ours",
        ">= 1",
        1.45,
        120,
    ),
    Headline(
        "start of one process: ours / by hand",
        "startup.py --first-step",
        "startup.py",
        "first_step_1_over_by_hand",
        "<= 1.1",
        1.03,
        110,
    ),
    Headline(
        "engine against a bare loop, digits, overhead in %",
        "framework_overhead.py digits_1",
        "framework_overhead.py",
        "digits_1_overhead_percent",
        "<= 2",
        1.6,
        120,
    ),
    Headline("tuned against plain, a step", "cpu_tuning.py", "cpu_tuning.py", "step_speedup", ">= 1.5", 1.94, 140),
    Headline(
        "JPEGs to batches, exact: ours / PaddleViT's way",
        "image_pipeline.py --two_workers --rounds 3 --images 250",
        "image_pipeline.py",
        "exact",
        ">= 2.5",
        1.86,
        120,
    ),
    Headline(
        "tar shards, later epochs: an address / a folder",
        "remote_shards.py --images 300 --rounds 3",
        "remote_shards.py",
        "later epochs",
        ">= 0.9",
        0.96,
        120,
    ),
    Headline(
        "metrics: a call each / meters",
        "collectives.py --start launcher",
        "collectives.py --ranks 2",
        "launcher_2_scalars_over_meters",
        ">= 3",
        25.29,
        90,
    ),
    Headline(
        "ImageNet's list in 8 processes: bytes, lists / ours",
        "dataset_memory.py --rounds 3",
        "dataset_memory.py",
        "pickle_ratio",
        ">= 1000",
        249925.0,
        80,
    ),
    Headline(
        "a table of a million labels, with its images: processor s",
        "label_tables.py",
        "label_tables.py",
        "label s",
        "<= 5",
        5.04,  # with other work on the machine
        240,
    ),
    Headline(
        "one sparse convolution: torch / ours",
        "sparse_conv.py --only layers",
        "sparse_conv.py",
        "layer_51k_32_speedup_over_torch",
        ">= 1.3",
        2.37,
        140,
    ),
    Headline(
        "Point Transformer V3, an update of four blocks: torch / ours",
        f"sorted_points.py {PEER}",
        f"sorted_points.py {PEER}",
        "patches of 128, convolution: torch / ours",
        ">= 1.2",
        1.88,
        300,
    ),
    Headline(
        "quantizing points: np.unique / ours",
        "voxelize.py",
        "voxelize.py",
        "quantize_times_as_fast",
        ">= 5",
        21.0,
        110,
    ),
    Headline(
        "COCO's scores of 500,000 boxes: pycocotools / ours",
        "coco_evaluation.py --rounds 1",
        "coco_evaluation.py",
        "times_as_fast",
        ">= 5",
        9.14,
        150,
    ),
    Headline(
        "scores of 100,000 images x 80 labels with intervals, s",
        "label_scores.py",
        "label_scores.py",
        "seconds",
        "<= 20",
        12.1,
        150,
    ),
    Headline(
        "landmark U-Net, a training step: torch / ours",
        f"networks.py --only landmarks --rounds 7 {PEER}",
        f"networks.py {PEER}",
        "landmarks_over_torch",
        ">= 1",
        1.19,
        110,
    ),
    Headline(
        "SegFormer-B0 at 512 pixels, an update on 2 cores: torch / ours",
        f"segmentation.py --only training --rounds 3 {PEER}",
        f"segmentation.py {PEER}",
        "training_over_torch",
        ">= 1.2",
        2.05,
        240,
    ),
    Headline(
        "RT-DETR-R18 at 320 pixels, a training step: torch / ours",
        f"image_networks.py --only rtdetr --rounds 5 {PEER}",
        f"image_networks.py {PEER}",
        "rtdetr_training_over_torch",
        ">= 1.2",
        1.22,
        180,
    ),
    Headline(
        "masked autoencoder of ViT-Ti/16, decoder 128 x 2, an update: torch / ours",
        f"pretraining.py --only mae_128x2 --rounds 5 {PEER}",
        f"pretraining.py {PEER}",
        "mae_128x2_over_torch",
        ">= 1",
        1.05,
        120,
    ),
    Headline(
        "the same as a share of a supervised update",
        f"pretraining.py --only share --rounds 5 {PEER}",
        "pretraining.py --only share",
        "share_of_supervised_ours",
        "<= 0.45",
        0.435,
        120,
    ),
    Headline(
        "self-distillation of ViT-Ti/16, an update: torch / ours",
        f"pretraining.py --only dino --rounds 5 {PEER}",
        f"pretraining.py --only dino {PEER}",
        "dino_over_torch",
        ">= 1",
        1.01,
        240,
    ),
)
# Without a headline: minutes to hours each.
ONLY_WHOLE = (
    f"scaling.py {PEER}",
    "threads.py",
    "cpu_settings.py",
    f"depthwise.py {PEER}",
    f"pretraining_parity.py {PEER}",
    "saving.py",
    "predictor_calls.py",
    "watchdog.py",
    "compiled.py",
    "recomputation.py",
    "heatmaps.py",
    "intervals.py",
    "interval_coverage.py",
    "scene_memory.py",
    "large_scene.py",
    "faults.py",
    "soak.py",
)


class Measured(NamedTuple):
    """How a benchmark ended."""

    result: dict[str, float]
    seconds: float
    problem: str


def run(words: list[str], seconds: float, peer_python: str) -> Measured:
    """Run one benchmark to its end, its output shown as it comes."""
    peer = ["--peer-python", peer_python] if peer_python else []
    command = [sys.executable, str(FOLDER / words[0])]
    command += [part for word in words[1:] for part in (peer if word == PEER else [word])]
    print(f"\n$ {' '.join(command)}", flush=True)
    began = time.monotonic()
    process = children.start(command, children.clean_environment(), stdout=subprocess.PIPE)
    try:
        output, _ = process.communicate(timeout=seconds)
        problem = f"exit code {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        output, problem = "", f"took longer than {seconds:g} s"
    finally:
        children.end(process)
    print(output, end="", flush=True)
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    return Measured(json.loads(lines[-1][len("RESULT ") :]) if lines else {}, time.monotonic() - began, problem)


def kept(value: float, goal: str) -> bool:
    """Whether ``value`` keeps a bound such as "<= 1.1"."""
    sign, bound = goal.split()
    return value <= float(bound) if sign == "<=" else value >= float(bound)


def get_row(headline: Headline, measured: Measured) -> list[str]:
    """The table's row of a benchmark that has run."""
    value = measured.result.get(headline.key)
    stored = "" if headline.stored is None else f"{headline.stored:g}"
    if measured.problem or value is None:
        verdict = measured.problem or "not measured here"
    else:
        verdict = "kept" if kept(value, headline.goal) else "missed"
    shown = "" if value is None else f"{value:.2f}"
    return [headline.name, shown, headline.goal, stored, verdict, f"{measured.seconds:.0f}"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every benchmark in full")
    parser.add_argument("--peer-python", default="", help="an interpreter that has torch")
    parser.add_argument("--only", default=sized("", "dataset_memory"), help="benchmarks whose file's name begins so")
    options = parser.parse_args(arguments)
    rounds.print_machine()
    rows, failed, result = [], 0, {}
    for headline in HEADLINES:
        words = (headline.whole if options.all else headline.command).split()
        if not words[0].startswith(options.only):
            continue
        measured = run(words, ALL_SECONDS if options.all else headline.seconds, options.peer_python)
        failed += bool(measured.problem)
        rows.append(get_row(headline, measured))
        if headline.key in measured.result:
            result[headline.name] = measured.result[headline.key]
    for command in ONLY_WHOLE if options.all else ():
        words = command.split()
        if words[0].startswith(options.only):
            measured = run(words, ALL_SECONDS, options.peer_python)
            failed += bool(measured.problem)
            rows.append([words[0], "", "", "", measured.problem or "see above", f"{measured.seconds:.0f}"])
    rounds.print_table("Headlines", ["", "now", "goal", "stored", "", "seconds"], rows)
    rounds.print_result(result)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
