"""Score the results of any framework with intervals: arrays of predictions and of ground truth."""

import numpy as np

import paddlevit_dist as pv

generator = np.random.default_rng(0)
NAMES = ["grass", "pond", "path"]


def show(meter: pv.Accuracy, *names: str) -> None:
    """Print scores with their intervals."""
    scores = meter.compute()
    for name in names:
        low, high = scores.intervals[name].low, scores.intervals[name].high
        print(f"{type(meter).__name__}: {name} {scores.values[name]:.4f} [{low:.4f}, {high:.4f}]")


# Classifiers: a row of logits or probabilities for each image; log loss needs logits.
labels = generator.integers(0, 10, 500)
logits = 3 * np.eye(10)[labels] + generator.normal(0, 2, (500, 10))
meter = pv.Accuracy(10)
for first in range(0, 500, 100):  # batch by batch, as in a loop
    meter.update(logits[first : first + 100].astype(np.float32), labels[first : first + 100])
show(meter, "top-1", "top-5", "balanced accuracy")

# Segmentation: the class of each pixel; images may differ in size.
truth = [np.kron(generator.integers(0, 3, (4, 5)), np.ones((16, 16), int)) for _ in range(20)]
predicted = [np.roll(image, 2, axis=1) for image in truth]
halves = [pv.MeanIoU(NAMES), pv.MeanIoU(NAMES)]  # for example counted by two machines
for half, part in zip(halves, (slice(0, 10), slice(10, 20))):
    half.update(predicted[part], truth[part])
show(halves[0].merge(halves[1]), "mIoU", "IoU pond", "boundary IoU")

# Detection: boxes as corners, in pixels.
boxes = [np.array([[10, 10, 60, 50], [70, 20, 90, 80]]) + generator.integers(0, 20) for _ in range(30)]
moved = [corners + generator.integers(-4, 5, corners.shape) for corners in boxes]
meter = pv.CocoAP(["cup", "hat"])
meter.update(
    [{"boxes": corners, "scores": generator.random(2), "labels": [0, 1]} for corners in moved],
    [{"boxes": corners, "labels": [0, 1]} for corners in boxes],
)
show(meter, "AP", "AP50", "AP cup")

# Landmarks in millimeters, and labels of voxels.
points = generator.normal(0, 50, (25, 4, 3))
meter = pv.RadialError(["sella", "nasion", "porion", "orbitale"])
meter.update(points + generator.normal(0, 1, points.shape), points)
show(meter, "mre_mm", "sdr_2mm")
volumes = [np.kron(generator.integers(0, 2, (2, 3, 3)), np.ones((6, 6, 6), int)) for _ in range(8)]
meter = pv.VolumeDice(["background", "liver"], spacing_mm=(2.0, 1.0, 1.0))
meter.update([np.roll(volume, 1, axis=2) for volume in volumes], volumes)
show(meter, "Dice", "hd95_mm")
