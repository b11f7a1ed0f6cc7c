"""What the intervals of an evaluation take on one core, with 1,000 resamples.

    python benchmarks/intervals.py [--resamples N] [--images N]
    python benchmarks/intervals.py --coverage [options of interval_coverage.py]

Of sets as large as those that people evaluate on: ImageNet's 50,000 images of 1,000 classes, COCO's 5,000 with 100
detections each (those of coco_evaluation.py), ScanNet's 312 scenes, and 150 volumes with 19 landmarks. COCO's numbers
are all twelve and the AP of each of 80 classes, exact in each resample: the goal is 30 s. The megabytes are the table
that all ranks together send, once for scores and intervals. Seconds are of processor
time, because a process that waits for others on a shared machine is not slow.

``--coverage``: how often they hold what they should, see ``interval_coverage.py``.
"""

import argparse
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import interval_coverage  # noqa: E402
import numpy as np  # noqa: E402
from coco_evaluation import write_files  # noqa: E402
from rounds import print_machine, print_result, print_table  # noqa: E402
from smallest import sized  # noqa: E402

from paddlevit_dist.core.intervals import bootstrap  # noqa: E402
from paddlevit_dist.core.tasks.packed_columns import pack_columns  # noqa: E402

COVERAGE = "--coverage"


def classification() -> tuple[Any, list[np.ndarray]]:
    from paddlevit_dist.core.metrics.classification import ClassificationMetrics

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resamples", type=int, default=sized(1000, 3))
    parser.add_argument("--images", type=int, default=sized(5000, 20), help="of COCO")
    if COVERAGE in sys.argv[1:]:
        interval_coverage.main([word for word in sys.argv[1:] if word != COVERAGE])
        return
    parser.add_argument(COVERAGE, action="store_true", help="run interval_coverage.py with the other options")
    options = parser.parse_args()
    print_machine()
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
            lambda weights, m=metrics, s=samples: m.bootstrap_values(s, weights), len(samples[0]), resamples=2
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
    print_table(f"{options.resamples:,} resamples", ["", "samples", "processor, s", "MB", "first number"], rows)
    print_result(result)


if __name__ == "__main__":
    main()
