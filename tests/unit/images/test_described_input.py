"""What files beside weights leave open is what their program does, and what they say wrongly is refused in full."""

import math

import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.described_input import (
    describes_images,
    is_of_timms_training,
    parse_object_processor,
    parse_processor,
    parse_timm_arguments,
    parse_timm_config,
    parse_timm_file,
)
from paddlevit_dist.images.models.pretrained_input import ExpectedInput

HALF = (0.5, 0.5, 0.5)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
OURS = ExpectedInput((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 0.75, "bilinear", 96, "squash")


@pytest.mark.parametrize(
    "kind, size, crop, mode, filter_, normalization",
    [  # the constructors' defaults in transformers
        ("Beit", 224, 0.875, "squash", "bicubic", (HALF, HALF)),
        ("Bit", 224, 1.0, "center", "bicubic", CLIP),
        ("CLIP", 224, 1.0, "center", "bicubic", CLIP),
        ("ConvNext", 384, 1.0, "squash", "bicubic", (HALF, HALF)),
        ("DINOv3ViT", 224, 1.0, "squash", "bilinear", IMAGENET),
        ("DeiT", 224, 0.875, "squash", "bicubic", (HALF, HALF)),
        ("MobileNetV1", 224, 0.875, "center", "bilinear", (HALF, HALF)),
        ("MobileNetV2", 224, 0.875, "center", "bilinear", (HALF, HALF)),
        ("PoolFormer", 224, 0.9, "center", "bicubic", IMAGENET),
        ("Pvt", 224, 1.0, "squash", "bilinear", IMAGENET),
        ("Segformer", 512, 1.0, "squash", "bilinear", IMAGENET),
        ("Siglip", 224, 1.0, "squash", "bicubic", (HALF, HALF)),
        ("ViT", 224, 1.0, "squash", "bilinear", (HALF, HALF)),
    ],
)
@pytest.mark.parametrize("ending", ["ImageProcessor", "ImageProcessorFast", "FeatureExtractor", "ImageProcessorPil"])
def test_an_empty_file_means_the_defaults_of_its_class(kind, size, crop, mode, filter_, normalization, ending):
    expected = ExpectedInput(*normalization, crop, filter_, size, mode)
    assert parse_processor({"image_processor_type": kind + ending, "crop_size": None}, "f", OURS) == expected


def test_a_file_of_no_class_leaves_the_rest_to_the_model():
    assert parse_processor({}, "f", OURS) == OURS._replace(crop_mode="center")
    assert parse_processor({"crop_size": 32}, "f", OURS) == OURS._replace(image_size=32, crop_mode="center")
    found = parse_processor({"size": 32, "crop_size": 28}, "f", OURS)
    assert (found.image_size, found.crop_pct, found.crop_mode) == (28, 0.875, "squash")
    edge = {"size": {"shortest_edge": 40, "height": None}, "crop_size": {"height": 30, "width": 30}}
    assert parse_processor(edge, "f", OURS)[2:] == (0.75, "bilinear", 30, "center")
    convnext = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 383}}
    assert parse_processor(convnext, "f", OURS)[2:] == (0.875, "bicubic", 383, "center")
    for number, name in ((2, "bilinear"), (3, "bicubic")):
        assert parse_processor({"resample": number}, "f", OURS).interpolation == name


# 200 / (200 / 241) is less than 241, and 200 / (200 / 232) more than 232; likewise the others.
@pytest.mark.parametrize("resized", [200, 207, 232, 241, 248, 254, 332, 334, 352, 383])
def test_the_share_of_a_crop_gives_back_the_resized_side(resized):
    found = parse_processor({"size": resized, "crop_size": 200}, "f", OURS)
    assert math.floor(200 / found.crop_pct) == resized and found.crop_pct == pytest.approx(200 / resized, rel=1e-12)


@pytest.mark.parametrize(
    "content, said",
    [
        ({"rescale_factor": True}, "f: rescale_factor true: expected a number above 0; edit the file"),
        ({"rescale_factor": math.inf}, "f: rescale_factor Infinity: expected a number above 0; edit the file"),
        ({"image_mean": [0.5, True, 0.5]}, "f: not in timm's or Hugging Face's format: image_mean is [0.5, true, 0.5]"),
        ({"size": True}, "f: size true is not supported: expected height and width, or shortest_edge"),
        ({"size": 0}, "f: size 0 is not supported: expected height and width, or shortest_edge"),
        ({"size": [3, "4"]}, 'f: size {"height": 3, "width": "4"} is not supported: expected height and width'),
        (
            {"size": {"height": 40, "width": 60}, "crop_size": {"height": 30, "width": 50}},
            "f: crop_size [30, 50] of size [40, 60]: expected one share of both sides",
        ),
        (
            {"size": {"shortest_edge": 40}, "crop_size": {"height": 30, "width": 40}},
            "f: crop_size [30, 40] of the shortest edge 40: expected one share of both sides",
        ),
        ({"size": [40, 60], "crop_size": {"height": 30, "width": 70}}, "f: crop_size [30, 70] is larger than size"),
        ({"resample": 6}, "f: resample 6: expected Pillow's number, from 0 to 5; edit the file"),
        ({"resample": True}, "f: resample true: expected Pillow's number, from 0 to 5; edit the file"),
        ({"image_std": [0.5, 0.0, 0.5]}, "f: mean [0.1, 0.2, 0.3], std [0.5, 0.0, 0.5], crop 0.75: expected three"),
        ({"crop_pct": 1.5}, "f: mean [0.1, 0.2, 0.3], std [0.4, 0.5, 0.6], crop 1.5: expected three numbers each"),
        ({"crop_pct": 0}, "f: mean [0.1, 0.2, 0.3], std [0.4, 0.5, 0.6], crop 0: expected three numbers each"),
        ({"crop_pct": "x"}, "f: not in timm's or Hugging Face's format: could not convert string to float: 'x'"),
        ({"antialias": False}, "f: antialias is false, which is not supported: the images would differ"),
        ({"image_mean": [1.01] * 3}, "f: with rescale_factor 0.00392157 and image_mean [1.01, 1.01, 1.01], pixels"),
        ({"image_mean": [-0.01] * 3}, "f: with rescale_factor 0.00392157 and image_mean [-0.01, -0.01, -0.01], pixels"),
    ],
)
def test_wrong_values_are_refused(content, said):
    assert refusal_of(parse_processor, content, "f", OURS).startswith(said)
    parse_processor({"image_mean": [0, 1, 0.5], "crop_pct": 1, "antialias": True, "resample": 2}, "f", OURS)


