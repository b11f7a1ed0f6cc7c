"""ViTPose against transformers: heatmaps, gradients, decoding and crops, with sizes and seeds of the golden file.

The networks of published sizes take seconds and are of the night.
"""

import math
import re

import numpy as np
import paddle
import pytest
from support.networks import golden

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.images.keypoints.heatmaps.crops import (
    build_matrix,
    crop_image,
    fit_regions,
    invert_matrix,
    map_cells,
)
from paddlevit_dist.images.keypoints.heatmaps.decoding import decode_heatmaps
from paddlevit_dist.images.keypoints.heatmaps.network import HeatmapNetwork
from paddlevit_dist.images.keypoints.heatmaps.targets import flip_back, heatmap_losses

GOLDEN, ARRAYS = golden.description("vitpose"), golden.arrays("vitpose")
SEED, MODELS = GOLDEN["seed"], GOLDEN["models"]
PUBLISHED = 5_000_000  # numbers of a network that is of the night
SMALL = [name for name, about in MODELS.items() if sum(map(math.prod, about["state"].values())) < PUBLISHED]
EPSILON = 1e-12  # of transformers' norms; the authors' is 1e-6, which float32 does not tell
BOUNDS = {"float32": (1e-4, 1e-5, 1e-3), "float64": (1e-10, 1e-9, 1e-9)}  # maps; loss, gradients: relative
PAIRS = [
    (int(a), int(b)) for a, b in re.findall(r"\((\d+), (\d+)\)", GOLDEN["arrays"]["{model}/flipped_back(_samples)"])
]
REGIONS = ARRAYS["decode/centers"], ARRAYS["decode/scales"]


def read_numbers(before):
    """The whole numbers in parentheses after some words of the file's descriptions."""
    found = re.search(re.escape(before) + r"\(([\w, ]+)\)", " ".join(GOLDEN["arrays"].values()))
    return tuple(int(word) for word in found[1].split(", ") if word.isdigit())


PHOTO, CROP = read_numbers("photo_case"), read_numbers("crops ")[1:]  # height and width
KERNELS = [int(name.rpartition("_")[2]) for name in ARRAYS if name.startswith("decode/keypoints_kernel_")]
HEATMAP = read_numbers("heatmap_case")[2:]  # rows and columns


def sampled(values, count):
    values = np.ravel(values)
    return values[np.arange(count, dtype=np.int64) * 2654435761 % values.size]


def require_equal(name, kind, found, atol):
    expected = ARRAYS.get(f"{name}/{kind}")
    if expected is None:
        expected = ARRAYS[f"{name}/{kind}_samples"]
        found = sampled(found, len(expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=kind)


def build_network(about, dtype):
    config, before = about["backbone"], paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        return HeatmapNetwork(
            about["keypoints"],
            tuple(config["image_size"]),
            "vit_base_patch16_224",
            {"norm_epsilon": EPSILON} if dtype == "float64" else None,
            "simple" if about["simple_decoder"] else "classic",
            patch_size=config["patch_size"][0],
            embed_dim=config["hidden_size"],
            depth=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            mlp_ratio=config.get("mlp_ratio", 4),
        )
    finally:
        paddle.set_default_dtype(before)


def our_name(model, theirs, shape):
    return next(iter(model.key_maps["Hugging Face"]({theirs: np.zeros(shape)})))


def require_heatmaps_and_gradients(name, dtype):
    about, (atol, loss_bound, gradient_bound) = MODELS[name], BOUNDS[dtype]
    model = build_network(about, dtype)
    report = load_weights(model, golden.weights(SEED, about["state"]), strict=True)
    assert report.origin.startswith("Hugging Face") and not report.unexpected
    model.eval()
    height, width = about["backbone"]["image_size"]
    random = golden.recipe()._rng
    images = random(SEED, f"image:{height}x{width}").standard_normal((2, 3, height, width)).astype(np.float32)
    images = images.astype(dtype)
    maps = model(paddle.to_tensor(images))
    assert list(maps.shape) == about["heatmaps"]
    require_equal(name, "heatmaps", maps.numpy(), atol)
    mirror = np.arange(about["keypoints"])
    for one, other in PAIRS:
        mirror[[one, other]] = other, one
    with paddle.no_grad():
        mirrored = model(paddle.to_tensor(np.ascontiguousarray(images[..., ::-1])))
        require_equal(name, "flipped_back", flip_back(mirrored, mirror).numpy(), atol)
    target = random(SEED, f"target:{name}").random(maps.shape).astype(dtype)
    weight = (random(SEED, f"weight:{name}").random((2, about["keypoints"], 1, 1)) > 0.3)[:, :, 0, 0].astype(dtype)
    loss = heatmap_losses(maps, paddle.to_tensor(target), paddle.to_tensor(weight)).mean()
    np.testing.assert_allclose(float(loss), about["loss"], rtol=loss_bound)
    loss.backward()
    parameters = dict(model.named_parameters())
    for theirs, norm in about["gradient_norms"].items():
        gradient = parameters[our_name(model, theirs, about["state"][theirs])].grad.numpy()
        np.testing.assert_allclose(np.linalg.norm(gradient), norm, rtol=gradient_bound, err_msg=theirs)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("dtype", BOUNDS)
def test_golden_networks(name, dtype):
    require_heatmaps_and_gradients(name, dtype)


@pytest.fixture(scope="module")
def drawn():
    """The program that draws heatmaps, boxes and a photo."""
    return golden.program("recipe_keypoints.py")


def golden_regions(drawn):
    return fit_regions(np.array(drawn.box_case(SEED, len(REGIONS[0]), *PHOTO)), CROP)


def test_golden_regions(drawn):
    found = golden_regions(drawn)
    centers, scales = REGIONS  # stored in float32
    np.testing.assert_allclose(found[:, :2], centers, atol=1e-4)
    np.testing.assert_allclose(found[:, 2:] / 200, scales, atol=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_golden_decoding(drawn, kernel):
    expected = ARRAYS[f"decode/keypoints_kernel_{kernel}"]
    persons, points, _ = expected.shape
    maps = drawn.heatmap_case(SEED, persons, points, *HEATMAP)
    cells, scores = decode_heatmaps(maps, kernel)
    np.testing.assert_allclose(scores, ARRAYS["decode/scores"][..., 0], rtol=0, atol=1e-12)  # NumPys round differently
    found = map_cells(cells, golden_regions(drawn), HEATMAP)
    is_there = scores > 0  # transformers' places of other points are outside of the map
    np.testing.assert_allclose(found[is_there], expected[is_there], rtol=0, atol=1e-4)


def test_golden_crops(drawn):
    photo = np.ascontiguousarray(drawn.photo_case(SEED, *PHOTO).transpose(2, 0, 1))
    for region, expected in zip(golden_regions(drawn), ARRAYS["crop/pixels_samples"]):
        matrix = build_matrix(region, CROP)
        found = crop_image(photo, matrix, CROP)
        inverse, (rows, columns) = invert_matrix(matrix), np.indices(CROP)
        x, y = columns * inverse[0, 0] + inverse[0, 2], rows * inverse[1, 1] + inverse[1, 2]
        places = np.stack([x, PHOTO[1] - 1 - x, y, PHOTO[0] - 1 - y]).min(axis=0)  # pixels inside of the border
        places = sampled(np.broadcast_to(places, found.shape), len(expected))
        is_compared = (places >= 0) | (places <= -1)
        assert is_compared.mean() > 0.95
        difference = sampled(found, len(expected)).astype(np.float64) - expected
        assert np.abs(difference[is_compared]).max() <= 1
