"""What is known of weights without a run: their input and classes, and what is not made up."""

import json

import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.extensions.export.foreign_weights import (
    find_class_names,
    find_detection,
    make_classifier_parts,
    make_detector_parts,
    make_segmenter_parts,
)
from paddlevit_dist.extensions.export.trained_models import load_trained_model
from paddlevit_dist.images.imagenet_classes import names_by_synset

INPUT = {"image_processor_type": "ViTImageProcessor", "image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}


@pytest.fixture
def weights(tmp_path):
    paddle.save({"a": paddle.zeros([1])}, str(tmp_path / "model.pdparams"))
    return tmp_path


def test_names_of_classes_fit_the_number_of_outputs(weights):
    imagenet = find_class_names(str(weights), 1000)
    assert imagenet["classes"] == list(names_by_synset().values()) and "their 1,000 classes;" in imagenet["note"]
    assert find_class_names(str(weights), 3) == {}
    (weights / "config.json").write_text(json.dumps({"id2label": {"2": "bee", "0": "cat", "1": "ant"}}))
    assert find_class_names(str(weights), 3) == {"classes": ["cat", "ant", "bee"]}
    assert find_class_names(str(weights), 4) == find_class_names(str(weights), 1000) == {}


def test_a_classifier_has_the_input_of_the_file_next_to_it(weights):
    size = {"size": {"height": 40, "width": 40}, "resample": 3, "rescale_factor": 1 / 255}
    (weights / "preprocessor_config.json").write_text(json.dumps({**INPUT, **size}))
    (exportable, parts), found = make_classifier_parts(str(weights), "resnet18", None, None)
    assert found == 40 and parts.about["mean"] == [0.1, 0.2, 0.3] and exportable is not None
    assert parts.about["standard_deviation"] == [0.5, 0.6, 0.7]
    (_, parts), found = make_classifier_parts(str(weights), "resnet18", 64, 3)
    assert found == 64 and parts.about["mean"] == [0.1, 0.2, 0.3]
    (_, parts), found = make_classifier_parts(str(weights), "resnet18", (48, 56), 3)
    assert found == [48, 56] and parts.about["preprocessing"]["resize"] == [48, 56]
    for image_size, channels in ((40, 1), (None, 4)):
        assert make_classifier_parts(str(weights), "resnet18", image_size, channels) == (None, image_size)


def test_weights_that_nothing_describes_have_the_usual_input_of_their_model_and_a_note(weights):
    (_, parts), size = make_classifier_parts(str(weights), "vit_tiny_patch16_224", 48, None)
    assert size == 48 and parts.about["mean"] == [0.5] * 3
    assert "says what the weights expect" in parts.about["note"] and "vit_tiny_patch16_224" in parts.about["note"]
    assert make_classifier_parts(str(weights), "resnet", 48, None) == (None, 48)  # of no known input
    (_, parts), size = make_classifier_parts("resnet18.tv_in1k", "resnet18", None, 3)
    assert size == 224 and parts.about["mean"] == [0.485, 0.456, 0.406]


BOXES = ("detection", "coco")


def test_a_detector_needs_a_size_and_says_whose_normalization_it_has(weights):
    with pytest.raises(UserError, match="^export: rtdetr_r18vd takes images of any size.*add -image_size=HEIGHTxWIDTH"):
        make_detector_parts(str(weights), "rtdetr_r18vd", None, *BOXES)
    exportable, parts = make_detector_parts(str(weights), "rtdetr_r18vd", (64, 96), *BOXES)
    assert exportable is not None and "rtdetr_r18vd's published one is used" in parts.about["note"]
    assert parts.about["mean"] == [0.0] * 3 and parts.about["standard_deviation"] == [1.0] * 3
    (weights / "preprocessor_config.json").write_text(json.dumps({**INPUT, "size": {"height": 64, "width": 64}}))
    _, parts = make_detector_parts(str(weights), "rtdetr_r18vd", 64, *BOXES)
    assert "note" not in parts.about and parts.about["mean"] == [0.1, 0.2, 0.3]


def test_a_segmenter_has_imagenets_normalization_and_a_note_or_what_the_file_next_to_it_says(weights):
    exportable, parts = make_segmenter_parts(str(weights), "segformer_b0", (64, 96), 3)
    assert exportable is not None and parts.size == (64, 96) and parts.about["mean"] == [0.485, 0.456, 0.406]
    assert "ImageNet's is used" in parts.about["note"]
    file = {**INPUT, "image_processor_type": "SegformerImageProcessor", "size": {"height": 64, "width": 96}}
    (weights / "preprocessor_config.json").write_text(json.dumps(file))
    _, parts = make_segmenter_parts(str(weights), "segformer_b0", (64, 96), 3)
    assert "note" not in parts.about and parts.about["mean"] == [0.1, 0.2, 0.3]


DETECTIONS = {
    "detr_small": (BOXES, True),
    "rfdetr_nano": (BOXES, False),
    "detrpose_small": (("keypoint_detection", "coco_keypoints"), False),
    "vitpose_tiny": (None, False),
    "segformer_b0": (None, False),
}


@pytest.mark.parametrize("name", DETECTIONS)
def test_notes_are_of_the_network(weights, name):
    """DETR alone was published with images of their own proportions."""
    detection, is_evaluated_otherwise = DETECTIONS[name]
    assert find_detection(name) == detection
    if detection is not None:
        about = make_detector_parts(str(weights), name, 384, *detection)[1].about
        assert ("an evaluation keeps the aspect ratio of images" in about["note"]) == is_evaluated_otherwise


REFUSED = {
    "unet3d": "^export: unet3d takes inputs of any size, and weights alone store none: export the run's folder$",
    "maskrcnn_resnet50_fpn": "^export: mask_rcnn_resnet50_fpn selects regions on the host",  # by another spelling
    "minkunet14a": "^export: minkunet14a is a sparse network",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_weights_alone_cannot_export_is_refused_in_one_line(weights, name):
    if name == "unet3d":
        paddle.save(create_model(name, num_classes=2).state_dict(), str(weights / "model.pdparams"))
    with pytest.raises(UserError, match=REFUSED[name]):
        load_trained_model(str(weights), name, None if name == "unet3d" else 64)
