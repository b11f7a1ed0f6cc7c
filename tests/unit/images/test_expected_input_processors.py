"""Input of weights as the files of timm and transformers beside them say it."""

import json
import pickle
from argparse import Namespace

import numpy as np
import paddle
import pytest
import yaml
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.classification.samples import evaluation_transform
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.images.transforms.on_device import PixelNormalizer

NAMES = ("IMAGE_SIZE", "CROP_PCT", "CROP_MODE", "INTERPOLATION")


def load_with(folder, file: str, content: dict, *words: str):
    (folder / file).write_text(json.dumps(content))
    return load(["-dataset=folder", "MODEL.NAME", "vit_base_patch16_224", f"-pretrained={folder}", *words])


def found_by(folder, content: dict) -> tuple:
    about = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3, **content}
    data = load_with(folder, "preprocessor_config.json", about).values.DATA
    return tuple(data[name] for name in NAMES[:3])


SQUARE = {"height": 224, "width": 224}


@pytest.mark.parametrize(
    "about, expected",
    [
        ({"size": SQUARE}, (224, 1.0, "squash")),
        ({"size": {"height": 256, "width": 256}, "crop_size": SQUARE}, (224, 0.875, "squash")),
        ({"size": {"height": 256, "width": 256}, "crop_size": SQUARE, "do_center_crop": False}, (256, 1.0, "squash")),
        ({"size": 224, "feature_extractor_type": "ViTFeatureExtractor"}, (224, 1.0, "squash")),
        ({"size": 224, "crop_size": 224, "feature_extractor_type": "CLIPFeatureExtractor"}, (224, 1.0, "center")),
        ({"size": {"shortest_edge": 256}, "crop_size": SQUARE}, (224, 0.875, "center")),
        (
            {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "image_processor_type": "ConvNextImageProcessor"},
            (224, 0.875, "center"),
        ),
        (
            {"size": {"shortest_edge": 384}, "crop_pct": 0.875, "image_processor_type": "ConvNextImageProcessor"},
            (384, 1.0, "squash"),
        ),
    ],
)
def test_sizes_of_transformers_mean_what_its_processors_make(tmp_path, about, expected):
    assert found_by(tmp_path, about) == expected


@pytest.mark.parametrize(
    "about, said",
    [
        ({"size": {"height": 224, "width": True}}, "size .* is not supported"),
        (
            {"size": SQUARE, "resample": 4},
            "box: set DATA.INTERPOLATION to one of",
        ),
    ],
)
def test_a_processor_that_is_not_followed_is_refused(tmp_path, about, said):
    with pytest.raises(UserError, match=said):
        found_by(tmp_path, about)


TIMMS = {"mean": [0.5] * 3, "std": [0.5] * 3, "input_size": [3, 224, 224], "crop_pct": 0.9, "crop_mode": "squash"}


def test_timms_crop_mode_is_read(tmp_path):
    assert load_with(tmp_path, "config.json", TIMMS).values.DATA.CROP_MODE == "squash"
    data = load_with(tmp_path, "config.json", {**TIMMS, "crop_mode": "border", "interpolation": "lanczos"}).values.DATA
    assert (data.CROP_MODE, data.INTERPOLATION) == ("border", "lanczos")
    with pytest.raises(UserError, match="crop_mode tight: set DATA.CROP_MODE to one of center"):
        load_with(tmp_path, "config.json", {**TIMMS, "crop_mode": "tight"})


def test_a_rectangle_and_its_borders_are_read_and_told(tmp_path):
    about = {**TIMMS, "input_size": [3, 64, 96], "crop_mode": "border"}
    values = load_with(tmp_path, "config.json", about).values
    assert values.DATA.IMAGE_SIZE == [64, 96]
    line = "input: 64 x 96 pixels, crop 0.9 with borders, bicubic, mean 0.5, 0.5, 0.5, deviation 0.5, 0.5, 0.5"
    assert Classification(values).notices == [f"{line} ({tmp_path}/config.json)"]


def test_a_crop_of_the_command_line_leaves_the_rest_to_the_weights(tmp_path):
    about = {**TIMMS, "interpolation": "bilinear"}
    data = load_with(tmp_path, "config.json", about, "DATA.CROP_PCT", "0.8").values.DATA
    assert tuple(data[name] for name in NAMES) == (224, 0.8, "squash", "bilinear")


def test_the_input_is_told_and_what_given_weights_expect_otherwise(tmp_path):
    values = load_with(tmp_path, "config.json", TIMMS, "DATA.CROP_PCT", "0.8").values
    line = "input: 224 pixels, crop 0.8 of a square, bicubic, mean 0.5, 0.5, 0.5, deviation 0.5, 0.5, 0.5"
    assert Classification(values).notices == [f"{line}; {tmp_path}/config.json expects crop 0.9 of a square"]


