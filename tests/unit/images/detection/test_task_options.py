"""What keys make of a detector: options of its network, lines on its splits, and facts that its weights depend on."""

import numpy as np
import pytest
from support.samples.drawn_detections import NOTHING_FOUND
from support.trainings.small_detections import SHAPES

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Reportable
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.detection.records import DetectionRecord

DETR = ["MODEL.NAME", "detr_of_tests"]
RTDETR = ["MODEL.NAME", "rtdetr_small", "MODEL.MASK_PADDING", "False"]
REGIONS = ["MODEL.NAME", "mask_rcnn_small", "MODEL.MASK_PADDING", "False"]
REFERENCE = ["TRAIN.DETECTION_NORMALIZER", "reference"]


def make(*words: str):
    return make_task(settings.load([*SHAPES, *words]).values)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (DETR, {"dropout": 0.0, "mask_padding": True}),
        (
            [*DETR, "MODEL.DROPOUT", "0.25", "MODEL.OPTIONS.encoder_layers", "0", "-max_detections=101"],
            {"dropout": 0.25, "encoder_layers": 0, "mask_padding": True},
        ),
        (
            [*RTDETR, "MODEL.NUM_QUERIES", "7", "MODEL.OPTIONS.decoder_layers", "1"],
            {"num_queries": 7, "decoder_layers": 1},
        ),
        (REGIONS, {"random_samples": True}),
        ([*REGIONS, "TRAIN.RANDOM_SAMPLING", "False", "-max_detections=100"], {"random_samples": False}),
    ],
)
def test_keys_are_options_of_the_networks_that_have_them(words, options):
    assert make(*words).model_options == options


@pytest.mark.parametrize(
    ("words", "how", "batching"),
    [
        (DETR, "by the counts of all devices and micro-batches (TRAIN.DETECTION_NORMALIZER global)", "single"),
        (
            [*DETR, *REFERENCE],
            "as by DETR's authors: boxes by the count of all devices, classes by the count of each device "
            "(TRAIN.DETECTION_NORMALIZER reference)",
            "equal_shapes",
        ),
        (
            [*REGIONS, *REFERENCE],
            "as by torchvision: each term by the samples of each device (TRAIN.DETECTION_NORMALIZER reference)",
            "one_size",
        ),
    ],
)
def test_lines_say_how_losses_are_divided_and_images_evaluated(tmp_path, words, how, batching):
    evaluated = {
        "single": "one image per forward pass, so that scores do not depend on batches",
        "equal_shapes": "images of equal shape together, without padding, so that scores do not depend on batches",
        "one_size": "images resized to one size, changing their aspect ratio, as for an exported model",
    }
    task = make(*words, "DETECTION.EVAL_BATCHING", batching)
    assert task.build_dataset("train", tmp_path).notices == [f"losses are divided {how}"]
    assert task.build_dataset("val", tmp_path).notices == [f"val is evaluated with {evaluated[batching]}"]


def test_weights_depend_on_how_images_were_read_and_samples_are_those_of_a_dataset(tmp_path):
    task = make("DATA.EVAL_LONGEST_SIDE", "70", "DATA.EVAL_RESIZE", "torchvision", "DATA.IMAGENET_STD", "[1,0.5,2]")
    samples = [task.build_dataset(split, tmp_path) for split in ("train", "val")][1]
    assert task.signature() == {
        "DATA.EVAL_SHORTEST_SIDE": 32,
        "DATA.EVAL_LONGEST_SIDE": 70,
        "DATA.EVAL_RESIZE": "torchvision",
        "DATA.IMAGENET_MEAN": [0.485, 0.456, 0.406],
        "DATA.IMAGENET_STD": [1, 0.5, 2],
        "train turned by EXIF": False,
        "val turned by EXIF": False,
        "interpolation": "bilinear",
        "MODEL.MASK_PADDING": True,
    }
    assert task.signature(samples) == {
        "samples": 9,
        "number of classes": 3,
        "classes": ["circle", "square", "triangle"],
        "category ids": [1, 2, 3],
        "turned by EXIF": False,
    }


@pytest.mark.parametrize(("words", "terms"), [(DETR, 6), ([*DETR, *REFERENCE], 4), (RTDETR, 9)])
def test_terms_are_divided_by_what_the_criterion_counts(tmp_path, words, terms):
    task = make(*words)
    task.build_dataset("train", tmp_path)
    assert (
        task.traits.normalizer_names == task.criterion.normalizer_names
        and len(task.criterion.normalizer_names) == terms
    )
    assert task.traits.communicates_in_step is task.criterion.communicates is False
    assert task.criterion is task.criterion


def test_masks_are_not_resized_with_the_images_of_an_update(refuse, tmp_path):
    sides = ["DATA.RESIZE_TO_SQUARE", "True", "DATA.SHORTEST_SIDES", "[48]", "DATA.BATCH_SIDES", "[24]"]
    assert refuse(make(*REGIONS, *sides).build_dataset, "train", tmp_path) == (
        "DATA.BATCH_SIDES: mask_rcnn_small needs masks, which are not resized: remove DATA.BATCH_SIDES"
    )
    make(*RTDETR, *sides).build_dataset("train", tmp_path)
    of_fractions = make(*RTDETR, "MODEL.NAME", "rfdetr_seg_shapes", *sides)
    assert of_fractions.build_dataset("train", tmp_path).with_masks


class BlindDetector:
    """A network that finds nothing."""

    def __call__(self, images, sizes):
        return None

    def decode(self, outputs, sizes, original_sizes):
        return [NOTHING_FOUND] * len(sizes)


@pytest.mark.parametrize(
    ("words", "name"), [([], "suspicious_labels.csv"), (["-eval", "-pretrained=x"], "eval_suspicious_labels.csv")]
)
def test_suspicious_labels_of_a_run_are_in_a_table_in_its_folder(tmp_path, words, name):
    task = make(*words, f"-output={tmp_path}")
    samples = task.build_dataset("val", tmp_path)
    suspects = np.array([[0, 0.75, -1, 1, 0.75, 0.25, 1, 2, 3.5, 4.128]], np.float32)
    nothing, labels = np.zeros(0, np.uint16), np.array([1], np.uint16)
    record = DetectionRecord(
        nothing, nothing.astype(np.float32), nothing, nothing, labels, np.array([[1, 3]]), suspects
    )
    figures = get_aspect(task, Reportable).figures(samples, [(4, record)], BlindDetector())
    assert [figure.title for figure in figures][-1] == "Suspicious labels" and len(figures) > 3
    (written,) = tmp_path.rglob("*suspicious*")
    assert written.name == name
    row = f'"{samples.name(4)}",no label here,0.75,,square,0.75,0.25,1.0,2.0,3.5,4.13'
    assert written.read_text().splitlines()[1:] == [row]
