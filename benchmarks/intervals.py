"""What the intervals of an evaluation take on one core, with 1,000 resamples, and how often they hold the truth.

    python benchmarks/intervals.py [--resamples N] [--images N]
    python benchmarks/intervals.py --coverage [--sets N]

Of sets as large as those that people evaluate on: ImageNet's 50,000 images of 1,000 classes, COCO's 5,000 with 100
detections each (those of coco_evaluation.py), ScanNet's 312 scenes, and 150 volumes with 19 landmarks. COCO's numbers
are all twelve and the AP of each of 80 classes, exact in each resample: the goal is 30 s. The megabytes are the table
that all ranks together send, once for scores and intervals. Seconds are of processor
time, because a process that waits for others on a shared machine is not slow.

``--coverage``: the share of intervals of 95 % that hold the score of the population, by score and number of samples.
Of top-1 it is exact, a sum over the binomial distribution; of mIoU and AP sets are drawn from a simulated population,
whose own score is the truth.
"""

import argparse
import functools
import math
import os
import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
from coco_evaluation import write_files  # noqa: E402
from rounds import print_machine, print_result, table  # noqa: E402
from smallest import IS_SMALLEST, sized  # noqa: E402

from paddlevit_dist.intervals import bootstrap  # noqa: E402
from paddlevit_dist.tasks.packed_columns import pack_columns  # noqa: E402

SAMPLES = sized((20, 50, 200, 1000), (20,))
SHARES = sized((0.5, 0.8, 0.95, 0.99), (0.99,))  # of samples that are right
CLASSES, POPULATION = 5, sized(4000, 50)


def classification() -> tuple[Any, list[np.ndarray]]:
    from paddlevit_dist.metrics.classification import ClassificationMetrics

    rng = np.random.default_rng(0)
    places = rng.geometric(0.8, 50_000) - 1
    labels, losses = rng.permutation(50_000) % 1000, rng.gamma(0.5, 1.6, 50_000)
    metrics = ClassificationMetrics(1000)
    metrics.add_batch(labels=labels.astype("i4"), places=places.astype("i4"), losses=losses.astype("f4"))
    return metrics, metrics.per_sample()


def detection(images: int) -> tuple[Any, list[np.ndarray]]:
    from paddlevit_dist.images.detection.detections import DetectedObjects, boxes_to_corners
    from paddlevit_dist.images.detection.evaluation import scored_files
    from paddlevit_dist.images.detection.metrics import DetectionMetrics

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, images)
        annotations = scored_files.read_annotations(folder / "annotations.json")
        results = scored_files.read_results(folder / "results.json", annotations)
    metrics = DetectionMetrics(annotations.names)
    corners = boxes_to_corners(results.boxes)
    for image in range(images):
        rows = results.find_rows(image)
        detections = DetectedObjects(corners[rows], results.scores[rows], results.labels[rows])
        metrics.update(image, annotations.get_truth(image), detections)
    return metrics, metrics.per_sample()


def scenes() -> tuple[Any, list[np.ndarray]]:
    from paddlevit_dist.points.instances.matching import InstanceMatchTable
    from paddlevit_dist.points.instances.metrics import InstanceMetrics

    rng, classes = np.random.default_rng(0), 18
    metrics = InstanceMetrics(list(map(str, range(20))), list(range(2, 20)))
    for _ in range(312):
        size = 10 * 60  # 60 decisions at each threshold
        num_true = rng.poisson(1.0, classes)
        columns = rng.integers(0, classes, size), np.arange(size) % 10, rng.random(size), rng.random(size) < 0.4
        kinds = [column.astype(kind) for column, kind in zip(columns, (np.int16, np.int8, float, bool))]
        missed = rng.binomial(num_true[:, None], 0.4, (classes, 10))
        metrics.tables.append(InstanceMatchTable(*kinds, missed, num_true))
    statistics = rng.poisson(500, (312, 3, 20))
    statistics[:, 1:] += statistics[:, :1]
    metrics.add_batch(statistics=statistics, losses=rng.gamma(2.0, 0.2, 312))
    return metrics, metrics.per_sample()


