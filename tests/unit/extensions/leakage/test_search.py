"""What is found of data sets, what is kept of them, and what commands make of it."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps
from support.samples.leaking_images import CHANGES, DrawnImages, scene, write_leaking
from support.trainings.runs import IMAGES

from benchmarks.alike_pictures import KINDS
from paddlevit_dist import UserError
from paddlevit_dist.core.commands import inspect_data
from paddlevit_dist.extensions.leakage import comparing, fingerprints, formatting, search
from paddlevit_dist.extensions.leakage.search import find_copies
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scenes import SceneDataset
from paddlevit_dist.points.shapes.solids import SyntheticSolids
from paddlevit_dist.volumes.dataset import VolumeDataset
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.segmentation.dataset import SegmentedVolumes
from paddlevit_dist.volumes.store import DecodedVolume


def find_changed(kind: str, seed: int, copies: int) -> tuple[float, float]:
    """The shares of changed copies found with their originals, and of all originals with their changed copies.

    As many images again are of nothing else; each that is found with another than its own counts as an error.
    """
    generator = np.random.default_rng(seed)
    originals = [scene(generator, (96, 72)) for _ in range(copies)]
    strangers = [scene(generator, (96, 72)) for _ in range(copies)]
    order = generator.permutation(2 * copies)
    given = [*(CHANGES[kind](image, generator) for image in originals), *strangers]
    val, train = DrawnImages([given[place] for place in order]), DrawnImages(originals)
    found = [(pair.val, pair.train) for pair in find_copies(val, train, None).pairs]
    back = [(pair.train, pair.val) for pair in find_copies(train, val, None).pairs]
    assert all(order[changed] == original for changed, original in found + back)
    return len(found) / copies, len(back) / copies


class Files(ImageDataset):
    """Image files in the order of their names."""

    def __init__(self, folder: Path) -> None:
        from paddlevit_dist.images.data.reading import ReadConfig

        self.paths = sorted(map(str, folder.rglob("*.*")))
        self.reading = ReadConfig()

    def __len__(self) -> int:
        return len(self.paths)

    def describe(self, index: int) -> str:
        return self.paths[index]


class Rooms(SceneDataset):
    def __init__(self, seeds, order) -> None:
        self.seeds, self.order = seeds, order

    def __len__(self) -> int:
        return len(self.seeds)

    def read(self, index: int) -> Scene:
        generator = np.random.default_rng(self.seeds[index])
        points = generator.normal(size=(50, 3)).astype(np.float32), generator.integers(0, 256, (50, 3), np.uint8)
        xyz, rgb = (part[:: self.order] for part in points)
        return Scene(xyz, rgb, np.zeros(50, np.int16), np.zeros(50, np.int16), f"room {index}")


class Scans(VolumeDataset):
    axes, names, spacing = (0, 1, 2), ["ear"], (1.0, 1.0, 1.0)

    def __init__(self, seeds) -> None:
        self.seeds = seeds

    def __len__(self) -> int:
        return len(self.seeds)

    def read(self, index: int):
        array = np.random.default_rng(self.seeds[index]).integers(-1000, 2000, (4, 5, 6)).astype(np.int16)
        array = array.transpose(self.axes)
        return DecodedVolume(array, VolumeGeometry(array.shape, np.eye(4)), (0.0, 1.0)), np.zeros((1, 3))


def test_each_copy_is_found_with_its_partner_and_kind(tmp_path, monkeypatch):
    told, sizes, find_nearest = write_leaking(tmp_path), [], search.find_nearest
    monkeypatch.setattr(search, "find_nearest", lambda *given: sizes.append(len(given[0])) or find_nearest(*given))
    val, train = Files(tmp_path / "val"), Files(tmp_path / "train")
    found = search.find_copies(val, train, None)
    assert sizes == [15 - found.count("same file")] and found.count("same file") > 0  # equal ones are known
    assert {val.describe(pair.val) for pair in found.pairs} == set(told)
    for pair in found.pairs:
        path = Path(val.describe(pair.val))
        assert int(path.stem.partition("_")[2]) == int(Path(train.describe(pair.train)).stem)
        assert pair.kind == (told[str(path)] if told[str(path)].startswith("same") else "near duplicate")
    assert found.compared == found.totals == (15, 20) and found.unreadable == 0


def test_small_and_plain_images_are_compared_pixel_by_pixel(tmp_path):
    generator = np.random.default_rng(0)
    for folder in ("val", "train"):
        (tmp_path / folder).mkdir()
    pixels = generator.integers(0, 256, (16, 16, 3), np.uint8)
    plain = np.full((80, 80, 3), 90, np.uint8)
    nearly = pixels.copy()
    nearly[0, 0, 0] ^= 1
    for split, name, image in (
        ("val", "a.png", pixels), ("train", "b.bmp", pixels), ("val", "c.png", plain), ("train", "d.bmp", plain),
        ("val", "e.png", nearly), ("train", "f.png", plain + 1),
    ):  # fmt: skip
        Image.fromarray(image).save(tmp_path / split / name)
    found = search.find_copies(Files(tmp_path / "val"), Files(tmp_path / "train"), None)
    assert [(pair.val, pair.train, pair.kind) for pair in found.pairs] == [
        (0, 0, "same content"),
        (1, 1, "same content"),
    ]


def test_an_image_that_cannot_be_read_is_counted(tmp_path):
    write_leaking(tmp_path, train=9, val=0)
    (tmp_path / "val" / "a" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    found = search.find_copies(Files(tmp_path / "val"), Files(tmp_path / "train"), None)
    assert found.unreadable == 1 and len(found.pairs) == 9
    assert "1 cannot be read" in found.summary("val", "pictures")


def test_scenes_are_equal_whatever_the_order_of_their_points():
    found = search.find_copies(Rooms([1, 2, 3], 1), Rooms([5, 3, 1, 1], -1), None)
    assert [(pair.val, pair.train, pair.kind) for pair in found.pairs] == [
        (0, 2, "same content"),
        (2, 1, "same content"),
    ]


def test_in_an_empty_training_set_is_no_copy(tmp_path):
    found = search.find_copies(Rooms([1, 2, 3], 1), Rooms([], 1), None)
    assert (found.pairs, found.compared, found.totals) == ([], (3, 0), (3, 0))
    scene(np.random.default_rng(0)).save(tmp_path / "a.png")
    found = search.find_copies(Files(tmp_path), Files(tmp_path / "empty"), None)
    assert (found.pairs, found.compared) == ([], (1, 0))


def test_volumes_are_equal_by_their_values():
    found = search.find_copies(Scans([1, 2]), Scans([7, 2]), None)
    assert [(pair.val, pair.train) for pair in found.pairs] == [(1, 1)]
    turned = Scans([7, 2])
    turned.axes = (1, 2, 0)
    assert search.find_copies(Scans([1, 2]), turned, None).pairs == found.pairs


class LabeledScans(SegmentedVolumes):
    axes, spacing, __init__, __len__ = Scans.axes, Scans.spacing, Scans.__init__, Scans.__len__
    channels = ["T1", "T2"]

    def read(self, index: int):
        return [Scans.read(self, index)[0]] * 2, None


def test_volumes_with_label_maps_and_shapes_are_compared_too():
    found = search.find_copies(LabeledScans([1, 2]), LabeledScans([7, 2]), None)
    assert [(pair.val, pair.train) for pair in found.pairs] == [(1, 1)]
    assert not search.find_copies(SyntheticSolids(9, "val"), SyntheticSolids(9, "train"), None).pairs
    assert len(search.find_copies(SyntheticSolids(9, "val"), SyntheticSolids(9, "val"), None).pairs) == 9


def test_what_holds_something_else_is_refused():
    with pytest.raises(UserError, match="contains neither images nor scenes nor volumes"):
        search.find_copies([1], [2], None)


def test_a_second_look_reads_no_image_again_unless_it_has_changed(tmp_path, monkeypatch):
    write_leaking(tmp_path / "data")
    train = Files(tmp_path / "data" / "train")
    first = fingerprints.compute_fingerprints(train, "train", 1, tmp_path)
    looked = []
    plain = fingerprints.compute_row
    monkeypatch.setattr(fingerprints, "compute_row", lambda *given: looked.append(given) or plain(*given))
    second = fingerprints.compute_fingerprints(train, "train", 1, tmp_path)
    assert not looked and all(np.array_equal(a, b) for a, b in zip(first, second))
    scene(np.random.default_rng(9)).save(train.describe(3))
    third = fingerprints.compute_fingerprints(train, "train", 1, tmp_path)
    assert looked and third.hashes[3] != first.hashes[3]


def test_images_that_have_become_unreadable_are_no_near_duplicates(tmp_path):
    write_leaking(tmp_path / "data")
    val, train = Files(tmp_path / "data" / "val"), Files(tmp_path / "data" / "train")
    first = search.find_copies(val, train, tmp_path)
    near = [pair for pair in first.pairs if pair.kind == "near duplicate"]
    for path in (val.describe(near[0].val), train.describe(near[-1].train)):
        before = os.stat(path)
        Path(path).write_bytes(bytes(before.st_size))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the fingerprints are still used
    left = [pair for pair in near if pair.val != near[0].val and pair.train != near[-1].train]
    assert 0 < len(left) <= len(near) - 2
    second = search.find_copies(val, train, tmp_path)
    assert second.pairs == [pair for pair in first.pairs if pair not in near or pair in left]
    assert second.compared == first.compared and second.unreadable == 0


def test_an_interrupted_look_goes_on_where_it_was(tmp_path, monkeypatch):
    write_leaking(tmp_path / "data")
    train = Files(tmp_path / "data" / "train")
    plain, looked = fingerprints.run_in_threads, []

    def interrupted(*arguments):
        for number, row in enumerate(plain(*arguments)):
            if number == 7:
                raise KeyboardInterrupt
            yield row

    monkeypatch.setattr(fingerprints, "run_in_threads", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fingerprints.compute_fingerprints(train, "train", 1, tmp_path)
    monkeypatch.setattr(fingerprints, "run_in_threads", lambda *given: looked.extend(given[2]) or plain(*given))
    found = fingerprints.compute_fingerprints(train, "train", 1, tmp_path)
    assert looked == list(range(7, 20)) and found.num_read == 20


def test_inspect_data_looks_for_some_seconds_and_says_how_far_it_came(tmp_path, monkeypatch, capsys):
    leaking = tmp_path / "leaking"
    write_leaking(leaking, train=24, val=7)
    monkeypatch.setattr(formatting, "SECONDS", 0.0)
    words = [*IMAGES, f"-data_path={leaking}", f"-output={tmp_path}", "DATA.CACHE_FOLDER", str(tmp_path / "cache")]
    inspect_data.run(words)
    *_, found, further = capsys.readouterr().out.splitlines()
    assert found.endswith("compared: 0 of 16 of val with 0 of 24 of train")
    assert further == "to compare all samples, run inspect leaks with the same flags"
    formatting.run(words)
    assert "leaks: 9 of 16 images of val are also in train (1 same file" in capsys.readouterr().out


@pytest.mark.parametrize("kind", CHANGES)
def test_copies_of_each_kind_are_found_with_their_originals_and_these_with_them(kind):
    assert find_changed(kind, seed=0, copies=5) == (1.0, 1.0)


def test_mirrored_copies_are_not_found_as_the_guide_says():
    images = [scene(np.random.default_rng(seed), (96, 72)) for seed in range(6)]
    for turn in (ImageOps.mirror, ImageOps.flip):
        turned = DrawnImages([turn(image) for image in images])
        assert search.find_copies(turned, DrawnImages(images), None).pairs == []


@pytest.mark.parametrize("at_once", [1, 3, 4096])
def test_pairs_are_the_same_however_many_are_compared_at_once(monkeypatch, at_once):
    monkeypatch.setattr(search, "_CHUNK", at_once)
    sizes, read = [], search.read_smaller
    monkeypatch.setattr(search, "read_smaller", lambda *given: sizes.append(len(given[2])) or read(*given))
    monkeypatch.setattr(comparing, "_CHUNK", at_once)
    generator = np.random.default_rng(3)
    images = [scene(generator, (64, 48)) for _ in range(8)]
    order = [3, 7, 0, 5, 1, 6, 2]  # not its own inverse, and one is left out
    copies = DrawnImages([image.resize((90, 70), Image.Resampling.BICUBIC) for image in images])
    pairs = search.find_copies(copies, DrawnImages([images[place] for place in order]), None).pairs
    assert [(pair.val, pair.train) for pair in pairs] == sorted((place, n) for n, place in enumerate(order))
    assert max(sizes) <= at_once and sum(sizes) >= 14


@pytest.mark.parametrize("is_first", [False, True])
def test_of_several_copies_the_most_similar_is_told(is_first):
    original = scene(np.random.default_rng(5), (96, 72))
    changed = CHANGES["jpeg"](original, None), CHANGES["brighter"](original, None)
    one, other = changed[::-1] if is_first else changed
    found = [search.find_copies(DrawnImages([original]), DrawnImages([copy]), None).pairs[0] for copy in (one, other)]
    better = int(found[1].likeness > found[0].likeness)
    assert found[0].likeness != found[1].likeness and {pair.kind for pair in found} == {"near duplicate"}
    (pair,) = search.find_copies(DrawnImages([original]), DrawnImages([one, other]), None).pairs
    assert (pair.train, pair.likeness) == (better, found[better].likeness)
    (pair,) = search.find_copies(DrawnImages([original]), DrawnImages([one, original, other]), None).pairs
    assert (pair.train, pair.kind, pair.likeness) == (1, "same content", 1.0)


def test_different_images_of_one_template_only_look_alike():
    draw = KINDS["face in a template"]
    faces = [draw(np.random.default_rng(seed)) for seed in range(4)]
    val, train = DrawnImages([*faces[:2], CHANGES["jpeg"](faces[3], None)]), DrawnImages(faces[2:])
    found = search.find_copies(val, train, None)
    assert [(pair.val, pair.train, pair.kind) for pair in found.pairs] == [(2, 1, "near duplicate")]
    assert [(pair.val, pair.kind) for pair in found.alike] == [(0, "looks alike"), (1, "looks alike")]
    in_no_time = search.find_copies(val, train, None, seconds=0.0)
    assert in_no_time.compared == (0, 0) and in_no_time.alike == []


def test_pairs_that_no_time_is_left_for_only_look_alike():
    image = scene(np.random.default_rng(5), (96, 72))
    sides = DrawnImages([CHANGES["jpeg"](image, None)]), DrawnImages([image])
    alike = [search.DuplicatePair(0, 0, "looks alike", 0.9)]
    assert [pair.kind for pair in search._prove_copies(*sides, alike, -1.0)] == ["looks alike"]
    assert [pair.kind for pair in search._prove_copies(*sides, alike, 60.0)] == ["near duplicate"]


def test_an_image_is_compared_with_the_three_most_similar_ones():
    alike = [search.DuplicatePair(val, train, "looks alike") for train in range(5) for val in (7, 2)]
    chosen = search._choose_similar(alike)
    assert chosen == alike[:6]


def test_pairs_are_sorted_by_their_samples_whatever_their_kind():
    original, plain = scene(np.random.default_rng(5), (96, 72)), Image.new("RGB", (80, 80), "gray")
    copies = DrawnImages([CHANGES["jpeg"](original, None), plain])
    pairs = search.find_copies(copies, DrawnImages([plain, original]), None).pairs
    assert [(pair.val, pair.train, pair.kind) for pair in pairs] == [(0, 1, "near duplicate"), (1, 0, "same content")]


def test_a_copy_with_one_changed_pixel_has_not_the_same_content():
    original = scene(np.random.default_rng(5), (96, 72))
    changed = original.copy()
    changed.putpixel((3, 4), tuple(255 - value for value in original.getpixel((3, 4))))
    (pair,) = search.find_copies(DrawnImages([original]), DrawnImages([changed]), None).pairs
    assert pair.kind == "near duplicate" and 0.999 < pair.likeness < 1
