"""Labelme's files belong to the split that a folder's name says."""

import pytest

from paddlevit_dist.images.data.outline_files import find_labelme_files


@pytest.mark.parametrize(
    ("folder", "split"),
    [("Test", "test"), ("val_set", "val"), ("seg_train", "train"), ("x/Validation/y", "val"), ("station", "train")],
)
def test_folders_of_splits_have_usual_names(tmp_path, folder, split):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "a.json").write_text("{}", encoding="utf-8")
    assert find_labelme_files(str(tmp_path)) == {str(tmp_path / folder / "a.json"): split}
