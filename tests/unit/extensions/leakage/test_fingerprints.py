"""Kept fingerprints: made again when their file was changed, cut or is of others."""

import hashlib
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.extensions.leakage import fingerprints, perceptual
from paddlevit_dist.extensions.leakage.fingerprints import (
    EXACT,
    HASHED,
    UNREADABLE,
    compute_fingerprints,
    digest_points,
)
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.images.data.reading import ReadConfig


class ThreeImages(ImageDataset):
    def __init__(self, folder):
        self.paths, self.reading = [str(folder / f"{number}.png") for number in range(3)], ReadConfig()
        for number, path in enumerate(self.paths):
            Image.fromarray(np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(path)

    def __len__(self):
        return len(self.paths)

    def describe(self, index):
        return self.paths[index]


@pytest.fixture
def dataset(tmp_path):
    return ThreeImages(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:-20] + bytes(4) + content[-16:], lambda content: content[:90], lambda content: b""],
    ids=["changed", "cut", "empty"],
)
def test_damaged_fingerprints_are_made_again(dataset, tmp_path, damage):
    (tmp_path / "cache").mkdir()
    first = compute_fingerprints(dataset, "train", 1, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("fingerprints-*.npy")
    content = file.read_bytes()
    file.write_bytes(damage(content))
    again = compute_fingerprints(dataset, "train", 1, tmp_path / "cache")
    for one, other in zip(first, again):
        np.testing.assert_array_equal(one, other)
    assert file.read_bytes() == content


def test_a_negative_zero_is_a_zero_and_nothing_else_is():
    def digest(xyz, color=0):
        return digest_points(SimpleNamespace(xyz=np.float32(xyz), rgb=np.full((2, 3), color, np.uint8)))

    zeros = np.zeros((2, 3), np.float32)
    assert digest(zeros) == digest(-zeros)
    others = [digest(zeros, 1), digest([[0, 0, 0], [0, 0, 1]]), digest([[0, 0, 0], [0, 0, -1]])]
    assert len({digest(zeros), *others}) == 4
    assert digest([[0, 0, 1], [0, 0, 0]]) == others[1]
    bare = digest_points(SimpleNamespace(xyz=[[2, 0, 3], [5, 4, 1], [1, 9, 3]]))
    rows = np.float32([[5, 4, 1], [2, 0, 3], [1, 9, 3]])  # by the last column, then the one before it
    assert bare == int.from_bytes(hashlib.blake2b(rows.tobytes(), digest_size=8).digest(), "little")


def test_large_jpegs_are_decoded_small_for_hashes_only(dataset, tmp_path, monkeypatch):
    sizes, convert = [], fingerprints.convert
    monkeypatch.setattr(
        fingerprints, "convert", lambda image, *given: sizes.append(image.size) or convert(image, *given)
    )
    dataset.paths = [str(tmp_path / "large.jpg")]
    Image.fromarray(noise(512, 512)).resize((512, 1024)).save(dataset.paths[0])
    compute_fingerprints(dataset, "train", 1, None)
    assert list(fingerprints.read_smaller(perceptual.make_thumbnail, dataset, [0], "train")) == [0]
    assert fingerprints.read_pixels(dataset, 0).shape == (1024, 512, 3)
    assert sizes == [(256, 512), (256, 512), (512, 1024)]


class Drawn(ImageDataset):
    """Images in memory, the second of which cannot be read."""

    reading = None

    def __init__(self, images, kind="image"):
        self.images, self.kind = images, kind

    def __len__(self):
        return len(self.images)

    def read(self, index):
        if self.images[index] is None:
            raise UserError("torn")
        return Image.fromarray(self.images[index]), 0


def noise(height, width, spread=256):
    return np.random.default_rng(height).integers(0, spread, (height, width, 3), dtype=np.uint8)


def test_small_narrow_plain_and_drawn_images_are_compared_pixel_by_pixel():
    images = [noise(40, 32), None, noise(31, 90), noise(90, 31), noise(64, 64, 4), np.zeros((40, 40, 3), np.uint8)]
    found = compute_fingerprints(Drawn(images), "val", 2, None)
    assert found.state.tolist() == [HASHED, UNREADABLE, EXACT, EXACT, EXACT, EXACT] and found.num_read == 6
    assert (found.content != 0).tolist() == [False, False, True, True, True, True] and not found.stored.any()
    assert found.hashes.shape == (6, 2) and found.hashes[0].all() and not found.hashes[1:].any()
    assert len(set(found.content.tolist())) == 5
    assert compute_fingerprints(Drawn(images[:1], kind="glyph"), "val", 2, None).state.tolist() == [EXACT]
    turned = compute_fingerprints(Drawn([images[2], images[2].reshape(90, 31, 3)]), "val", 1, None)
    assert turned.content[0] != turned.content[1]  # the same bytes in another shape


def test_a_time_limit_reads_samples_in_a_fixed_random_order(monkeypatch, tmp_path):
    orders = []

    def run_in_threads(function, dataset, order, label, number, seconds):
        orders.append((order, label, number, seconds))
        return [function(dataset, index) for index in order[:3]]

    monkeypatch.setattr(fingerprints, "run_in_threads", run_in_threads)
    dataset = Drawn([noise(8 + number, 8) for number in range(7)])
    drawn = np.random.default_rng(0).permutation(7).tolist()
    found = compute_fingerprints(dataset, "train", 1, tmp_path, seconds=2.0)
    assert orders == [(drawn, "train", 7, 2.0)] and sorted(drawn[:3]) == np.flatnonzero(found.state).tolist()
    assert found.num_read == 3 and not list(tmp_path.iterdir())  # images in memory have no cache
    compute_fingerprints(dataset, "train", 1, None)
    assert orders[1] == ([*range(7)], "train", 7, float("inf"))


def test_kept_fingerprints_are_of_these_files_and_this_number_of_variants(dataset, tmp_path):
    def keep(variants):
        compute_fingerprints(dataset, "train", variants, tmp_path / "cache")
        return {file.name for file in (tmp_path / "cache").iterdir()}

    (tmp_path / "cache").mkdir()
    first = keep(1)
    assert all(re.fullmatch(r"fingerprints-[0-9a-f]{16}\.npy", name) for name in first)
    assert len(first) == 1 and keep(1) == first and len(keep(9)) == 2
    os.utime(dataset.paths[1], ns=(1, 1))
    assert len(keep(1)) == 3
    file = fingerprints.find_cache_file(dataset, 1, tmp_path / "cache")
    before = file.stat().st_mtime_ns
    compute_fingerprints(dataset, "train", 1, tmp_path / "cache")
    assert file.stat().st_mtime_ns == before  # nothing was missing
    for other in (np.zeros(3, np.uint8), np.zeros(2, np.load(file).dtype)):
        fingerprints.write_array(file, other)
        assert compute_fingerprints(dataset, "train", 1, tmp_path / "cache").num_read == 3
    os.unlink(dataset.paths[2])
    assert fingerprints.find_cache_file(dataset, 1, tmp_path / "cache") is None


def test_thumbnails_of_images_that_have_become_unreadable_are_left_out():
    images = [noise(64, 64), None, noise(128, 64)]
    found = fingerprints.read_smaller(perceptual.make_thumbnail, Drawn(images), [2, 1, 0], "val")
    assert list(found) == [2, 0]
    np.testing.assert_array_equal(found[0], images[0])
    np.testing.assert_array_equal(fingerprints.read_pixels(Drawn(images), 2), images[2])
