"""What is held out of images that belong together."""

import re

import numpy as np
import pytest

from paddlevit_dist.core.tasks.sample_groups import FOLDER, SUBJECT
from paddlevit_dist.images.data.held_out import choose_held_out_groups, hold_out
from paddlevit_dist.images.data.image_dataset import ImageDataset


class NamedImages(ImageDataset):
    notices = ()

    def __init__(self, names, labels=None, groups_by=SUBJECT):
        self.names, self.labels, self.groups_by = names, labels, groups_by

    def __len__(self):
        return len(self.names)

    def describe(self, index):
        return self.names[index]


def divide(dataset, fraction, tmp_path):
    parts = {split: hold_out(dataset, split, fraction, 0, tmp_path) for split in ("train", "val")}
    assert sorted([*parts["train"].rows, *parts["val"].rows]) == list(range(len(dataset)))
    return parts


def make_names(part):
    return {part.describe(index) for index in range(len(part))}


@pytest.mark.parametrize("seed", range(3))
def test_images_of_a_subject_are_on_one_side(tmp_path, seed):
    names = [f"{'ab'[subject % 2]}/sub-{subject:02d}_slice-{n}.png" for subject in range(20) for n in range(5)]
    dataset = NamedImages(names, np.array([subject % 2 for subject in range(20) for _ in range(5)]))
    parts = {split: hold_out(dataset, split, 0.2, seed, tmp_path) for split in ("train", "val")}
    sides = [{re.search(r"sub-\d+", name)[0] for name in make_names(part)} for part in parts.values()]
    assert not sides[0] & sides[1] and len(parts["val"]) == 20
    assert parts["val"].describe_groups() == "; images of one subject are on one side, 20 of them in all"


def test_every_class_stays_in_training():
    groups, labels = ["a", "a", "b", "b", "c", "c"], np.array([0, 0, 1, 1, 1, 1])
    for seed in range(5):
        held_out = choose_held_out_groups(groups, labels, 0.3, seed)
        assert held_out.sum() == 2 and not held_out[:2].any()
    assert not choose_held_out_groups(["a", "b"], np.array([0, 1]), 0.5, 0).any()


@pytest.mark.parametrize(
    ("groups", "labels", "fraction", "expected"),
    [
        ("aaaaabbbbcccccc", "000000000000000", 0.1, {"b"}),  # all are too large
        ("aaaaabbbbcccccc", "000001111000000", 0.1, {"a"}),  # without "b", training would have nothing of its class
        ("aaaaabbbbbbbbcd", "000000000000000", 0.13, {"c", "d"}),  # two of 15 are nearest to 1.95
        ("ccaabbddee", "7777777777", 0.3, None),  # one group: two would be as far from three
    ],
)
def test_groups_are_taken_while_they_bring_the_number_nearer_else_the_smallest(groups, labels, fraction, expected):
    groups, labels = list(groups), np.array(list(map(int, labels)))
    for seed in range(6):
        held_out = choose_held_out_groups(groups, labels, fraction, seed)
        chosen = {name for name, is_out in zip(groups, held_out) if is_out}
        assert chosen == expected if expected else len(chosen) == 1
        assert {name for name, is_out in zip(groups, held_out) if not is_out} == {*groups} - chosen


def test_folders_are_held_out_whole_where_they_make_up_the_fraction(tmp_path):
    videos = NamedImages([f"video{n // 10}/{n}.jpg" for n in range(100)], groups_by=FOLDER)
    parts = divide(videos, 0.2, tmp_path)
    folders = [{name.split("/")[0] for name in make_names(part)} for part in parts.values()]
    assert not folders[0] & folders[1] and len(parts["val"]) == 20
    halves = NamedImages([f"half{n // 50}/{n}.jpg" for n in range(100)], groups_by=FOLDER)
    part = divide(halves, 0.1, tmp_path)["val"]
    assert (
        len(part) == 10
        and part.describe_groups() == "; images of one folder are on both sides: whole groups of 2 cannot be divided"
    )
    few = NamedImages([f"{'few' if n < 3 else 'most'}/{n}.jpg" for n in range(100)], groups_by=FOLDER)
    assert len(divide(few, 0.2, tmp_path)["val"]) == 20  # a folder of 3 images is too little


def test_subjects_are_held_out_whole_whatever_their_size(tmp_path):
    halves = NamedImages([f"sub-{n // 50}_{n}.png" for n in range(100)])
    part = divide(halves, 0.1, tmp_path)["val"]
    assert len(part) == 50 and len({name[:5] for name in make_names(part)}) == 1


def test_images_without_groups_are_divided_as_ever(tmp_path):
    names = [f"{n}.jpg" for n in range(19)]
    part = divide(NamedImages([*names, names[0]]), 0.2, tmp_path)["val"]  # one is listed twice
    assert part.describe_groups() == ""
