"""Data sets of recipes: which split, with which settings, and the folder that is theirs until they are gone."""

import gc
import io
import os
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import paddlevit_dist as pv
from paddlevit_dist.core.library import data


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("PADDLEVIT_DIST_RUN", raising=False)  # of a run that another test started in this process
    return tmp_path


def test_a_split_is_read_with_its_transform_and_the_keys_of_the_call(temporary):
    train, val = pv.open_dataset("vit_digits", seed=5), pv.open_dataset("vit_digits", split="val")
    assert (len(train), len(val), train.seed) == (1437, 360, 5) and val.seed != 5
    assert train.class_names == val.class_names and len(val.class_names) == 10
    assert train.dataset is train.samples.dataset and val.describe(7) == val.samples.describe(7) != val.describe(8)
    drawn = [train.sample(3, np.random.default_rng(seed))[0] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    assert [val.sample(3, np.random.default_rng(seed))[0].tolist() for seed in (1, 2)] == [val[3][0].tolist()] * 2
    batch = val.collate([val[index] for index in (4, 2, 9)])
    assert batch["labels"].tolist() == [val[index][1] for index in (4, 2, 9)]
    seen = []
    train.samples.draw_order = lambda generator: seen.append(generator) or np.array([1, 0])
    generator = np.random.default_rng(0)
    assert train.draw_order(generator).tolist() == [1, 0] and seen == [generator]


def test_a_temporary_folder_goes_with_the_data_and_a_folder_that_was_named_stays(temporary, monkeypatch):
    samples = pv.open_dataset("vit_digits", "val")
    mark, folder = sorted(temporary.iterdir(), key=lambda path: path.is_dir())
    assert folder.name.startswith("paddlevit_dist_data_") and mark.is_file()
    (folder / "index").write_text("kept files of a data set")
    if (child := os.fork()) == 0:  # a loader process that ends
        del samples
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.is_dir() and mark.is_file()
    del samples
    gc.collect()
    assert not any(temporary.iterdir())
    monkeypatch.chdir(temporary)
    given = []
    built = data.make_task

    def watched(values):
        task = built(values)
        build = task.build_dataset
        task.build_dataset = lambda *arguments: given.append(arguments) or build(*arguments)
        return task

    monkeypatch.setattr(data, "make_task", watched)
    for _ in range(2):
        kept = pv.open_dataset("vit_digits", "val", **{"DATA.CACHE_FOLDER": "a/b"})
        del kept
        gc.collect()
        assert Path("a/b").is_dir() and os.listdir(".") == ["a"]
    assert given == [("val", Path("a/b").absolute())] * 2


@pytest.mark.parametrize("split", ["train", "val"])
def test_images_that_are_held_out_are_listed_in_the_folder_of_the_data(temporary, monkeypatch, split):
    monkeypatch.chdir(temporary)
    for place in range(12):
        file = temporary / "photos" / "ab"[place % 2] / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (place, 0, 0)).save(file)
    values = {"DATA.VAL_FRACTION": 0.34, "DATA.DATASET": "folder", "DATA.IMAGE_CHANNELS": 3}
    samples = pv.open_dataset("vit_digits", split, data_path="photos", **values)
    assert len(samples) == {"train": 8, "val": 4}[split] and samples[0][0].shape[0] == 3
    assert not Path("output").exists()
    del samples
    gc.collect()
    assert os.listdir(".") == ["photos"]


def test_a_dataset_keeps_the_folder_that_it_reads_from(temporary):
    (temporary / "tars").mkdir()
    for split in ("train", "val"):
        with tarfile.open(temporary / "tars" / f"{split}.tar", "w") as tar:
            for number in range(4):
                stream = io.BytesIO()
                Image.new("L", (8, 8), 10 * number).save(stream, "PNG")
                member = tarfile.TarInfo(f"class{number % 2}/{number}.png")
                member.size = stream.tell()
                tar.addfile(member, io.BytesIO(stream.getvalue()))
    options = {"data_path": str(temporary / "tars"), "dataset": "tar"}
    image, label = pv.open_dataset("finetune_folder", "val", **options).dataset[1]
    assert image.getpixel((0, 0))[0] in (10, 20) and label in (0, 1)
    gc.collect()
    assert os.listdir(temporary) == ["tars"]


def test_data_that_cannot_be_opened_leave_no_folder(temporary):
    with pytest.raises(pv.UserError):
        pv.open_dataset("finetune_folder", data_path=str(temporary / "nowhere"), dataset="folder")
    assert not os.listdir(temporary)
