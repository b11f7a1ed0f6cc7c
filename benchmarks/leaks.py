"""How long it takes to compare many hashes of images, and which copies are found among photographs.

Usage: python benchmarks/leaks.py [--val 50000] [--train 1280000] [--folder IMAGES] [--kinds 12]

The hashes are random, a thousandth of those of val near one of train. The rates are those of windows of the photographs
that come with scikit-image and scikit-learn, or of the images in a folder, each changed in seven ways. A false pair
is one of a changed image and another than its own; images of one folder that are alike count as false too.

``--kinds`` is the number of images drawn of each kind of ``alike_pictures.py``. The table counts pairs of different
images, and images with their changed copies, whose thumbnails are alike, and those whose pixels prove a copy.
"""

import argparse
import io
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import alike_pictures
from photographs import sources
from smallest import sized

from paddlevit_dist.core.launch.devices import cpu_cores
from paddlevit_dist.extensions.leakage import comparing, perceptual, registration

WINDOW = 400, 300  # pixels
_SOUGHT = 7  # first changes of ``alike_pictures``, whose copies the search is for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--val", type=int, default=sized(50_000, 20))
    parser.add_argument("--train", type=int, default=sized(1_280_000, 40))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kinds", type=int, default=sized(12, 3))
    options = parser.parse_args()
    found = {"cores": cpu_cores(), **compare(options.val, options.train)}
    files = sorted(options.folder.rglob("*.*")) if options.folder else sources()
    if files:
        found.update(rates(list(windows(files))))
    found.update(compare_kinds(options.kinds))
    print("RESULT", json.dumps(found))


