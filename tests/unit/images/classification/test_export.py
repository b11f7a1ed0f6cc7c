"""What an exported classifier says of its input, for people and for PaddleX."""

import numpy as np
import pytest

from paddlevit_dist.core import settings as config
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Exportable
from paddlevit_dist.core.tasks.task_factory import make_task

CENTERED = {"center_crop": [48, 48], "crop_starts_at": "round((side - crop) / 2), halves to the even number"}
WIDE = {**CENTERED, "center_crop": [48, 96]}
CASES = {  # settings -> how people are told to resize, and PaddleX's operation; None: it has none
    "DATA.IMAGE_SIZE 48": (
        {"resize_shorter_side": 64, "longer_side": "int(resize_shorter_side * longer / shorter)", **CENTERED},
        {"resize_short": 64},
    ),
    "DATA.IMAGE_SIZE [48,96]": (
        {
            "resize_to_cover": [64, 128],
            "sides": "round(side / the smaller of height and width, each divided by resize_to_cover's), at least 1",
            **WIDE,
        },
        None,
    ),
    "DATA.IMAGE_SIZE 48 DATA.CROP_MODE squash": ({"resize": [64, 64], **CENTERED}, {"size": 64}),
    "DATA.IMAGE_SIZE [48,96] DATA.CROP_MODE squash": ({"resize": [64, 128], **WIDE}, {"size": [128, 64]}),
    "DATA.IMAGE_SIZE 48 DATA.CROP_MODE border": (
        {
            "resize_to_fit": [64, 64],
            "sides": "round(side / the larger of height and width, each divided by resize_to_fit's), at least 1",
            "pad_to": [48, 48],
            "pad_with": [32, 64, 128],
            "padding_starts_at": "(crop - side) // 2 where the side is shorter than the crop",
            **CENTERED,
        },
        None,
    ),
}


@pytest.mark.parametrize("words", CASES)
def test_resize_and_crop_are_told_in_words_and_as_operations_of_paddlex(words):
    common = (
        "-cfg=vit_tiny_patch16_224 -num_classes=3 DATA.CROP_PCT 0.75 DATA.INTERPOLATION lanczos DATA.EXIF_ROTATE True"
    )
    values = "DATA.IMAGENET_MEAN [0.125,0.25,0.5] DATA.IMAGENET_STD [0.25,0.5,0.75]"
    parts = get_aspect(make_task(config.load(f"{common} {values} {words}".split()).values), Exportable).export_parts()
    resize, operation = CASES[words]
    assert parts.about["preprocessing"] == {
        **{"mode": "RGB", "upright": "turned as its EXIF orientation says", **resize},
        **{"interpolation": "lanczos, as PIL's LANCZOS", "divide_by": 255, "subtract": [0.125, 0.25, 0.5]},
        **{"divide_by_deviation": [0.25, 0.5, 0.75], "layout": "batch, channels, height, width"},
    }
    assert (parts.about["mean"], parts.about["standard_deviation"]) == ([0.125, 0.25, 0.5], [0.25, 0.5, 0.75])
    given = parts.example["input"]
    assert given.dtype == np.float32 and list(given.shape) == [1, 3, *resize["center_crop"]]
    pixels = given[0] * np.reshape([0.25, 0.5, 0.75], (3, 1, 1)) + np.reshape([0.125, 0.25, 0.5], (3, 1, 1))
    np.testing.assert_allclose(pixels * 255, np.rint(pixels * 255), atol=1e-3)
    picture = parts.example["picture"]
    assert picture.shape == (90, 120, 3) and picture.dtype == np.uint8
    for row, column in np.ndindex(90, 120):  # a disk of radius 30 on two ramps
        is_inside = np.hypot(row - 45, column - 60) < 30
        assert picture[row, column].tolist() == [2 * row, 2 * column, 220 * is_inside]
    if operation is None:
        assert parts.paddlex is None
        return
    assert parts.paddlex["PreProcess"]["transform_ops"] == [
        {"ResizeImage": {**operation, "backend": "pil", "interpolation": "LANCZOS4"}},
        {"CropImage": {"size": 48 if resize["center_crop"] == [48, 48] else [96, 48]}},
        {
            "NormalizeImage": {
                **{"channel_num": 3, "mean": [0.125, 0.25, 0.5], "std": [0.25, 0.5, 0.75], "scale": 1 / 255},
                "order": "",
            }
        },
        {"ToCHWImage": None},
    ]
    assert parts.paddlex["PostProcess"] == {"Topk": {"topk": 5}}
