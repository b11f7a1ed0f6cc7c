"""Kept fingerprints: made again when their file was changed, cut or is of others."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.leakage.fingerprints import _digest_points, compute_fingerprints


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
        return _digest_points(SimpleNamespace(xyz=np.float32(xyz), rgb=np.full((2, 3), color, np.uint8)))

    zeros = np.zeros((2, 3), np.float32)
    assert digest(zeros) == digest(-zeros)
    others = [digest(zeros, 1), digest([[0, 0, 0], [0, 0, 1]]), digest([[0, 0, 0], [0, 0, -1]])]
    assert len({digest(zeros), *others}) == 4
    assert digest([[0, 0, 1], [0, 0, 0]]) == others[1]