def landmarks() -> tuple[Any, list[np.ndarray]]:
    from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics

    metrics, rng = LandmarkMetrics([str(number) for number in range(19)]), np.random.default_rng(0)
    for _ in range(150):
        metrics.update(rng.gamma(2.0, 0.7, 19))
    return metrics, metrics.per_sample()


# ---- coverage --------------------------------------------------------------------------------------------------------


def coverage_of_top1(share: float, number: int) -> float:
    """The probability that Wilson's interval of ``number`` samples holds ``share``, in percent."""
    from paddlevit_dist.intervals import wilson

    total = 0.0
    for right in range(number + 1):
        interval = wilson(100 * right / number, number, 95)
        if interval.low <= 100 * share <= interval.high:
            ways = math.lgamma(number + 1) - math.lgamma(right + 1) - math.lgamma(number - right + 1)
            total += math.exp(ways + right * math.log(share) + (number - right) * math.log(1 - share))
    return 100 * total


def population_of_maps(quality: float) -> np.ndarray:
    """Pixels of each image and class that are right, true and taken for the class: int64 (images, 3, classes). Each
    image has about half of the classes, in sizes that differ by much, and is easy or hard as a whole."""
    rng = np.random.default_rng(0)
    true = (rng.gamma(0.5, 4000, (POPULATION, CLASSES)) * (rng.random((POPULATION, CLASSES)) < 0.5)).astype(np.int64)
    right = rng.binomial(true, rng.beta(6 * quality, 6 * (1 - quality), (POPULATION, 1)))
    taken = right + np.roll(true - right, 1, axis=1)
    return np.stack([right, true, taken], axis=1)


def coverage_of_miou(quality: float, number: int, sets: int, resamples: int) -> tuple[float, float]:
    """The population's mIoU and the share of sets whose interval holds it, in percent."""
    from paddlevit_dist.intervals import confusion_scores

    population, names = population_of_maps(quality), [str(label) for label in range(CLASSES)]
    truth = float(confusion_scores(population, names)(np.ones((1, POPULATION)))["mIoU"][0])
    rng, held = np.random.default_rng(number), 0
    for _ in range(sets):
        drawn = population[rng.integers(0, POPULATION, number)]
        interval = bootstrap(confusion_scores(drawn, names), number, resamples=resamples)["mIoU"]
        held += interval.low <= truth <= interval.high
    return 100 * truth, 100 * held / sets


def population_of_boxes(quality: float) -> list[Any]:
    """The matches of each image: about four objects, found with probability ``quality``, the better the surer, and
    false detections of lower scores."""
    from paddlevit_dist.images.detection.detections import DetectedObjects
    from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth, match

    rng, tables = np.random.default_rng(0), []
    for number in range(POPULATION):
        own = int(rng.poisson(4))
        boxes = np.concatenate([rng.uniform(0, 400, (own, 2)), rng.uniform(40, 200, (own, 2))], axis=1)
        labels = rng.integers(0, CLASSES, own)
        truth = BoxGroundTruth(boxes, labels, boxes[:, 2] * boxes[:, 3], np.zeros(own, bool))
        seen, false = rng.random(own) < rng.beta(6 * quality, 6 * (1 - quality)), int(rng.poisson(4 * (1 - quality)))
        near = boxes[seen] + rng.normal(0, 12 * (1 - quality), (int(seen.sum()), 4))
        others = np.concatenate([rng.uniform(0, 400, (false, 2)), rng.uniform(40, 200, (false, 2))], axis=1)
        found = np.concatenate([near, others]).astype(np.float32)
        found[:, 2:] += found[:, :2]  # corners
        scores = np.concatenate([rng.beta(4, 2, len(near)), rng.beta(2, 4, false)]).astype(np.float32)
        kinds = np.concatenate([labels[seen], rng.integers(0, CLASSES, false)])
        tables.append(match(number, truth, DetectedObjects(found, scores, kinds), CLASSES))
    return tables


