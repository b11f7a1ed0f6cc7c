"""Keypoints: COCO's evaluation against pycocotools, updates of ViTPose and DETRPose against others', decoding.

    python benchmarks/keypoints.py [--only NAME ...] [--images N] [--rounds N] [--peer-python PYTHON] [--authors CLONE]

- ap: ``evaluate keypoints`` against a program of pycocotools, each a new process that reads the same two files (2.2
  annotations and 20 results with 17 points in an image), matches, accumulates and prints the ten numbers, which must be
  equal to 1e-12. Seconds are of processor time, because a process that waits for others on a shared machine is not
  slow
- matching: the two without reading files and starting Python: ours from arrays to numbers, pycocotools' ``evaluate``
  and ``accumulate``
- vitpose_simple, vitpose_classic: an update of ViTPose-S with each decoder, 8 crops of 256 x 192 pixels on one thread:
  forward pass, loss, backward pass, clipping, AdamW. The peer is transformers' ViTPose in a plain loop of torch (PYTHON
  has both; left out without). Ours is the engine's own step, which also normalizes images and draws targets
- detrpose: an update of DETRPose S, 2 images of 320 pixels on one thread, against the code of a clone of
  github.com/SebastianJanampa/DETRPose (PYTHON has torch, torchvision, SciPy and OmegaConf; left out without)
- decoding: heatmaps to points, against SciPy's filter on each map and NumPy, as transformers computes them
"""

import argparse
import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from coco_evaluation import compare_seconds, compare_with_pycocotools
from detrpose_training import DETRPOSE, measure_detrpose
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import sized
from vitpose_training import CLASSIC, SIMPLE, measure_decoding, measure_updates

AP, MATCHING = "ap", "matching"
DECODING = "decoding"
RESULTS, POINTS = 20, 17


