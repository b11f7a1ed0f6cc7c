"""Segmentation of images: a training step of SegFormer-B0 against torch, and what label maps cost.

    python benchmarks/segmentation.py [--peer-python PYTHON] [--only {training,evaluation,labels}] [--rounds 7]

- training: SegFormer-B0 with 150 classes on noise of 512 pixels, 4 images an update on 2 cores: forward,
  cross-entropy at the labels' size, backward, AdamW. Ours are 2 processes with one thread and 2 images each; the peer
  is the same network of torch's own layers (``segmentation_peer.py``), as one process with two threads and as two
  processes with one; the faster one counts. Where other programs run, what both cores have computed says more
- evaluation: what share of an evaluation's time the confusion matrix takes, of images of 512 x 683 and 150 classes
- labels: decoding, and scaling, of a label map against those of its image

PYTHON has torch and NumPy. Each side is a process of its own, with the variables of a tuned run.
"""

import argparse
import collections
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
import rounds
from clock import time_call
from contenders import OURS, ProcessGroup, group_environments, serve, started
from PIL import Image
from rounds import Spread
from smallest import sized
from training_updates import get_paddle_update

THREADS, PROCESSES = "torch, 2 threads", "torch, 2 processes"
TRAINING, EVALUATION, LABELS = "training", "evaluation", "labels"
CLASSES, IGNORED, SIDE, BATCH, CORES = 150, 255, sized(512, 64), sized(4, 2), 2
STORED = sized((512, 683), (64, 85))  # height and width of an image
SAMPLES = sized(20, 1)  # of a round


# ---- training ------------------------------------------------------------------------------------------------


