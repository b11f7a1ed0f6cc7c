"""Which images are taken for copies of one another: by their hashes, and by the second look."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.samples.drawn_images import FILLED, draw
from support.samples.leaking_images import CHANGES, scene

from paddlevit_dist.extensions.leakage import comparing, perceptual


def bits_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.unpackbits(np.ascontiguousarray(one ^ other).view(np.uint8).reshape(*one.shape, 8), axis=-1).sum(-1)


def by_loop(queries: np.ndarray, others: np.ndarray) -> list[list[tuple[int, int]]]:
    """Distance and position of what is near, in plain Python."""
    found = []
    for query in queries:
        near = []
        for place, other in enumerate(others):
            distances = [bin(int(variant) ^ int(other)).count("1") for variant in query]
            if distances[0] <= comparing.FIRST and min(distances) <= comparing.NEAR:
                near.append((min(distances), place))
        found.append(sorted(near)[: comparing.NEAREST])
    return found


@pytest.mark.parametrize("number", [1, 15, 4109])  # the last is more than a tile
def test_the_compiled_comparison_finds_what_a_plain_loop_finds(number):
    generator = np.random.default_rng(number)
    queries = generator.integers(0, 2**64, (30, 9), dtype=np.uint64)
    thinned = generator.integers(0, 2**64, (3, 30, 8), dtype=np.uint64)
    queries[:, 1:] = queries[:, :1] ^ (thinned[0] & thinned[1] & thinned[2])  # an eighth of the bits differ
    others = generator.integers(0, 2**64, number, dtype=np.uint64)
    flips = generator.integers(0, 2**64, (3, number), dtype=np.uint64)
    others[: number // 2] = queries[np.arange(number // 2) % 30, 3] ^ (flips[0] & flips[1] & flips[2])[: number // 2]
    found, distances = comparing.find_nearest(queries, others)
    expected = by_loop(queries, others)
    assert number < 20 or max(map(len, expected)) == comparing.NEAREST  # more than are kept
    for row, near in enumerate(expected):
        assert distances[row, : len(near)].tolist() == [distance for distance, _ in near]
        assert (found[row, len(near) :] == -1).all()
        assert len(near) == comparing.NEAREST or sorted(found[row, : len(near)]) == sorted(place for _, place in near)


def test_the_hash_is_the_signs_of_the_lowest_cosines():
    luminance = perceptual.to_luminance(perceptual.make_thumbnail(scene(np.random.default_rng(0))))
    halved = luminance.reshape(32, 2, 32, 2).mean((1, 3))
    places = (np.arange(32) + 0.5) / 32
    coefficients = {
        (u, v): (halved * np.cos(np.pi * u * places)[:, None] * np.cos(np.pi * v * places)).sum()
        for u in range(12)
        for v in range(12)
    }
    lowest = sorted((u * u + v * v, (u, v)) for u, v in coefficients if u or v)[:64]
    bits = [coefficients[order] > 0 for _, order in lowest]
    number = int(np.packbits(bits).view("<u8")[0])
    (hashed,) = perceptual.compute_hashes(luminance, 1)
    assert bin(int(hashed) ^ number).count("1") <= 1  # one coefficient may be as good as 0


def test_a_brighter_image_has_the_same_hash():
    pixels = np.asarray(scene(np.random.default_rng(1)))
    dim = Image.fromarray((pixels * 0.7).astype(np.uint8))
    one, other = (
        perceptual.compute_hashes(perceptual.to_luminance(perceptual.make_thumbnail(p)), 1)
        for p in (Image.fromarray(pixels), dim)
    )
    assert bits_between(one, other) <= 2


def _photographs() -> list[Image.Image]:
    """Windows of the photographs that come with scikit-image and scikit-learn, where these are installed."""
    found = []
    for package, folder in (("skimage", "data"), ("sklearn", "datasets/images")):
        spec = importlib.util.find_spec(package)
        names = (
            "astronaut.png",
            "chelsea.png",
            "coffee.png",
            "rocket.jpg",
            "motorcycle_left.png",
            "china.jpg",
            "flower.jpg",
        )
        paths = [Path(spec.origin).parent / folder / name for name in names] if spec and spec.origin else []
        for image in (Image.open(path).convert("RGB") for path in paths if path.is_file()):
            width, height = image.width // 2, image.height // 2
            found += [image.crop((x, y, x + width, y + height)) for x in (0, width) for y in (0, height)]
    return found


def _drawn(number: int) -> list[Image.Image]:
    names = list(FILLED)
    return [draw(names[n % len(names)], np.random.default_rng([7, n])) for n in range(number)]


@pytest.mark.parametrize("kind", ["clouds", "shapes", "photographs"])
def test_copies_are_found_and_nothing_else(kind):
    generator = np.random.default_rng(5)
    images = {
        "clouds": lambda: [scene(generator) for _ in range(20)],
        "shapes": lambda: _drawn(20),
        "photographs": _photographs,
    }[kind]()
    if not images:
        pytest.skip("no photographs: scikit-image and scikit-learn are not installed")
    thumbs = [perceptual.make_thumbnail(image) for image in images]
    theirs = np.array([perceptual.compute_hashes(perceptual.to_luminance(thumb), 1)[0] for thumb in thumbs])
    made = [(index, change(image, generator)) for index, image in enumerate(images) for change in CHANGES.values()]
    copies = [perceptual.make_thumbnail(copy) for _, copy in made]
    queries = np.array([perceptual.compute_hashes(perceptual.to_luminance(copy), 9) for copy in copies])
    near, _ = comparing.find_nearest(queries, theirs)
    right = wrong = 0
    for (index, _), copy, row in zip(made, copies, near.tolist()):
        partners = [other for other in row if other >= 0 and perceptual.compute_similarity(copy, thumbs[other]).is_copy]
        right += index in partners
        wrong += sum(other != index for other in partners)
    assert right >= 0.95 * len(made)
    assert wrong <= 0.001 * len(made) * (len(images) - 1)


def test_the_same_shape_in_other_colors_is_no_copy():
    pixels = np.asarray(draw("heart", np.random.default_rng(3)))
    swapped = Image.fromarray(np.ascontiguousarray(255 - pixels[..., ::-1]))
    thumbs = [perceptual.make_thumbnail(image) for image in (Image.fromarray(pixels), swapped)]
    assert perceptual.compute_similarity(thumbs[0], thumbs[0]).is_copy
    assert not perceptual.compute_similarity(*thumbs).is_copy