def write_files(folder: Path, images: int) -> None:
    """Annotations as in COCO's persons (some without points, some crowds), and results of which half are near one."""
    rng, truths, results = np.random.default_rng(0), [], []
    for number in range(images):
        own = int(rng.poisson(2.2))
        sides = rng.lognormal(4.3, 0.7, (own, 2)).round(2)
        corners = rng.uniform(0, 400, (own, 2)).round(2)
        points = (corners[:, None] + rng.random((own, POINTS, 2)) * sides[:, None]).round(0)
        seen = rng.choice(3, (own, POINTS), p=(0.35, 0.1, 0.55)) * (rng.random((own, 1)) < 0.6)
        for corner, size, places, marks in zip(corners, sides, points, seen):
            flat = np.column_stack([places, marks]).ravel().astype(int).tolist()
            truths.append({"id": len(truths) + 1, "image_id": number, "category_id": 1, "keypoints": flat,
                           "num_keypoints": int((marks > 0).sum()), "iscrowd": int(rng.random() < 0.02),
                           "bbox": [*corner.tolist(), *size.tolist()], "area": float(size.prod() * 0.6)})  # fmt: skip
        places = rng.uniform(0, 600, (RESULTS, POINTS, 2))
        if own:
            near = rng.integers(0, own, RESULTS // 2)
            spread = rng.choice([2.0, 8.0, 30.0], (len(near), 1, 1))
            places[: len(near)] = points[near] + spread * rng.standard_normal((len(near), POINTS, 2))
        found = np.concatenate([places, rng.random((RESULTS, POINTS, 1))], axis=2).round(3)
        for rows, score in zip(found.reshape(RESULTS, -1).tolist(), rng.random(RESULTS).round(6).tolist()):
            results.append({"image_id": number, "category_id": 1, "keypoints": rows, "score": score})
    listed = [{"id": number, "width": 640, "height": 480} for number in range(images)]
    names = [f"point {number}" for number in range(POINTS)]
    sigmas = [0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087]
    category = {"id": 1, "name": "person", "keypoints": names, "sigmas": [*sigmas, 0.089, 0.089]}
    content = {"images": listed, "annotations": truths, "categories": [category]}
    (folder / "annotations.json").write_text(json.dumps(content), encoding="ascii")
    (folder / "results.json").write_text(json.dumps(results), encoding="ascii")


def compare_programs(folder: Path, rounds: int) -> dict[str, float]:
    """Whole programs on the files of a folder."""
    ways = compare_with_pycocotools(folder, "keypoints", "keypoints")
    programs: dict[str, Callable[[], float]] = {way: contender.run for way, contender in ways.items()}
    seconds = interleave(programs, rounds, warm_up=0)
    ratio = compare_seconds(ways, seconds)
    print(f"pycocotools / ours: {ratio.text()}; all ten numbers equal to 1e-12; AP {ways['ours'].stats[0]:.4f}")
    memory = max(ways["pycocotools"].megabytes) / max(ways["ours"].megabytes)
    return {"ap_times_as_fast": ratio.median, "ap_memory_pycocotools_over_ours": memory}


def compare_matching(folder: Path, rounds: int) -> dict[str, float]:
    """Both on files that were read before."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    from paddlevit_dist.images.keypoints.evaluation import result_files
    from paddlevit_dist.images.keypoints.evaluation.score_kind import TEN, score_table

    annotations = result_files.read_annotations(str(folder / "annotations.json"))
    results = result_files.read_results(str(folder / "results.json"), annotations)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(folder / "annotations.json"))
        read = truth.loadRes(str(folder / "results.json"))
    numbers: dict[str, list[float]] = {}

    def ours() -> float:
        began = time.process_time()
        table_ = annotations.match(results, RESULTS).table
        values, _ = score_table(table_, RESULTS, np.ones((1, len(table_.image_ids))))
        ended = time.process_time()
        numbers["ours"] = [float(values[name][0]) for name in TEN]
        return ended - began

    def theirs() -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            began = time.process_time()
            evaluation = COCOeval(truth, read, "keypoints")
            evaluation.evaluate()
            evaluation.accumulate()
            ended = time.process_time()
            evaluation.summarize()
        numbers["pycocotools"] = evaluation.stats.tolist()
        return ended - began

    seconds = interleave({"ours": ours, "pycocotools": theirs}, rounds)
    if not np.allclose(numbers["ours"], numbers["pycocotools"], rtol=0, atol=1e-12):
        raise SystemExit(f"the numbers differ: {numbers}")
    print_table(
        "Matching and accumulating", ["", "processor, s"], [[way, Spread.of(seconds[way]).text()] for way in seconds]
    )
    ratio = ratios(seconds["pycocotools"], seconds["ours"])
    print(f"pycocotools / ours: {ratio.text()}")
    return {"matching_times_as_fast": ratio.median}


PARTS: dict[str, Callable[[Path, int], dict[str, float]]] = {AP: compare_programs, MATCHING: compare_matching}


CHOICES = [*PARTS, SIMPLE, CLASSIC, DETRPOSE, DECODING]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CHOICES, default=CHOICES)
    parser.add_argument("--images", type=int, default=sized(5000, 4))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", help="interpreter with torch and transformers")
    parser.add_argument("--authors", help="clone of DETRPose's code")
    options = parser.parse_args()
    print_machine()
    values: dict[str, float] = {}
    for part in (SIMPLE, CLASSIC):
        if part in options.only:
            values.update(measure_updates(part, options.rounds, options.peer_python))
    if DETRPOSE in options.only:
        values.update(measure_detrpose(options.rounds, options.authors, options.peer_python))
    if DECODING in options.only:
        values.update(measure_decoding(options.rounds))
    if not set(options.only) & set(PARTS):
        print_result(values)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, options.images)
        size = (folder / "results.json").stat().st_size / 1e6
        print(f"{options.images:,} images, {RESULTS} results of {POINTS} points each; results of {size:.0f} MB")
        for part in [each for each in options.only if each in PARTS]:
            values.update(PARTS[part](folder, options.rounds))
    print_result(values)


if __name__ == "__main__":
    main()
