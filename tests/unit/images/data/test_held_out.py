"""One dataset split into training and validation images."""

import os
import pickle

import numpy as np
import pytest
from support.refusals import refusal_of
from support.trainings.runs import write_single_folder

from paddlevit_dist import UserError
from paddlevit_dist.core.logging.record import cache_folder
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.classification.opening import open_images
from paddlevit_dist.images.classification.samples import ClassificationSamples
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.held_out import DatasetPart, choose_held_out, hold_out
from paddlevit_dist.images.data.image_dataset import ImageDataset
from paddlevit_dist.images.data.image_samples import open_dataset
from paddlevit_dist.images.data.imagenet import ImageNet2012
from paddlevit_dist.images.data.small_sets import Digits


def test_images_at_an_address_are_fetched_by_their_places_in_the_whole(tmp_path):
    write_single_folder(tmp_path / "data", {"ant": 6, "bee": 6})
    (tmp_path / "cache").mkdir()
    whole = ClassFolders.whole(str(tmp_path / "data"), tmp_path / "cache")
    part = hold_out(whole, "val", 0.5, 0, tmp_path / "cache")
    fetched = []
    part.dataset.prefetch = fetched.append
    part.prefetch([4, 0, 4])
    assert fetched == [[int(part.rows[row]) for row in (4, 0, 4)]] and part.rows[4] != 4


class Named:
    """A dataset of which only the names are asked for."""

    def __init__(self, names):
        self.identity = list(names).__getitem__


def chosen(labels, fraction, seed):
    return choose_held_out(Named(map(str, range(len(labels)))), labels, fraction, seed)


def test_each_class_gives_its_share():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 7], [1000, 100, 10, 40]))
    held_out = chosen(labels, 0.1, 0)
    assert {label: int(held_out[labels == label].sum()) for label in (0, 1, 2, 7)} == {0: 100, 1: 10, 2: 1, 7: 4}


@pytest.mark.parametrize(("size", "fraction", "expected"), [(1, 0.5, 0), (2, 0.01, 1), (2, 0.99, 1), (3, 0.5, 2)])
def test_small_classes_keep_one_for_training_and_give_one_if_they_can(size, fraction, expected):
    assert chosen(np.zeros(size, int), fraction, 0).sum() == expected


def test_the_choice_is_random_and_decided_by_its_own_seed(tmp_path):
    labels = np.repeat(np.arange(10), 100)
    first = chosen(labels, 0.2, 0)
    np.testing.assert_array_equal(first, chosen(labels, 0.2, 0), strict=True)
    assert 0 < (first & chosen(labels, 0.2, 1)).sum() < 100  # of 200; 40 by chance
    positions = np.flatnonzero(first) % 100
    assert abs(positions.mean() - 49.5) < 8
    write_single_folder(tmp_path / "data", {"ant": 10, "bee": 20})
    rows = [
        open_images(configuration(tmp_path, "DATA.VAL_FRACTION", "0.2", *more), "val", tmp_path)[0].rows.tolist()
        for more in ([], ["-seed=5"], ["DATA.VAL_SEED", "5"])
    ]
    assert rows[0] == rows[1] != rows[2]


def make_split(names, fraction=0.2, seed=0):
    """Names that are trained on, and names that are held out, of files named ``class/file``."""
    names = sorted(names)
    _, labels = np.unique([name.partition("/")[0] for name in names], return_inverse=True)
    held_out = choose_held_out(Named(names), labels, fraction, seed)
    return {name for name, out in zip(names, held_out) if not out}, {name for name, out in zip(names, held_out) if out}


