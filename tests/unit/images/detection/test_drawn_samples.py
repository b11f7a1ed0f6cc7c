"""Pictures of a detector's samples: which sizes, boxes and names are drawn."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.trainings import small_detections

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Drawable
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection.data.detection_dataset import DetectionDataset
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.data.samples import DetectionSample
from paddlevit_dist.images.detection.drawing import CROWD, draw_annotations, draw_batch, get_label_colors

NAMES = ["cup", "ant", "bee"]


@pytest.fixture(scope="module")
def task():
    task = make_task(settings.load(small_detections.SHAPES).values)
    task.class_names = NAMES
    return task


def test_images_of_a_batch_are_drawn_without_padding_and_with_their_own_boxes(task):
    generator = np.random.default_rng(0)
    sizes, counts = [(8, 5), (4, 9)], [1, 2]
    images = [generator.integers(1, 255, (3, *size)).astype(np.uint8) for size in sizes]
    boxes = [np.array([[1.0, 1, 4, 6]], np.float32), np.array([[0.0, 0, 3, 2], [2, 1, 9, 4]], np.float32)]
    labels = [np.array([2]), np.array([0, 1])]
    samples = [DetectionSample(k, True, images[k], sizes[k], boxes[k], labels[k]) for k in range(2)]
    batch = task.collate(samples)
    drawn = get_aspect(task, Drawable).visualize_batch(None, batch, 1)
    assert [caption for _, caption in drawn] == ["5 x 8, 1 box", "9 x 4, 2 boxes"]
    for (pixels, _), (expected, _) in zip(drawn, draw_batch(batch, np.array(sizes), np.array(counts), NAMES)):
        np.testing.assert_array_equal(pixels, expected)


def test_evaluated_images_have_all_annotations_at_the_size_of_an_evaluation(task):
    stored = Image.fromarray(np.random.default_rng(1).integers(0, 256, (16, 24, 3), np.uint8))
    boxes = np.array([[2.0, 3, 4, 5], [0, 0, 20, 10]])
    truth = ImageAnnotations(boxes, np.array([1, 0]), np.ones(2), np.array([False, True]), np.arange(2))
    dataset = SimpleNamespace(dataset=SimpleNamespace(read=[None, (stored, truth)].__getitem__))
    [(pixels, caption)] = get_aspect(task, Drawable).visualize_eval_samples(dataset, [1])
    assert caption == "48 x 32, 2 annotated"  # DATA.EVAL_SHORTEST_SIDE 32
    resized = np.asarray(stored.resize((48, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    expected, _ = draw_annotations(resized, (24, 16), truth, NAMES)
    assert pixels.shape == expected.shape
    assert np.abs(pixels.astype(int) - expected).max() <= 1


def test_the_table_of_samples_counts_objects_with_an_area_and_images_with_one(task):
    labels = [[0, 0, 2], [0], []]

    class Images(DetectionDataset):
        category_ids = (1, 2, 3)

        def __init__(self):
            pass

        def __len__(self):
            return len(labels)

        def annotations(self, index):
            own = np.array(labels[index], np.int64)
            boxes = np.tile([2.0, 3, 4, 5], (len(own), 1))
            return ImageAnnotations(boxes, own, np.ones(len(own)), np.zeros(len(own), bool), np.arange(len(own)))

    lines = get_aspect(task, Drawable).summarize_samples(SimpleNamespace(dataset=Images()))
    assert [line.split() for line in lines] == [
        ["category", "objects", "images"], ["cup", "3", "2"], ["ant", "0", "0"], ["bee", "1", "1"],
    ]  # fmt: skip


def test_the_legend_has_a_color_for_each_category_and_crowds(task):
    legend = get_aspect(task, Drawable).image_legend()
    assert [name for name, _ in legend] == [*NAMES, "a crowd"]
    assert [color for _, color in legend] == [*get_label_colors(np.arange(3), 3), CROWD]
