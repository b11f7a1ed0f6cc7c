"""Forward passes of an evaluation: which images share one, in which order results come, and whose time is counted."""

import numpy as np
import paddle
import pytest
from support.trainings.small_detections import SHAPES

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.data.samples import DetectionSample, collate
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.inference import detect_objects
from paddlevit_dist.images.detection.windows import ImagePart, merge_images

SIZES = [(4, 6), (8, 5), (4, 6), (4, 6), (3, 7)]  # height, width


class TimedNetwork:
    """Finds a box of the stored size, one of the network's input, and ten whose corners are its image's brightness.

    Attributes:
        passes: shape of the images of each pass, and their sizes if they are padded.
        time: passes while it computes and decodes.
    """

    def __init__(self, time) -> None:
        self.time, self.passes = time, []

    def __call__(self, images, sizes):
        self.passes.append((images.shape, None if sizes is None else sizes.tolist()))
        self.time.now += 2.0
        return images.max(axis=[1, 2, 3])

    def decode(self, outputs, sizes, stored):
        self.time.now += 1.0
        rows = zip(outputs.tolist(), sizes.tolist(), stored.tolist(), strict=True)
        return [find(level, size, whole) for level, size, whole in rows]


def find(level, size, whole) -> DetectedObjects:
    boxes = [[0, 0, whole[1], whole[0]], [0, 0, size[1], size[0]]] + [[level / 64 + at, 0, 9, 9] for at in range(10)]
    scores = np.float32([0.5, 0.25, *np.linspace(0.6, 0.9, 10)])
    return DetectedObjects(np.array(boxes, np.float32), scores, np.array([0, 1, *[0] * 10]))


class NotedSpeed(list):
    def add(self, *facts) -> None:
        self.append(facts)


def fill(height: int, width: int, level: int) -> np.ndarray:
    return np.full((3, height, width), level, np.uint8)


def normalize(images, sizes):
    assert (sizes.max(axis=0) == images.shape[2:]).all()
    return images.astype("float32") / 2


def detect(network, samples, *words):
    config = load([*SHAPES, "DATA.BATCH_SIZE", "9", *words]).values
    batch = {
        name: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in collate(samples).items()
    }
    speed = NotedSpeed()
    return detect_objects(network, batch, normalize, config, speed), speed


@pytest.mark.parametrize(
    ("batching", "groups"),
    [("single", [[0], [1], [2], [3], [4]]), ("equal_shapes", [[0, 2, 3], [1], [4]]), ("padded", [[0, 1, 2, 3, 4]])],
)
def test_images_are_seen_as_configured_and_results_are_in_their_order(simulated_time, batching, groups):
    samples = [
        DetectionSample(7, False, fill(*size, 40 * row), (10 * row, 90), None, None, seconds=0.25)
        for row, size in enumerate(SIZES)
    ]
    network = TimedNetwork(simulated_time)
    found, speed = detect(network, samples, "DETECTION.EVAL_BATCHING", batching, "DETECTION.MAX_DETECTIONS", "10")
    shapes = [[len(rows), 3, *np.max([SIZES[row] for row in rows], axis=0).tolist()] for rows in groups]
    assert network.passes == [
        (shape, [list(size) for size in SIZES] if batching == "padded" else None) for shape in shapes
    ]
    for row, each in enumerate(found):
        expected = find(20.0 * row, SIZES[row], (10 * row, 90))
        np.testing.assert_array_equal(each.boxes, expected.boxes[1:])  # of eleven of a class, the better ones
        assert each.labels.tolist() == [1, *[0] * 10]
    assert speed == [(5, 1.25, 2.0 * len(groups), 1.0 * len(groups))]


def test_parts_share_passes_of_a_batch_at_most_and_are_merged(simulated_time):
    parts = [[ImagePart(0, 0, 8, 12), ImagePart(0, 0, 4, 6), ImagePart(4, 6, 4, 6)], [ImagePart(0, 0, 4, 6, True)]]
    first, *more = (fill(4, 6, level) for level in (30, 60, 90))
    samples = [
        DetectionSample(7, False, first, (8, 12), None, None, more_images=more, parts=parts[0]),
        DetectionSample(8, False, fill(4, 6, 120), (4, 6), None, None, parts=parts[1]),
    ]
    network = TimedNetwork(simulated_time)
    network.computes_alone = False  # such as several GPUs
    words = ["DETECTION.EVAL_BATCHING", "equal_shapes", "DATA.BATCH_SIZE_EVAL", "3", "DETECTION.WINDOW", "[4, 6]"]
    found, speed = detect(network, samples, *words, "DETECTION.MERGE_IOU", "0.6")
    assert network.passes == [([3, 3, 4, 6], None), ([1, 3, 4, 6], None)] and speed == []
    alone = [find(level / 2, (4, 6), part[2:4]) for level, part in zip((30, 60, 90, 120), parts[0] + parts[1])]
    rows = np.array([(place, *part) for place, those in enumerate(parts) for part in those])
    expected = merge_images(alone, rows, np.array([(8, 12), (4, 6)]), 0.6)
    assert len(found) == len(expected) == 2
    for each, other in zip(found, expected):
        for one, two in zip(each[:3], other[:3]):
            np.testing.assert_array_equal(one, two)