# ---- every field is followed, or refused by its name -------------------------------------------------------------

NOISE = np.random.default_rng(0).integers(0, 256, (70, 50, 3)).astype(np.uint8)
MEAN, STD = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]


def process(size, crop, resample, mean, std):
    """Compute a processor's output for the noise: resize to (width, height), crop from the middle, normalize."""
    resized = Image.fromarray(NOISE).resize(size, resample)
    width, height = (crop, crop) if isinstance(crop, int) else crop
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    pixels = np.asarray(resized.crop((left, top, left + width, top + height)), np.float64)
    return ((pixels - mean) / std).transpose(2, 0, 1)


def by_ours(data):
    image = evaluation_transform(data, "photo")(Image.fromarray(NOISE), np.random.default_rng(0))
    return PixelNormalizer(data.IMAGENET_MEAN, data.IMAGENET_STD)(paddle.to_tensor(image[None])).numpy()[0]


BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
EDGE, HIGH = {"shortest_edge": 32}, np.array([0.48145466, 0.4578275, 0.40821073])
IMAGENET_MEAN, IMAGENET_STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


@pytest.mark.parametrize(
    "about, expected",
    [
        (
            {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}},
            ((32, 32), 32, BILINEAR, 127.5, 127.5),
        ),
        (
            {"image_processor_type": "ViTImageProcessorFast", "size": 32, "image_mean": MEAN, "image_std": STD},
            ((32, 32), 32, BILINEAR, 255 * np.array(MEAN), 255 * np.array(STD)),
        ),
        (
            {"feature_extractor_type": "ViTFeatureExtractor", "size": 32, "crop_size": 24},
            ((32, 32), 32, BILINEAR, 127.5, 127.5),
        ),
        ({"image_processor_type": "ConvNextImageProcessor", "size": EDGE}, ((36, 50), 32, BICUBIC, 127.5, 127.5)),
        (
            {"image_processor_type": "ConvNextImageProcessor", "size": EDGE, "crop_pct": 0.95, "resample": 2},
            ((33, 46), 32, BILINEAR, 127.5, 127.5),
        ),
        (
            {
                "image_processor_type": "BitImageProcessor",
                "size": {"shortest_edge": 40},
                "crop_size": {"height": 32, "width": 32},
                "image_std": STD,
            },
            ((40, 56), 32, BICUBIC, 255 * HIGH, 255 * np.array(STD)),
        ),
        (
            {"image_processor_type": "DeiTImageProcessor", "size": {"height": 40, "width": 40}, "crop_size": 32},
            ((40, 40), 32, BICUBIC, 127.5, 127.5),
        ),
        (
            {
                "image_processor_type": "BeitImageProcessor",
                "size": {"height": 40, "width": 40},
                "do_center_crop": False,
                "do_reduce_labels": True,
            },
            ((40, 40), 40, BICUBIC, 127.5, 127.5),
        ),
        (
            {"image_processor_type": "MobileNetV2ImageProcessor", "size": {"shortest_edge": 40}, "crop_size": 32},
            ((40, 56), 32, BILINEAR, 127.5, 127.5),
        ),
        (
            {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 48}},
            ((48, 32), (48, 32), BILINEAR, 127.5, 127.5),
        ),
        (
            {
                "image_processor_type": "DeiTImageProcessor",
                "size": {"height": 40, "width": 60},
                "crop_size": {"height": 32, "width": 48},
            },
            ((60, 40), (48, 32), BICUBIC, 127.5, 127.5),
        ),
        (
            {"image_processor_type": "ViTImageProcessor", "size": 32, "resample": 1},
            ((32, 32), 32, Image.Resampling.LANCZOS, 127.5, 127.5),
        ),
        (
            {"image_processor_type": "SegformerImageProcessor", "size": 32},
            ((32, 32), 32, BILINEAR, 255 * IMAGENET_MEAN, 255 * IMAGENET_STD),
        ),
        (
            {"size": [32, 32], "rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": 1.0, "resample": 2},
            ((32, 32), 32, BILINEAR, 127.5, 127.5),
        ),
        (
            {"size": 32, "rescale_factor": 1 / 127.5, "rescale_offset": True, "do_normalize": False, "resample": 2},
            ((32, 32), 32, BILINEAR, 127.5, 127.5),
        ),
        (
            {
                "size": 32,
                "do_rescale": False,
                "rescale_offset": True,
                "image_mean": [128],
                "image_std": [64],
                "resample": 2,
            },
            ((32, 32), 32, BILINEAR, 128.0, 64.0),
        ),
        ({"size": 32, "do_rescale": False, "do_normalize": False, "resample": 2}, ((32, 32), 32, BILINEAR, 0.0, 1.0)),
        ({"size": 32, "do_normalize": False, "resample": 2}, ((32, 32), 32, BILINEAR, 0.0, 255.0)),
    ],
)
def test_images_are_those_of_the_processor(tmp_path, about, expected):
    data = load_with(tmp_path, "preprocessor_config.json", about).values.DATA
    np.testing.assert_allclose(by_ours(data), process(*expected), rtol=1e-5, atol=2e-5)