def coverage_of_ap(quality: float, number: int, sets: int, resamples: int) -> tuple[float, float]:
    """The population's AP and the share of sets whose interval holds it, in percent."""
    from paddlevit_dist.images.detection.evaluation.curves import DetectionCurves
    from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable

    tables = population_of_boxes(quality)

    def scores_of(chosen: list[Any]) -> Callable[[np.ndarray], Any]:
        renamed = [one._replace(image_ids=np.array([place], np.int64)) for place, one in enumerate(chosen)]
        curves = DetectionCurves.from_table(MatchTable.joined(renamed))
        return lambda weights: {"AP": curves.scores(weights)[0][:, 0]}

    truth = float(scores_of(tables)(np.ones((1, POPULATION)))["AP"][0])
    rng, held = np.random.default_rng(number), 0
    for _ in range(sets):
        chosen = [tables[place] for place in rng.integers(0, POPULATION, number)]
        interval = bootstrap(scores_of(chosen), number, resamples=resamples)["AP"]
        held += interval.low <= truth <= interval.high
    return 100 * truth, 100 * held / sets


def coverage(sets: int, resamples: int) -> None:
    from paddlevit_dist.intervals import resampling

    # Draws depend on the number of samples alone, so that all sets of a size have the same.
    resampling._draws = functools.lru_cache(1)(lambda *numbers, draw=resampling._draws: list(draw(*numbers)))
    rows, result = [], {}
    for share in SHARES:
        found = [coverage_of_top1(share, number) for number in SAMPLES]
        rows.append([f"top-1 of {100 * share:g} %", *(f"{value:.1f}" for value in found)])
        result.update({f"top1_{100 * share:g}_{number}": value for number, value in zip(SAMPLES, found)})
    for name, measure in (("mIoU", coverage_of_miou), ("AP", coverage_of_ap)):
        for quality in sized((0.6, 0.85, 0.97), (0.85,)):
            held = [measure(quality, number, sets, resamples) for number in SAMPLES]
            rows.append([f"{name} of {held[0][0]:.0f} %", *(f"{value:.1f}" for _, value in held)])
            result.update({f"{name}_{held[0][0]:.0f}_{n}": value for n, (_, value) in zip(SAMPLES, held)})
            print(*rows[-1], flush=True)
    header = ["", *(f"{number:,} samples" for number in SAMPLES)]
    table(f"Intervals of 95 % that hold the truth, %; mIoU and AP: {sets} sets", header, rows)
    print_result(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resamples", type=int, default=sized(1000, 3))
    parser.add_argument("--images", type=int, default=sized(5000, 20), help="of COCO")
    parser.add_argument(
        "--coverage", action="store_true", help="how many intervals hold the truth, in place of seconds"
    )
    parser.add_argument("--sets", type=int, default=sized(400, 3), help="of coverage, for each score and size")
    options = parser.parse_args()
    print_machine()
    if options.coverage or IS_SMALLEST:
        coverage(options.sets, options.resamples)
    if options.coverage:
        return
    kinds: dict[str, Callable[[], tuple[Any, list[np.ndarray]]]] = {
        "top-1, top-5, 1,000 recalls": classification,
        "COCO": lambda: detection(options.images),
        "ScanNet AP and mIoU": scenes,
        "landmarks": landmarks,
    }
    rows, result = [], {}
    for name, make in kinds.items():
        metrics, samples = make()
        bootstrap(
            lambda weights, m=metrics, s=samples: m.bootstrap_values(s, weights), len(samples[0]), resamples=1
        )  # compiles
        began = time.process_time()
        found = bootstrap(
            lambda weights, m=metrics, s=samples: m.bootstrap_values(s, weights),
            len(samples[0]),
            resamples=options.resamples,
        )
        seconds, packed = time.process_time() - began, pack_columns(dict(enumerate(samples)))
        size = len(pickle.dumps(packed, pickle.HIGHEST_PROTOCOL)) / 1e6
        first = next(iter(found.values()))
        rows.append(
            [name, f"{len(samples[0]):,}", f"{seconds:.2f}", f"{size:.2f}", f"{first.value:.4g} {first.ends(3)}"]
        )
        key = name.split(",")[0].split()[0].lower()
        result.update({f"{key}_seconds": seconds, f"{key}_megabytes": size})
    table(f"{options.resamples:,} resamples", ["", "samples", "processor, s", "MB", "first number"], rows)
    print_result(result)


if __name__ == "__main__":
    main()
