"""COCO's evaluation of 5,000 images with 100 detections each: ours against pycocotools, from the same two files.

    python benchmarks/coco_evaluation.py [--images N] [--rounds N]

Both are new processes that read the files, match, accumulate and print the twelve numbers, which must be equal to
1e-12. Seconds are of processor time, because a process that waits for others on a shared machine is not slow; memory is
the largest that the process had resident, libraries included. The bytes are what a rank sends of 1,000 of these images.
"""

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import children
import numpy as np
from rounds import Spread, interleave, print_machine, print_result, print_table, ratios
from smallest import sized

CLASSES = 80
DETECTIONS = 100
PEER = """
import contextlib, io, json, sys
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
with contextlib.redirect_stdout(io.StringIO()):
    truth = COCO(sys.argv[1])
    evaluation = COCOeval(truth, truth.loadRes(sys.argv[2]), "{kind}")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
print(json.dumps(dict(stats=evaluation.stats.tolist())))
"""


def write_files(folder: Path, originals: int) -> None:
    """Annotations as dense as COCO's (7.3 in an image), and results of which a third lie near one."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    with open(folder / "results.json", "w", encoding="ascii") as results:
        results.write("[")
        for number in range(originals):
            image_id = 3 * number + 1
            images.append({"id": image_id, "width": 640, "height": 480, "file_name": f"{image_id:012d}.jpg"})
            classes = rng.integers(0, CLASSES, 4)
            own = int(rng.poisson(7.3))
            boxes = np.concatenate([rng.uniform(0, 400, (own, 2)), rng.lognormal(4, 0.9, (own, 2))], axis=1).round(2)
            labels = rng.choice(classes, own)
            for box, label in zip(boxes.tolist(), labels.tolist()):
                crowd = int(rng.random() < 0.012)
                annotations.append({"id": len(annotations) + 1, "image_id": image_id, "category_id": label + 1,
                                    "bbox": box, "area": box[2] * box[3] * 0.6, "iscrowd": crowd})  # fmt: skip
            found = np.concatenate(
                [rng.uniform(0, 400, (DETECTIONS, 2)), rng.lognormal(4, 0.9, (DETECTIONS, 2))], axis=1
            )
            found_labels = np.where(
                rng.random(DETECTIONS) < 0.7, rng.choice(classes, DETECTIONS), rng.integers(0, CLASSES, DETECTIONS)
            )
            if own:
                near = rng.integers(0, own, DETECTIONS // 3)
                found[: len(near)] = boxes[near] * rng.normal(1, 0.06, (len(near), 4))
                found_labels[: len(near)] = labels[near]
            scores = rng.random(DETECTIONS, np.float32).tolist()
            for box, label, score in zip(found.astype(np.float32).tolist(), found_labels.tolist(), scores):
                result = {"image_id": image_id, "category_id": label + 1, "bbox": box, "score": score}
                results.write(("" if results.tell() == 1 else ",\n") + json.dumps(result))
        results.write("]")
    categories = [{"id": label + 1, "name": f"category {label + 1}"} for label in range(CLASSES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(content), encoding="ascii")


class Contender:
    """A program that is given both files; ``seconds``, ``megabytes`` and ``stats`` of each time that it ran."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.command = [*command, str(folder / "annotations.json"), str(folder / "results.json")]
        self.seconds: list[float] = []
        self.wall: list[float] = []
        self.megabytes: list[float] = []
        self.stats: list[float] = []

    def run(self) -> float:
        began = time.perf_counter()
        process = children.start(
            self.command, {**children.clean_environment(), "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE
        )
        try:
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            children.end(process)
        if process.returncode:
            raise SystemExit(f"{self.command[:3]} ended with code {process.returncode}")
        self.wall.append(time.perf_counter() - began)
        self.megabytes.append(usage.ru_maxrss / 1024)
        self.stats = json.loads(output.splitlines()[-1])["stats"]
        return usage.ru_utime + usage.ru_stime


def bytes_per_thousand(folder: Path) -> float:
    """What crosses between ranks, tables of images, with scores of float32 as networks give them."""
    from paddlevit_dist.core.tasks.packed_columns import pack_columns
    from paddlevit_dist.images.detection.evaluation import scored_files
    from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable

    annotations = scored_files.read_annotations(folder / "annotations.json")
    results = scored_files.read_results(folder / "results.json", annotations)
    matched = scored_files.build_match_table(annotations, results, "bbox")
    image_ids, counts, num_true, labels, scores, *bits, annotated, num_classes = matched
    rows = [labels, scores.astype(np.float32), *bits]
    rows_of_images = zip(*(np.split(column, np.cumsum(counts)[:-1]) for column in rows))
    tables = np.empty(len(image_ids), object)
    for image, own in enumerate(rows_of_images):
        tables[image] = MatchTable(
            *(column[image : image + 1] for column in (image_ids, counts, num_true)),
            *own,
            annotated[annotated[:, 0] == image],
            num_classes,
        )
    packed = pack_columns({"ids": image_ids, "boxes": tables})
    return len(pickle.dumps(packed, protocol=pickle.HIGHEST_PROTOCOL)) * 1000 / len(image_ids)


def compare_with_pycocotools(folder: Path, command: str, kind: str) -> dict[str, Contender]:
    """``evaluate`` with this command, and pycocotools with this ``iouType``, for the files of a folder."""
    ours = [sys.executable, "-m", "paddlevit_dist", "evaluate", command, "-interval=off", "-json"]
    peer = [sys.executable, "-c", PEER.format(kind=kind)]
    return {"ours": Contender(ours, folder), "pycocotools": Contender(peer, folder)}


def compare_seconds(ways: dict[str, Contender], seconds: dict[str, list[float]]) -> Spread:
    """Print both ways in a table, and return the ratio of their seconds; numbers that differ end the program."""
    if not np.allclose(ways["ours"].stats, ways["pycocotools"].stats, rtol=0, atol=1e-12):
        raise SystemExit(f"the numbers differ: {ways['ours'].stats} and {ways['pycocotools'].stats}")
    rows = [
        [way, Spread.of(seconds[way]).text(), Spread.of(one.wall).text(), Spread.of(one.megabytes).text(digits=0)]
        for way, one in ways.items()
    ]
    print_table("Reading, matching and accumulating", ["", "processor, s", "clock, s", "largest memory, MB"], rows)
    return ratios(seconds["pycocotools"], seconds["ours"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=sized(5000, 4))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, options.images)
        size = (folder / "results.json").stat().st_size / 1e6
        print(f"{options.images:,} images, {DETECTIONS} detections each, {CLASSES} classes; results of {size:.0f} MB")
        ways = compare_with_pycocotools(folder, "detections", "bbox")
        programs: dict[str, Callable[[], float]] = {way: contender.run for way, contender in ways.items()}
        seconds = interleave(programs, options.rounds, warm_up=0)
        crossing = bytes_per_thousand(folder)
    ratio = compare_seconds(ways, seconds)
    print(f"pycocotools / ours: {ratio.text()}; all twelve numbers equal to 1e-12; AP {ways['ours'].stats[0]:.4f}")
    print(f"between ranks: {crossing / 1e6:.3f} MB per 1,000 images")
    print_result({
        "times_as_fast": ratio.median,
        "largest_memory_mb": max(ways["ours"].megabytes),
        "memory_pycocotools_over_ours": max(ways["pycocotools"].megabytes) / max(ways["ours"].megabytes),
        "mb_between_ranks_per_1000_images": crossing / 1e6,
    })  # fmt: skip


if __name__ == "__main__":
    main()
