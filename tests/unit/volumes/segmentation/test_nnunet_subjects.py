"""Folds of volumes of which several are of one subject."""

import json
import re

import pytest

from paddlevit_dist.volumes.segmentation.nnunet import _note_fold, choose_cases

NAMES = [f"sub-{subject:02d}_ses-{visit}" for subject in range(10) for visit in (1, 2)]


def subjects(names):
    return {re.match(r"sub-\d+", name)[0] for name in names}


@pytest.mark.parametrize("fold", range(5))
def test_a_subject_is_on_one_side_of_a_fold(tmp_path, fold):
    file = str(tmp_path / "splits_final.json")
    train, val = (choose_cases(file, NAMES, split, fold) for split in ("train", "val"))
    assert train | val == set(NAMES) and not subjects(train) & subjects(val) and len(val) == 4
    (note,) = _note_fold(file, NAMES, fold)
    assert "20 volumes belong to 10 subjects (sub-...), each on one side of a fold" in note


def test_subjects_with_one_volume_each_are_folds_of_nnunets(tmp_path):
    file, names = str(tmp_path / "splits_final.json"), [f"sub-{subject:02d}" for subject in range(10)]
    renamed = [name.replace("sub-", "case_") for name in names]
    for fold in range(5):
        others = {name.replace("case_", "sub-") for name in choose_cases(file, renamed, "val", fold)}
        assert choose_cases(file, names, "val", fold) == others
    assert _note_fold(file, names, 0) == []


def test_listed_folds_with_a_subject_on_both_sides_are_noted(tmp_path):
    file = tmp_path / "splits_final.json"
    file.write_text(json.dumps([{"train": NAMES[:3], "val": NAMES[3:5]}, {"train": NAMES[:4], "val": NAMES[4:6]}]))
    note, _ = _note_fold(str(file), NAMES, 0)
    assert note.endswith("sub-01: 1 of 2 validated subjects are also in training")
    assert _note_fold(str(file), NAMES[:6], 1) == []


def test_a_volume_on_both_sides_of_a_listed_fold_is_noted(tmp_path):
    file = tmp_path / "splits_final.json"
    folds = [{"train": ["a", "b", "c"], "val": ["c", "d"]}, {"train": ["a"], "val": ["b"]}]
    file.write_text(json.dumps(folds))
    (note,) = _note_fold(str(file), ["a", "b", "c", "d"], 0)
    assert note.endswith("volumes are in train and in val, c: 1 of 2 validated volumes are also in training")
    assert _note_fold(str(file), ["a", "b"], 1) == []


def test_volumes_on_neither_side_of_a_listed_fold_are_noted(tmp_path):
    file = tmp_path / "splits_final.json"
    file.write_text(json.dumps([{"train": ["b"], "val": ["a"]}, {"train": ["c", "e"], "val": ["a", "b", "d"]}]))
    names = ["a", "b", "c", "d", "e"]
    (note,) = _note_fold(str(file), names, 0)
    assert note == f"note: {file}, fold 0 lists 3 of 5 volumes neither in train nor in val, not used: c, d, e"
    assert _note_fold(str(file), names, 1) == []