def test_a_factor_of_one_255th_leaves_the_numbers_as_they_are(tmp_path):
    about = {"size": 32, "image_mean": MEAN, "image_std": STD, "rescale_factor": 0.00392156862745098, "resample": 3}
    data = load_with(tmp_path, "preprocessor_config.json", about).values.DATA
    assert data.IMAGENET_MEAN == MEAN and data.IMAGENET_STD == STD


@pytest.mark.parametrize(
    "about, said",
    [
        ({"do_flip_channel_order": True}, "do_flip_channel_order is true, which is not supported"),
        ({"do_pad": True}, "do_pad is true"),
        ({"do_something_new": True}, "do_something_new is true"),
        ({"auto_map": {"AutoImageProcessor": "a.B"}}, "auto_map is "),
        ({"do_resize": False}, "do_resize is false"),
        ({"resample": 7}, "resample 7: expected Pillow's number"),
        ({"resample": "bicubic"}, 'resample "bicubic"'),
        ({"resample": 0}, "interpolation nearest"),
        ({"size": {"longest_edge": 32}}, "size .* is not supported"),
        ({"size": {"shortest_edge": 32, "longest_edge": 64}}, "size .* is not supported"),
        ({"size": {"shortest_edge": 32}}, "a shortest edge without a center crop"),
        ({"size": 32, "crop_size": 40}, "crop_size 40 is larger than size 32"),
        ({"size": 32.5}, "size 32.5 is not supported"),
        ({"rescale_factor": 0}, "rescale_factor 0"),
        ({"rescale_factor": "1/255"}, "rescale_factor "),
        ({"do_rescale": False, "image_mean": [300] * 3}, "would have the mean"),
        ({"image_mean": [0.5, 0.5]}, "expected three numbers each"),
        ({"image_mean": "half"}, "image_mean is "),
        (
            {"image_processor_type": "EfficientNetImageProcessor"},
            "image_processor_type EfficientNetImageProcessor is not",
        ),
    ],
)
def test_what_a_processor_does_besides_is_refused_by_name(tmp_path, about, said):
    with pytest.raises(UserError, match=f"preprocessor_config.json: .*{said}|preprocessor_config.json: {said}"):
        load_with(tmp_path, "preprocessor_config.json", {"size": SQUARE, "resample": 3, **about})


def test_fields_that_change_no_image_are_passed_over(tmp_path):
    about = {"size": 32, "processor_class": "A", "_valid_processor_keys": ["x"], "do_pad": False, "unknown": None}
    assert load_with(tmp_path, "preprocessor_config.json", about).values.DATA.IMAGE_SIZE == 32


@pytest.mark.parametrize("words, size, crop", [((), 224, 0.9), (("-eval",), 288, 1.0)])
def test_an_evaluation_has_timms_size_and_crop_of_tests(tmp_path, words, size, crop):
    content = {"pretrained_cfg": {**TIMMS, "test_input_size": [3, 288, 288], "test_crop_pct": 1.0}}
    data = load_with(tmp_path, "config.json", content, *words).values.DATA
    assert (data.IMAGE_SIZE, data.CROP_PCT) == (size, crop)


@pytest.mark.parametrize(
    "content, said",
    [
        ({"input_size": [3, 224, 0]}, r"image_size \[224, 0\]: set DATA.IMAGE_SIZE to a whole number"),
        ({"input_size": [1, 224, 224]}, r"input_size \[1, 224, 224\]"),
        ({"label_offset": 1}, "label_offset is 1"),
        ({"new_field": 3}, "new_field is 3"),
        ({"pretrained_cfg": {"mean": [0.5], "new_field": 3}}, "new_field is 3"),
        ({"global_pool": "max"}, 'global_pool is "max"'),
        ({"model_args": {"act_layer": "relu"}}, 'model_args: act_layer is "relu"'),
        ({"model_args": 3}, "model_args is 3"),
        ({"pretrained_cfg": 3}, "pretrained_cfg is 3"),
    ],
)
def test_what_timm_does_besides_is_refused_by_name(tmp_path, content, said):
    with pytest.raises(UserError, match=f"config.json: {said}"):
        load_with(tmp_path, "config.json", {**TIMMS, **content})