def noise(batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Images float32 (batch, 3, side, side), and labels int64 (batch, side, side) of squares, some without one."""
    generator = np.random.default_rng(0)
    squares = generator.integers(0, CLASSES, (batch, SIDE // 32, SIDE // 32))
    squares[generator.random(squares.shape) < 0.1] = IGNORED
    images = generator.standard_normal((batch, 3, SIDE, SIDE)).astype(np.float32)
    return images, squares.repeat(32, axis=1).repeat(32, axis=2)


def our_step(images: np.ndarray, labels: np.ndarray) -> Callable[[], None]:
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core.distributed import data_parallel
    from paddlevit_dist.core.launch.rendezvous import join_group
    from paddlevit_dist.core.losses import resized_cross_entropy

    join_group("cpu", spawned=False)
    paddle.seed(0)
    inner = create_model("segformer_b0", num_classes=CLASSES, dropout=0.1)
    inner.train()
    model = data_parallel(inner)
    originals, truth = paddle.to_tensor(images), paddle.to_tensor(labels)
    return get_paddle_update(inner, lambda: resized_cross_entropy(model(originals), truth, IGNORED) / truth.size)


def serve_steps(kind: str) -> None:
    """A contender's process."""
    images, labels = noise(BATCH if kind == THREADS else BATCH // CORES)
    if kind == OURS:
        step = our_step(images, labels)
    else:
        from segmentation_peer import get_step

        threads, ranks = (CORES, 1) if kind == THREADS else (1, int(os.environ["WORLD_SIZE"]))
        step = get_step(images, labels, CLASSES, IGNORED, threads, ranks)
    step()
    serve(lambda: time_call(step))


def measure_training(options: argparse.Namespace) -> dict[str, float]:
    groups = {}
    for kind in (OURS, THREADS, PROCESSES) if options.peer_python else (OURS,):
        python = sys.executable if kind == OURS else options.peer_python
        environments = group_environments(kind, 1 if kind == THREADS else CORES)
        if kind == THREADS:
            environments[0]["OMP_NUM_THREADS"] = str(CORES)
        groups[kind] = ProcessGroup([python, __file__, "--serve", kind], environments)
    processor: dict[str, list[float]] = {kind: [] for kind in groups}
    with started(groups):
        turns = {
            kind: lambda kind=kind, group=group: _slowest(group, processor[kind]) for kind, group in groups.items()
        }
        times = rounds.interleave(turns, options.rounds)
    processor = {kind: seconds[-options.rounds :] for kind, seconds in processor.items()}  # without the warm-up
    rows = [
        [
            kind,
            Spread.of(taken).text(1e3, 0),
            rounds.ratios(taken, times[OURS]).text(),
            Spread.of(processor[kind]).text(1e3, 0),
            rounds.ratios(processor[kind], processor[OURS]).text(),
        ]
        for kind, taken in times.items()
    ]
    title = f"SegFormer-B0, {SIDE} pixels, {BATCH} images an update on {CORES} cores, {options.rounds} rounds"
    rounds.print_table(title, ["", "ms", "times ours", "both cores' ms", "times ours"], rows)
    result = {"training_ms": 1e3 * Spread.of(times[OURS]).median}
    if options.peer_python:
        for name, seconds in (("training_over_torch", times), ("training_processor_over_torch", processor)):
            result[name] = min(rounds.ratios(seconds[kind], seconds[OURS]).median for kind in (THREADS, PROCESSES))
    return result


def _slowest(group: Any, processor: list[float]) -> float:
    """Seconds of the slowest process; ``processor`` receives those that all of them have computed."""
    answers = group.ask()
    processor.append(sum(busy for _, busy in answers))
    return max(seconds for seconds, _ in answers)


# ---- evaluation ----------------------------------------------------------------------------------------------


def measure_evaluation(options: argparse.Namespace) -> dict[str, float]:
    """In a process of its own, so that it has the environment of a tuned run."""
    environment = {**children.tuned_environment(CORES), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--serve", EVALUATION, "--rounds", str(options.rounds)]
    process = children.start(words, environment, stdout=subprocess.PIPE)
    try:
        output, _ = process.communicate(timeout=280)
    finally:
        children.end(process)
    seconds = json.loads(output.splitlines()[-1])
    rows = [
        [name, Spread.of(taken).text(1e3), rounds.ratios(taken, seconds["image"]).text(1e2)]
        for name, taken in seconds.items()
    ]
    title = (
        f"Evaluation of an image of {STORED[0]} x {STORED[1]}, {CLASSES} classes, one thread, {options.rounds} rounds"
    )
    rounds.print_table(title, ["", "ms", "% of the image"], rows)
    return {"confusion_percent": 1e2 * rounds.ratios(seconds["confusion"], seconds["image"]).median}


def serve_evaluation(number: int) -> None:
    """Print the seconds of each evaluated image, and of them those of the confusion matrix and of the boundaries."""
    import paddle

    from paddlevit_dist import create_model
    from paddlevit_dist.core import settings as config
    from paddlevit_dist.core.registry.lookup import resolve
    from paddlevit_dist.core.tasks.step_types import EvaluationStep
    from paddlevit_dist.images.segmentation import metrics
    from paddlevit_dist.images.segmentation.samples import SegmentationSample

    values = config.load(["-cfg=segformer_b0_shapes", f"-num_classes={CLASSES}"]).values
    task = resolve("task", values.TASK)(values)
    task.class_names = [f"class {label}" for label in range(CLASSES)]
    model = create_model("segformer_b0", num_classes=CLASSES)
    model.eval()
    image, labels = made_image()
    sample = SegmentationSample(np.ascontiguousarray(image.transpose(2, 0, 1)), labels, 0, STORED)
    batch = {
        name: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in task.collate([sample]).items()
    }
    spent = {
        name: _timed(metrics, function)
        for name, function in (("confusion", "count_confusion"), ("boundaries", "boundary_statistics"))
    }
    seconds: dict[str, list[float]] = {"image": [], **{name: [] for name in spent}}
    for turn in range(1 + number):
        step = EvaluationStep(task.build_metrics())
        started = time.perf_counter()
        with paddle.no_grad():
            task.eval_step(model, batch, step)
        taken = {"image": time.perf_counter() - started, **{name: times[-1] for name, times in spent.items()}}
        for name, value in taken.items() if turn else ():
            seconds[name].append(value)
    print(json.dumps(seconds), flush=True)


def _timed(module: Any, name: str) -> list[float]:
    """Put a function in place of one of a module that does the same; returns the list of the seconds of its calls."""
    function, spent = getattr(module, name), []

    def call(*arguments: Any) -> Any:
        started = time.perf_counter()
        found = function(*arguments)
        spent.append(time.perf_counter() - started)
        return found

    setattr(module, name, call)
    return spent


# ---- label maps ----------------------------------------------------------------------------------------------


def made_image() -> tuple[np.ndarray, np.ndarray]:
    """An image as rough as a photograph, uint8 (height, width, 3): noise whose amplitude falls with its frequency; and
    labels uint8 (height, width) of a dozen classes in patches with uneven edges."""
    generator = np.random.default_rng(0)
    fields = generator.standard_normal((3 + 12, *STORED))
    rows, columns = np.fft.fftfreq(STORED[0])[:, None], np.fft.rfftfreq(STORED[1])[None]
    distance = np.maximum(np.hypot(rows, columns), 1 / STORED[1])
    falling = np.stack([1 / distance] * 3 + [distance**-2] * 12)
    fields = np.fft.irfft2(np.fft.rfft2(fields) * falling, s=STORED)
    fields /= fields.std(axis=(1, 2), keepdims=True)
    pixels = np.clip(128 + 55 * fields[:3], 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return np.ascontiguousarray(pixels), (12 * fields[3:].argmax(axis=0)).astype(np.uint8)


def measure_labels(options: argparse.Namespace) -> dict[str, float]:
    """By a profile of the samples of a training with the settings for ADE20K."""
    from paddlevit_dist.core import settings as config
    from paddlevit_dist.core.registry.lookup import resolve

    with tempfile.TemporaryDirectory(prefix="benchmark_") as name:
        root = Path(name)
        for kind in ("images", "labels"):
            (root / kind / "train").mkdir(parents=True)
        pixels, labels = made_image()
        Image.fromarray(pixels).save(root / "images" / "train" / "0.jpg", quality=90)
        Image.fromarray(labels).save(root / "labels" / "train" / "0.png")
        (root / "classes.txt").write_text("".join(f"class {label}\n" for label in range(CLASSES)))
        words = ["-dataset=label_maps", f"-data_path={root}", "MODEL.BACKBONE_PRETRAINED", "None"]
        values = config.load(["-cfg=segformer_b0_ade20k", *words]).values
        samples = resolve("task", values.TASK)(values).build_dataset("train", root)
        samples.sample(0, np.random.default_rng(0))
        seconds: dict[str, list[float]] = {}
        for turn in range(options.rounds):
            generators = [np.random.default_rng([turn, number]) for number in range(SAMPLES)]
            with cProfile.Profile() as profile:
                for generator in generators:
                    samples.sample(0, generator)
            for part, taken in _get_parts(profile).items():
                seconds.setdefault(part, []).append(taken / SAMPLES)
    rows = [[part, Spread.of(taken).text(1e3)] for part, taken in seconds.items()]
    rounds.print_table(f"A training's sample, {STORED[0]} x {STORED[1]} to {SIDE} x {SIDE}", ["", "ms"], rows)
    sides = [
        [sum(parts) for parts in zip(*(seconds[f"{side}, {part}"] for part in ("decoded", "scaled")))]
        for side in ("labels", "image")
    ]
    return {"labels_over_image": rounds.ratios(*sides).median}


def _get_parts(profile: cProfile.Profile) -> dict[str, float]:
    """Seconds of what reads and what scales."""
    taken: dict[tuple[str, str], float] = collections.Counter()
    for (file, _, function), (*_, cumulative, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        taken[Path(file).name, function] += cumulative
    labels = taken["label_maps.py", "_labels"]
    return {
        "image, decoded": taken["label_maps.py", "read"] - labels,
        "image, scaled": taken["resizing.py", "resize_image"],
        "labels, decoded": labels,
        "labels, scaled": taken["transforms.py", "_take"] + taken["resizing.py", "nearest"],
    }


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, float]]] = {
    TRAINING: measure_training,
    EVALUATION: measure_evaluation,
    LABELS: measure_labels,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", metavar="PYTHON", help="interpreter with torch; without it: ours alone")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--rounds", type=int, default=sized(7, 1))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve == EVALUATION:
        serve_evaluation(options.rounds)
    elif options.serve:
        serve_steps(options.serve)
    if options.serve:
        return
    rounds.print_machine()
    if not options.peer_python:
        print("no --peer-python: measured without torch")
    result: dict[str, float] = {}
    for name in [options.only] if options.only else PARTS:
        result.update(PARTS[name](options))
    rounds.print_result(result)


if __name__ == "__main__":
    main()