def compare_kinds(number: int) -> dict[str, float]:
    """Rates among drawn images of kinds whose members look alike; prints a row for each kind and each change."""
    generator = np.random.default_rng(0)
    different: dict[str, np.ndarray] = {}
    copies = {name: np.zeros(3, int) for name in alike_pictures.CHANGES}
    for kind, draw in alike_pictures.KINDS.items():
        images = [draw(generator) for _ in range(number)]
        different[kind] = _count_alike(list(itertools.combinations(images, 2)))
        for name, change in alike_pictures.CHANGES.items():
            copies[name] += _count_alike([(change(image, generator), image) for image in images[: -(-number // 2)]])
    print("| pairs | number | look alike | proven |\n|---|---|---|---|")
    for heading, counts in [*((f"different: {kind}", each) for kind, each in different.items()), *copies.items()]:
        print(f"| {heading} | {counts[2]} | {counts[0]} | {counts[1]} |", flush=True)
    others, sought = sum(different.values()), sum(list(copies.values())[:_SOUGHT])
    return {
        "different_alike": round(others[0] / others[2], 4),
        "different_proven": round(others[1] / others[2], 4),
        "copies_proven": round(sought[1] / sought[2], 4),
    }


def _count_alike(pairs: list[tuple[Image.Image, Image.Image]]) -> np.ndarray:
    """Count the pairs that look alike, as the search decides it, those that are proven copies, and all."""
    alike = proven = 0
    for pair in pairs:
        thumbs = [perceptual.make_thumbnail(image) for image in pair]
        first, second = (
            perceptual.compute_hashes(perceptual.to_luminance(thumb), perceptual.NUM_VARIANTS) for thumb in thumbs
        )
        if comparing.find_nearest(first[None], second[:1])[0][0, 0] < 0:
            continue
        if perceptual.compute_similarity(*thumbs).is_copy:
            alike += 1
            proven += registration.compare_registered(*map(registration.make_picture, pair)).is_proof
    return np.array([alike, proven, len(pairs)])


def compare(val: int, train: int) -> dict[str, float]:
    """Seconds for all pairs of random hashes."""
    generator = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        return generator.integers(0, 2**64, shape, dtype=np.uint64)

    queries, others = random(val, perceptual.NUM_VARIANTS), random(train)
    for variant in range(1, perceptual.NUM_VARIANTS):
        queries[:, variant] = queries[:, 0] ^ (random(val) & random(val) & random(val))
    copies = max(1, val // 1000)
    others[:copies] = queries[:copies, 1]
    comparing.find_nearest(queries[:1], others[:1])  # compiles
    started, spent = time.perf_counter(), time.process_time()
    found, _ = comparing.find_nearest(queries, others)
    assert np.array_equal(found[:copies, 0], np.arange(copies))
    seconds, spent = time.perf_counter() - started, time.process_time() - spent
    print(f"{val:,} x {train:,} hashes: {seconds:.1f} s, {spent:.1f} s of processors")
    return {"val": val, "train": train, "seconds": round(seconds, 1), "cpu_seconds": round(spent, 1)}


def windows(files: list[Path]) -> Iterator[Image.Image]:
    """Parts of images that do not overlap."""
    for file in files:
        image = Image.open(file).convert("RGB")
        for top in range(0, max(image.height - WINDOW[1], 0) + 1, WINDOW[1]):
            for left in range(0, max(image.width - WINDOW[0], 0) + 1, WINDOW[0]):
                yield image.crop((left, top, *np.minimum([left + WINDOW[0], top + WINDOW[1]], image.size)))


def stored(image: Image.Image, kind: str, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, kind, quality=quality)
    return Image.open(file)


def cropped(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    width, height = round(image.width * 0.95), round(image.height * 0.95)
    left, top = generator.integers(0, [image.width - width, image.height - height], endpoint=True).tolist()
    return image.crop((left, top, left + width, top + height))


Change = Callable[[Image.Image, np.random.Generator], Image.Image]
CHANGES: dict[str, Change] = {
    "half size": lambda image, _: image.resize((image.width // 2, image.height // 2)),
    "square": lambda image, _: image.resize((224, 224)),
    "jpeg 30": lambda image, _: stored(image, "JPEG", 30),
    "webp 50": lambda image, _: stored(image, "WEBP", 50),
    "brighter": lambda image, _: ImageEnhance.Brightness(image).enhance(1.3),
    "darker": lambda image, _: ImageEnhance.Brightness(image).enhance(0.7),
    "cropped 5 %": cropped,
}


def rates(images: list[Image.Image]) -> dict[str, float]:
    """The share of copies that are found, for each change, and of pairs that are none and are taken for one."""
    generator = np.random.default_rng(0)
    thumbs = [perceptual.make_thumbnail(image) for image in images]
    told = [n for n, thumb in enumerate(thumbs) if perceptual.to_luminance(thumb).std() >= perceptual.PLAIN]
    theirs = np.array([perceptual.compute_hashes(perceptual.to_luminance(thumbs[n]), 1)[0] for n in told])
    found, false = {}, 0
    for name, change in CHANGES.items():
        copies = [perceptual.make_thumbnail(change(images[n], generator)) for n in told]
        hashed = np.array(
            [perceptual.compute_hashes(perceptual.to_luminance(copy), perceptual.NUM_VARIANTS) for copy in copies]
        )
        hits = 0
        for row, (copy, near) in enumerate(zip(copies, comparing.find_nearest(hashed, theirs)[0].tolist())):
            partners = [p for p in near if p >= 0 and perceptual.compute_similarity(copy, thumbs[told[p]]).is_copy]
            hits += row in partners
            false += sum(partner != row for partner in partners)
        found[name] = round(hits / len(told), 4)
    pairs = len(CHANGES) * len(told) * (len(told) - 1)
    print(
        f"{len(told)} images of {len(images)} (the others are plain), found: {found}; false pairs: {false} of {pairs:,}"
    )
    mean = round(sum(found.values()) / len(found), 4)
    return {"pictures": len(told), "found": mean, "found_least": min(found.values()), "false_share": false / pairs}


if __name__ == "__main__":
    main()