FILES = [f"{name}/{number:03d}.jpg" for name in ("ant", "bee", "cow") for number in range(60)]
CHANGES = {
    "three removed": [name for name in FILES if not name.endswith(("ant/007.jpg", "bee/031.jpg", "cow/058.jpg"))],
    "one added to each class": [*FILES, "ant/0000.jpg", "bee/0000.jpg", "cow/0000.jpg"],
    "one renamed": ["ant/first.jpg", *(name for name in FILES if name != "ant/000.jpg")],
    "a class added": [*FILES, *(f"ape/{number:03d}.jpg" for number in range(60))],
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_that_come_and_go_move_at_most_one_other_each(change):
    """Drawn by position, 25 of 36 held-out images had been trained on after the first of these."""
    trained, held_out = make_split(FILES)
    trained_now, held_out_now = make_split(CHANGES[change])
    changed = set(FILES) ^ set(CHANGES[change])
    allowed = 0 if change == "a class added" else len(changed)
    assert len(held_out_now & trained) + len(trained_now & held_out) <= allowed
    for name in {name.partition("/")[0] for name in CHANGES[change]}:
        sizes = [sum(one.startswith(f"{name}/") for one in names) for names in (CHANGES[change], held_out_now)]
        assert sizes[1] == round(0.2 * sizes[0])


def test_images_are_the_same_wherever_their_folder_is_and_names_decide_not_places(tmp_path):
    for root in ("here", "there"):
        write_single_folder(tmp_path / root / "data", {"ant": 20})
    parts = []
    for root in ("here", "there"):
        part = hold_out(ClassFolders.whole(str(tmp_path / root / "data"), tmp_path), "val", 0.3, 0, tmp_path)
        parts.append(({part.identity(index) for index in range(len(part))}, part.identities().tolist()))
    assert parts[0] == parts[1] and all(name.startswith("ant/") for name in parts[0][0])
    reversed_order = choose_held_out(Named(FILES[59::-1]), np.zeros(60, int), 0.3, 0)[::-1]
    np.testing.assert_array_equal(
        reversed_order, choose_held_out(Named(FILES[:60]), np.zeros(60, int), 0.3, 0), strict=True
    )


def test_a_file_that_is_listed_twice_is_on_one_side_that_of_its_first(tmp_path):
    """Among five copies of each of 40 names, alike up to their spelling, some stood on both sides."""
    names = [f"{number}.jpg" for number in range(40)]
    listed = [*names, *(f"./{name}" for name in names), *names * 3]
    (tmp_path / "train_list.txt").write_text("".join(f"{name} {row // 160}\n" for row, name in enumerate(listed)))
    whole = ImageNet2012(str(tmp_path), "train", tmp_path)
    held_out = choose_held_out(whole, np.asarray(whole.labels), 0.25, 0).reshape(5, 40)
    assert (held_out == held_out[0]).all() and held_out[0].sum() == 10
    np.testing.assert_array_equal(held_out[0], choose_held_out(whole, np.zeros(40, int), 0.25, 0), strict=True)


def test_an_order_of_the_whole_is_not_drawn_for_a_part(tmp_path):
    whole = type("Weighted", (Digits,), {"draw_order": lambda self, generator: None})(None, "train", tmp_path)
    assert refusal_of(hold_out, whole, "train", 0.2, 3, tmp_path).startswith(
        "DATA.VAL_FRACTION 0.2: draw_order of Weighted also draws images that would be held out: "
    )


def test_the_parts_share_out_the_whole(tmp_path):
    whole = Digits(None, "train", tmp_path)
    train, val = (hold_out(whole, split, 0.2, 3, tmp_path) for split in ("train", "val"))
    assert len(train) + len(val) == len(whole) and set(train.rows) | set(val.rows) == set(range(len(whole)))
    for part in (train, val):
        for index in (0, len(part) - 1):
            image, label = part.read(index)
            expected, expected_label = whole.read(int(part.rows[index]))
            assert label == expected_label == part.labels[index] and image.tobytes() == expected.tobytes()
            assert part.describe(index) == whole.describe(int(part.rows[index]))
        assert (part.kind, part.image_mode, part.num_classes) == ("glyph", "L", 10)
        whole.content_key = "of its tar files"
        assert part.content_key == ClassificationSamples(part, None).content_key == whole.content_key
        copy = pickle.loads(pickle.dumps(part))
        assert len(pickle.dumps(part)) <= 1000 and len(copy) == len(part) and copy.describe(5) == part.describe(5)


class TaggedFolders(ClassFolders):
    labels = None
    label_matrix = np.random.default_rng(0).integers(-1, 2, (11, 3), np.int8)


def test_a_part_has_the_rows_of_a_label_matrix_and_no_single_labels(tmp_path):
    whole = ClassFolders.whole(str(write_single_folder(tmp_path / "data", {"ant": 7, "bee": 4})), tmp_path)
    assert [whole.label_at(6), whole.label_at(7)] == [0, 1]
    whole = TaggedFolders.whole(str(tmp_path / "data"), tmp_path)
    parts = [hold_out(whole, split, 0.3, 0, tmp_path) for split in ("train", "val")]
    assert [len(part) for part in parts] == [8, 3] and parts[0].labels is None
    for part in map(pickle.loads, map(pickle.dumps, parts)):
        np.testing.assert_array_equal(part.label_matrix, whole.label_matrix[part.rows], strict=True)
        np.testing.assert_array_equal(part.label_at(2), whole.label_matrix[part.rows[2]], strict=True)


def test_nothing_to_hold_out_and_no_split_are_told(tmp_path):
    write_single_folder(tmp_path / "data", {"a": 1, "b": 1})
    with pytest.raises(UserError, match="VAL_FRACTION 0.5 holds nothing out: no class has two images"):
        open_images(configuration(tmp_path, "DATA.VAL_FRACTION", "0.5"), "train", tmp_path)
    with pytest.raises(UserError, match=r"VAL_FRACTION divides has no split 'test' \(-split\): it has train, val"):
        hold_out(Digits(None, "train", tmp_path), "test", 0.2, 3, tmp_path)
    with pytest.raises(UserError, match="or set DATA.VAL_FRACTION to split a single folder"):
        open_images(configuration(tmp_path), "train", tmp_path)


def configuration(tmp_path, *options):
    arguments = ["-dataset=folder", f"-data_path={tmp_path / 'data'}", f"-output={tmp_path}", *options]
    return load(arguments).values


def test_a_single_folder_is_split_by_a_key_and_listed_in_the_output(tmp_path):
    write_single_folder(tmp_path / "data", {"ant": 10, "bee": 20})
    config = configuration(tmp_path, "DATA.VAL_FRACTION", "0.2")
    train, _ = open_images(config, "train", tmp_path)
    val, notes = open_images(config, "val", tmp_path)
    assert len(train) == 24 and np.bincount(val.labels).tolist() == [2, 4]
    assert notes == [
        "note: 6 of 30 training images are held out for validation (DATA.VAL_FRACTION 0.2, VAL_SEED 0), "
        f"listed in {tmp_path / 'val_files.txt'}"
    ]
    listed = (tmp_path / "val_files.txt").read_text().splitlines()
    assert [os.path.join(tmp_path, "data", line) for line in listed] == [val.describe(index) for index in range(6)]
    assert not set(listed) & {os.path.relpath(train.describe(i), tmp_path / "data") for i in range(len(train))}
    write_single_folder(tmp_path / "data" / "train", {"ant": 10, "bee": 10})  # then it is that which is split
    val, _ = open_images(config, "val", tmp_path)
    assert len(val) == 4 and "/train/" in val.describe(0)


def test_reading_options_and_cache_folder_come_from_the_configuration(tmp_path):
    write_single_folder(tmp_path / "data", {"ant": 10})
    shared = tmp_path / "shared" / "cache"
    options = ["DATA.VAL_FRACTION", "0.2", "DATA.MAX_PIXELS", "8", "DATA.CACHE_FOLDER", str(shared)]
    values = configuration(tmp_path, *options)
    val, _ = open_images(values, "val", cache_folder(values))
    assert len(list(shared.iterdir())) == 2
    with pytest.raises(UserError, match="above the limit of 8 pixels"):
        val.read(0)


def test_what_is_held_out_is_told_with_the_key_and_the_seed(tmp_path):
    values = load(["-dataset=digits", "DATA.VAL_FRACTION", "0.25", "DATA.VAL_SEED", "7"]).values
    for split, number in (("train", 1078), ("val", 359)):
        dataset, lines = open_dataset(values, ImageDataset, DatasetPart, split, tmp_path)
        assert len(dataset) == number
        assert lines[-1].startswith(
            f"{split}: {number:,} images of the 1,437 training images; DATA.VAL_FRACTION 0.25 holds out some for "
            "validation (VAL_SEED 7)"
        )