def test_timms_arguments_of_the_model_give_its_size(tmp_path):
    content = {
        "pretrained_cfg": {"input_size": [3, 224, 224], "mean": [0.3], "std": 0.4},
        "model_args": {"img_size": 96},
    }
    data = load_with(tmp_path, "config.json", content, "-eval").values.DATA
    assert (data.IMAGE_SIZE, data.IMAGENET_MEAN, data.IMAGENET_STD) == (96, [0.3] * 3, [0.4] * 3)


def test_a_file_describes_the_only_weights_of_its_folder_whatever_they_are_called(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"size": 32, "resample": 3}))
    (tmp_path / "mine.bin").touch()
    words = ["-dataset=folder", "MODEL.NAME", "vit_base_patch16_224", f"-pretrained={tmp_path}/mine.bin"]
    assert load(words).values.DATA.IMAGE_SIZE == 32
    (tmp_path / "other.bin").touch()
    assert load(words).values.DATA.IMAGE_SIZE == 224


# ---- detectors and segmenters ------------------------------------------------------------------------------------

OF_DETR = {
    "image_processor_type": "DetrImageProcessor",
    "do_pad": True,
    "format": "coco_detection",
    "size": {"shortest_edge": 800, "longest_edge": 1333},
    "do_normalize": False,
}


def load_detector(folder, about: dict, *words: str):
    (folder / "preprocessor_config.json").write_text(json.dumps(about))
    model = ["TASK", "detection", "MODEL.NAME", "detr_resnet50"]
    return load([*model, "-dataset=coco", "-data_path=x", f"-pretrained={folder}", *words])


def test_a_detector_is_normalized_as_its_processor_says(tmp_path):
    loaded = load_detector(tmp_path, OF_DETR)
    assert (loaded.values.DATA.IMAGENET_MEAN, loaded.values.DATA.IMAGENET_STD) == ([0.0] * 3, [1.0] * 3)
    assert not [line for line in loaded.notices if "preprocessor_config" in line]


def test_a_detector_that_is_fed_otherwise_is_told(tmp_path):
    about, words = {**OF_DETR, "size": {"height": 640, "width": 640}}, "DATA.IMAGENET_MEAN [.5,.5,.5]".split()
    loaded = load_detector(tmp_path, about, *words, "DATA.IMAGENET_STD", "[0.25,1,1]")
    file = f"note: {tmp_path / 'preprocessor_config.json'}"
    assert [line for line in loaded.notices if "preprocessor_config" in line] == [
        f"{file} expects DATA.IMAGENET_MEAN [0.0, 0.0, 0.0], and it is [0.5, 0.5, 0.5]",
        f"{file} expects DATA.IMAGENET_STD [1.0, 1.0, 1.0], and it is [0.25, 1.0, 1.0]",
        f"{file} resizes images to 640 x 640 pixels, and DATA.EVAL_SHORTEST_SIDE is 800, EVAL_LONGEST_SIDE 1333",
    ]
    for size in (800, {"shortest_edge": 800}, {"height": 800, "width": 800}):
        assert not any("resizes" in line for line in load_detector(tmp_path, {**about, "size": size}).notices)


@pytest.mark.parametrize("field", [{"do_flip_channel_order": True}, {"resample": 0}, {"do_thumbnail": True}])
def test_what_a_detectors_processor_does_besides_is_refused_by_name(tmp_path, field):
    with pytest.raises(UserError, match=next(iter(field))):
        load_detector(tmp_path, {**OF_DETR, **field})


# ---- timm's train.py ---------------------------------------------------------------------------------------------

RUN = {"model": "vit_base_patch16_224.augreg", "img_size": 96, "crop_pct": 0.8, "mean": [0.1], "std": None} | {
    "interpolation": "bilinear",
    "num_classes": 3,
    "opt": "adamw",
    "in_chans": None,
}


def write_checkpoint(file, arguments: dict) -> None:
    """Write a file of PyTorch before 1.6 that contains parsed arguments beside weights."""
    content = {"arch": "x", "args": Namespace(**arguments), "state_dict": {}}
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, content, [])
    file.write_bytes(b"".join(pickle.dumps(part, 2) for part in parts))


def load_timms(folder, name: str, *words: str):
    return load(["-dataset=folder", "MODEL.NAME", "vit_base_patch16_224", f"-pretrained={folder}{name}", *words])


