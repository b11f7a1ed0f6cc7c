"""Each extension, and each task folder but classification, can be deleted: what it adds is unknown then, and everything
else is as before."""

import pytest
from integration.test_extensions import FOLDERS, TASK_FOLDERS, UNKNOWN, in_a_copy_without
from support.trainings.runs import read_events


@pytest.mark.parametrize("extension", FOLDERS)
def test_without_its_folder_one_trains_evaluates_and_predicts(tmp_path, extension):
    ended = in_a_copy_without(extension, tmp_path)
    assert ended.code == 0, ended.err
    events = read_events(tmp_path / "run")
    assert [event["update"] for event in events if event["kind"] == "training"] == [2]
    assert "top-1 " in ended.out and (tmp_path / "found").is_dir()
    assert (tmp_path / "run/report.html").is_file() == (extension != "extensions/report")
    for words, said in UNKNOWN[extension].items():
        assert f"{words}: {said}" in ended.out


@pytest.mark.parametrize("folder", TASK_FOLDERS)
def test_no_task_folder_needs_another_to_be_deleted_too(tmp_path, folder):
    words = ["train -dataset=coco_outlines"] if folder == "images/detection" else []  # a row of segmentation
    ended = in_a_copy_without(folder, tmp_path, words=words)
    assert ended.code == 0, ended.err
    assert "'coco_outlines'" in ended.out or not words


def test_the_test_sees_an_import_of_an_extension_by_the_core(tmp_path):
    ended = in_a_copy_without("extensions/compare", tmp_path, "from ...extensions.compare import tables\n")
    assert ended.code != 0 and "No module named 'paddlevit_dist.extensions.compare'" in ended.err


def test_without_all_other_subjects_one_classifies(tmp_path):
    naming = "convert run new.safetensors -names=transformers"
    ended = in_a_copy_without(" ".join(TASK_FOLDERS), tmp_path, words=["train -dataset=coco", naming])
    assert ended.code == 0, ended.err
    assert "top-1 " in ended.out and (tmp_path / "found").is_dir()
    assert "train -dataset=coco: " in ended.out and "'coco'" in ended.out
    assert "invalid choice: 'transformers' (choose from" in ended.out
