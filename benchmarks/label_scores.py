"""Scores of 100,000 images with 80 labels each and their intervals, against scikit-learn's mAP without intervals.

    python benchmarks/label_scores.py [--images N] [--classes N]

Seconds are of processor time on one core. The memory is the largest that the process had, libraries included. The
labels are as rare as COCO's (2.9 in an image), and mAP has to be equal to 1e-12.
"""

import argparse
import resource
import time
import warnings

import numpy as np
from rounds import print_machine, print_result, print_table
from smallest import need, sized


def draw(images: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels, int8 (images, classes), and logits, float32."""
    random = np.random.default_rng(0)
    labels = (random.random((images, classes)) < 2.9 / 80).astype(np.int8)
    return labels, (random.normal(0, 1, labels.shape) + 2 * labels - 2).astype(np.float32)


def main() -> None:
    """Measure both, and compare the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=sized(100_000, 300))
    parser.add_argument("--classes", type=int, default=sized(80, 5))
    options = parser.parse_args()
    need("sklearn")
    print_machine()
    import paddle
    from sklearn.metrics import average_precision_score

    from paddlevit_dist.core.metrics.confidence import IntervalConfig, compute_intervals
    from paddlevit_dist.images.multi_label.metrics import LabelMetrics

    labels, logits = draw(options.images, options.classes)
    names = [f"label {number}" for number in range(options.classes)]

    def evaluate(images: int, resamples: int) -> dict[str, float]:
        metrics = LabelMetrics(names, np.full(options.classes, 0.5))
        metrics.indices = range(images)
        metrics.update(paddle.to_tensor(logits[:images]), paddle.to_tensor(labels[:images]))
        values = metrics.compute(metrics.state)
        compute_intervals(metrics, metrics.indices, IntervalConfig(95, resamples))
        return values

    evaluate(100, 100)  # compiles the loops
    began = time.process_time()
    values = evaluate(options.images, 1000)
    ours = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes without a positive in the smallest form
        present = labels.any(axis=0)
        peer = average_precision_score(labels[:, present], logits[:, present], average="macro")
    theirs = time.process_time() - began
    if abs(values["mAP"] - peer) > 1e-12:
        raise SystemExit(f"mAP differs: {values['mAP']} and {peer}")
    rows = [["ours, all scores with intervals of 1,000 draws", f"{ours:.1f}"], ["scikit-learn, mAP", f"{theirs:.1f}"]]
    print_table(f"{options.images:,} images, {options.classes} labels", ["", "processor, s"], rows)
    print(f"largest memory {memory:,.0f} MB; mAP {peer:.4f}, equal to 1e-12")
    print_result({"seconds": ours, "over_sklearn_map": ours / theirs, "largest_memory_mb": memory})


if __name__ == "__main__":
    main()
