"""Images as an evaluation makes them in each crop mode, for squares and rectangles, against timm's own code.

timm's file of transforms needs torchvision; its functions run here on Pillow images, with a few lines in its place.
"""

import ast
import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageOps

from paddlevit_dist.images.transforms.crops import EvaluationTransform

SPEC = importlib.util.find_spec("timm")
MEAN, FILL = (0.1, 0.502, 0.8), (26, 128, 204)
TORCHVISION = SimpleNamespace(
    get_dimensions=lambda image: (len(image.getbands()), image.height, image.width),
    resize=lambda image, size, interpolation: image.resize(tuple(size)[::-1], interpolation),
    pad=lambda image, sides, fill, padding_mode: ImageOps.expand(image, tuple(sides), tuple(fill)),
    crop=lambda image, top, left, height, width: image.crop((left, top, left + width, top + height)),
)


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def timms_functions():
    """timm's ``ResizeKeepRatio`` and ``center_crop_or_pad``."""
    file = Path(SPEC.submodule_search_locations[0], "data", "transforms.py")
    names = ("ResizeKeepRatio", "center_crop_or_pad", "_setup_size")
    body = [node for node in ast.parse(file.read_text()).body if getattr(node, "name", None) in names]
    filters = {name.lower(): value for name, value in Image.Resampling.__members__.items()}
    numbers, torch = SimpleNamespace(Number=int), SimpleNamespace(Tensor=object)
    space = {"F": TORCHVISION, "math": math, "numbers": numbers, "torch": torch}
    space |= {"str_to_interp_mode": filters.get, "Sequence": tuple}
    tree = ast.Module(body=body, type_ignores=[])
    for node in ast.walk(tree):
        if isinstance(node, (ast.arg, ast.FunctionDef)):
            node.annotation = node.returns = None
    exec(compile(tree, str(file), "exec"), space)
    return space["ResizeKeepRatio"], space["center_crop_or_pad"]


@pytest.mark.skipif(SPEC is None, reason="timm is not installed")
@pytest.mark.parametrize("crop_pct", [1.0, 0.875, 0.61])
@pytest.mark.parametrize("size", [(30, 44), (45, 28), (33, 33)], ids=str)
@pytest.mark.parametrize("interpolation", ["bicubic", "lanczos"])
def test_borders_are_timms(size, crop_pct, interpolation):
    keep_ratio, crop_or_pad = timms_functions()
    resize = keep_ratio(tuple(math.floor(side / crop_pct) for side in size), 1.0, interpolation)
    transform = EvaluationTransform(size, crop_pct, 3, interpolation, "border", FILL)
    for shape in ((90, 41), (41, 90), (50, 50), (31, 44), (200, 7)):
        expected = crop_or_pad(resize(noise(*shape)), size, fill=[round(255 * value) for value in MEAN])
        np.testing.assert_array_equal(
            transform(noise(*shape), None), np.asarray(expected).transpose(2, 0, 1), strict=True
        )


@pytest.mark.skipif(SPEC is None, reason="timm is not installed")
@pytest.mark.parametrize("crop_pct", [1.0, 0.875])
def test_a_rectangle_is_covered_as_in_timm(crop_pct):
    keep_ratio, crop_or_pad = timms_functions()
    for size in ((30, 44), (45, 28), (3, 50)):
        resize = keep_ratio(tuple(math.floor(side / crop_pct) for side in size), 0.0, "bilinear")
        for shape in ((90, 41), (41, 90), (50, 50), (44, 30), (200, 7)):
            expected = crop_or_pad(resize(noise(*shape)), size)  # never smaller, so nothing is padded
            found = EvaluationTransform(size, crop_pct, 3, "bilinear")(noise(*shape), None)
            np.testing.assert_array_equal(found, np.asarray(expected).transpose(2, 0, 1), strict=True)


@pytest.mark.parametrize(
    ("size", "resized", "box"), [(28, (32, 32), (2, 2, 30, 30)), ((28, 42), (48, 32), (3, 2, 45, 30))]
)
def test_squash_resizes_to_the_crops_proportions_and_crops_the_center(size, resized, box):
    found = EvaluationTransform(size, 0.875, crop_mode="squash")(noise(100, 40), None)
    expected = noise(100, 40).resize(resized, Image.Resampling.BICUBIC).crop(box)
    np.testing.assert_array_equal(found, np.asarray(expected).transpose(2, 0, 1), strict=True)


def test_only_images_with_borders_may_be_smaller_than_their_crop():
    generator = np.random.default_rng(0)
    smaller = {"center": 0, "squash": 0, "border": 0}
    for mode in smaller:
        for height, width, rows, columns in generator.integers(1, 400, (500, 4)).tolist():
            scale = float(generator.choice([0.7, 0.9, 1.0, 1.15]))
            crop_pct = scale * float(generator.choice([0.61, 0.875, 0.95, 1.0]))
            for size in (rows, (rows, columns)):
                transform = EvaluationTransform(size, crop_pct, crop_mode=mode, scale=scale)
                across, down = transform.resized((width, height))
                smaller[mode] += across < (columns if isinstance(size, tuple) else rows) or down < rows
    assert smaller["center"] == smaller["squash"] == 0 < smaller["border"]


def test_the_whole_image_is_in_the_middle_of_its_borders():
    """81 x 40 pixels in a crop 27 high and 36 wide: 36 x 18 of them (17.8), and 9 rows of borders: 4 above, 5 below."""
    found = EvaluationTransform((27, 36), 1.0, 3, "lanczos", "border", FILL)(noise(81, 40), None)
    fill = np.array(FILL, np.uint8)[:, None, None]
    assert (found[:, :4] == fill).all() and (found[:, 22:] == fill).all()
    expected = noise(81, 40).resize((36, 18), Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(found[:, 4:22], np.asarray(expected).transpose(2, 0, 1), strict=True)


def test_borders_of_gray_images_have_the_color_of_the_mean():
    gray = noise(60, 20).convert("L")
    colored = EvaluationTransform(16, 1.0, 3, crop_mode="border", fill=FILL)(gray, None)
    assert colored[:, 0, 0].tolist() == list(FILL)
    plain = EvaluationTransform(16, 1.0, 1, crop_mode="border", fill=77)(gray, None)
    assert plain.shape == (1, 16, 16) and plain[0, 0, 0] == 77
    np.testing.assert_array_equal(colored[0, 5:10], plain[0, 5:10], strict=True)