@pytest.mark.parametrize("name", ["", "/model_best.pth.tar"])
@pytest.mark.parametrize("is_in_checkpoint", [True, False])
def test_arguments_of_timms_training_give_the_input(tmp_path, name, is_in_checkpoint):
    write_checkpoint(tmp_path / "model_best.pth.tar", RUN if is_in_checkpoint else {})
    if not is_in_checkpoint:
        (tmp_path / "args.yaml").write_text(yaml.safe_dump(RUN))
    data = load_timms(tmp_path, name, "-eval").values.DATA
    assert tuple(data[name] for name in NAMES) == (96, 0.8, "center", "bilinear")
    assert data.IMAGENET_MEAN == [0.1] * 3 and data.IMAGENET_STD == [0.5] * 3  # the latter is of the model


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"in_chans": 1}, "in_chans is 1"),
        ({"gp": "max"}, 'gp is "max"'),
        ({"model_kwargs": {"a": 1}}, "model_kwargs is "),
        ({"bn_eps": 0.1}, "bn_eps is 0.1"),
        ({"input_size": [3, 96, 12800]}, r"image_size \[96, 12800\]: set DATA.IMAGE_SIZE"),
    ],
)
def test_arguments_that_make_another_network_are_refused_by_name(tmp_path, changed, said):
    (tmp_path / "args.yaml").write_text(yaml.safe_dump({**RUN, **changed}))
    with pytest.raises(UserError, match=f"args.yaml: {said}"):
        load_timms(tmp_path, "")


@pytest.mark.parametrize(
    "argument, value, key, chosen",
    [
        ("interpolation", "hamming", "INTERPOLATION", "lanczos"),
        ("interpolation", "random", "INTERPOLATION", "bilinear"),
        ("crop_mode", "tight", "CROP_MODE", "border"),
        ("input_size", [3, 64, 19200], "IMAGE_SIZE", "64"),
    ],
)
@pytest.mark.parametrize("is_in_checkpoint", [True, False])
def test_a_key_replaces_what_timm_has_and_this_package_has_not(
    tmp_path, argument, value, key, chosen, is_in_checkpoint
):
    arguments = {**RUN, argument: value}
    write_checkpoint(tmp_path / "model_best.pth.tar", arguments if is_in_checkpoint else {})
    if not is_in_checkpoint:
        (tmp_path / "args.yaml").write_text(yaml.safe_dump(arguments))
    with pytest.raises(UserError, match=f": set DATA.{key} to "):
        load_timms(tmp_path, "/model_best.pth.tar")
    values = load_timms(tmp_path, "/model_best.pth.tar", f"DATA.{key}", chosen).values
    assert str(values.DATA[key]) == chosen and values.DATA.CROP_PCT == 0.8
    stated = "64 x 19200 pixels" if key == "IMAGE_SIZE" else "" if key == "CROP_MODE" else value
    assert stated in Classification(values).notices[0].partition(" expects ")[2]


def test_arguments_in_a_checkpoint_are_replaced_by_a_file_next_to_it(tmp_path):
    write_checkpoint(tmp_path / "model_best.pth.tar", {**RUN, "model_kwargs": {"drop_rate": 0.1}})
    with pytest.raises(UserError, match="by an args.yaml next to it"):
        load_timms(tmp_path, "/model_best.pth.tar")
    (tmp_path / "args.yaml").write_text(yaml.safe_dump(RUN))
    assert load_timms(tmp_path, "/model_best.pth.tar").values.DATA.IMAGE_SIZE == 96
    (tmp_path / "args.yaml").write_text("")
    assert load_timms(tmp_path, "/model_best.pth.tar").values.DATA.IMAGE_SIZE == 224  # of the variant
    write_checkpoint(tmp_path / "model_best.pth.tar", {**RUN, "input_size": [1, 96, 96]})
    (tmp_path / "args.yaml").unlink()
    with pytest.raises(UserError, match="gray ones: DATA.IMAGE_CHANNELS 1"):
        load_timms(tmp_path, "/model_best.pth.tar")
    assert load_timms(tmp_path, "/model_best.pth.tar", "DATA.IMAGE_CHANNELS", "1").values.DATA.IMAGE_CHANNELS == 1


@pytest.mark.parametrize("changed", [{"model": "resnet50"}, {"crop_pct": "absent"}])
def test_arguments_for_another_model_or_of_another_program_are_passed_over(tmp_path, changed):
    arguments = {name: value for name, value in {**RUN, **changed}.items() if value != "absent"}
    (tmp_path / "args.yaml").write_text(yaml.safe_dump(arguments))
    assert load_timms(tmp_path, "").values.DATA.IMAGE_SIZE == 224