def test_timm_s_fields_take_turns_with_those_of_tests_and_the_model():
    assert parse_timm_config({}, "f", OURS, True) == OURS
    config = {"input_size": (3, 64, 64), "test_input_size": [3, 80, 80], "crop_pct": 0.5, "test_crop_pct": 0.25}
    config |= {"interpolation": "bicubic", "crop_mode": "center", "mean": 0.5, "std": [0.25]}
    expected = ExpectedInput(HALF, (0.25,) * 3, 0.5, "bicubic", 64, "center")
    assert parse_timm_config(config, "f", OURS, False) == expected
    assert parse_timm_config(config, "f", OURS, True) == expected._replace(image_size=80, crop_pct=0.25)
    content = {"pretrained_cfg": config, "model_args": {"img_size": [48, 48]}}
    assert parse_timm_file(content, "f", OURS, True) == expected._replace(image_size=48, crop_pct=0.25)
    content["model_args"]["img_size"] = [48, 32]
    assert parse_timm_file(content, "f", OURS, True) == expected._replace(image_size=[48, 32], crop_pct=0.25)
    assert parse_timm_file(config, "f", OURS, False) == expected
    for wrong in ([1, 4, 4], [3, 4], 4):
        with pytest.raises(UserError, match=r"^f: input_size .*: expected \[3, HEIGHT, WIDTH\]; gray ones: DATA"):
            parse_timm_config({"input_size": wrong}, "f", OURS, False)
    with pytest.raises(UserError, match="^f: input_size .1, 48, 48.: expected"):
        parse_timm_file({"model_args": {"img_size": 48, "in_chans": 1}}, "f", OURS, False)
    allowed = {"label_offset": 0, "global_pool": "token", "num_classes": 9, "_x": 1, "new": None, "other": False}
    assert parse_timm_file({**allowed, "model_args": None}, "f", OURS, False) == OURS


def test_timm_s_arguments_of_a_training_are_recognized_and_read():
    marks = dict.fromkeys(("crop_pct", "img_size", "interpolation", "mean", "model", "std"))
    assert is_of_timms_training(marks) and is_of_timms_training({**marks, "more": 1})
    assert not any(is_of_timms_training({k: 1 for k in marks if k != name}) for name in marks)
    assert not is_of_timms_training(list(marks))
    usual = {"bn_eps": 1e-5, "in_chans": 3, "split_bn": False, "input_img_mode": "RGB", "model_kwargs": {}, "gp": "avg"}
    assert parse_timm_arguments({**marks, **usual}, "f", OURS) == OURS
    assert parse_timm_arguments({**marks, "img_size": 32}, "f", OURS).image_size == 32
    given = {**marks, "img_size": 32, "input_size": [3, 40, 40], "test_input_size": [3, 50, 50]}
    assert parse_timm_arguments(given, "f", OURS).image_size == 40
    with pytest.raises(UserError, match="^f: split_bn is true, which is not supported"):
        parse_timm_arguments({**marks, "split_bn": True}, "f", OURS)


def test_timm_s_files_are_told_from_those_of_transformers():
    assert describes_images({"pretrained_cfg": {}}) and describes_images({"crop_pct": 1})
    assert not describes_images({"architecture": "x", "labels": [], "label_names": [], "id2label": {}})


@pytest.mark.parametrize(
    "content, sides",
    [
        ({}, []),
        ({"size": 8}, [8]),
        ({"size": 8, "max_size": 13}, [8, 13]),
        ({"size": {"height": 5, "width": 6}}, [5, 6]),
        ({"size": {"shortest_edge": 5, "longest_edge": 9}}, [5, 9]),
        ({"size": {"shortest_edge": 5, "longest_edge": None}}, [5]),
        ({"size": [3, 4]}, [3, 4]),
        ({"size": {"height": 5, "width": 6}, "do_resize": False}, []),
        ({"size": {"longest_edge": 7, "other": None}}, [7]),
    ],
)
def test_sides_of_detectors_are_listed(content, sides):
    found = parse_object_processor({**content, "do_pad": True}, "f", [0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    assert found == ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], sides)


def test_detectors_are_resized_smoothly():
    for number in (2, 3):
        parse_object_processor({"resample": number}, "f", HALF, HALF)
    for number in (1, 4):
        with pytest.raises(UserError, match=f"^f: resample {number}: images are resized bilinearly here; use other"):
            parse_object_processor({"resample": number}, "f", HALF, HALF)
    with pytest.raises(UserError, match="^f: size .*: expected height and width, or shortest_edge; edit the file$"):
        parse_object_processor({"size": {"shortest_edge": 5, "max_height": 9}}, "f", HALF, HALF)
    with pytest.raises(UserError, match="^f: crop_size is 3, which is not supported"):
        parse_object_processor({"crop_size": 3}, "f", HALF, HALF)
