"""Images without labels at any places: which are found, in which order, and that no label is read."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.data.held_out import hold_out
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.images.pretraining.samples import PretrainingSamples
from paddlevit_dist.images.pretraining.unlabeled import UnlabeledImages
from paddlevit_dist.images.transforms.crops import TrainingTransform
from paddlevit_dist.runtime.errors import UserError


def _write(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 10), (level, 0, 0)).save(path)


@pytest.fixture
def pool(tmp_path):
    """Images at three depths, one hidden, and a tar file with a label that is not a number."""
    for level, name in enumerate(("b/x.png", "a/deep/er/y.png", "z.png", ".thumbs/x.png")):
        _write(tmp_path / "pool" / name, 10 * level)
    (tmp_path / "label.cls").write_text("cat")
    with tarfile.open(tmp_path / "pool" / "c.tar", "w") as archive:
        archive.add(tmp_path / "pool" / "z.png", "k.png")
        archive.add(tmp_path / "label.cls", "k.cls")
    (tmp_path / "cache").mkdir()
    return tmp_path / "pool"


def _open(place, *more, split="train"):
    cache = next(folder / "cache" for folder in Path(place).parents if (folder / "cache").is_dir())
    return UnlabeledImages(str(place), split, cache, [str(path) for path in more])


def _names(dataset):
    return [dataset.identity(index) for index in range(len(dataset))]


def test_images_at_any_depth_and_in_tar_files_are_found_once(pool):
    images = pickle.loads(pickle.dumps(_open(pool)))
    assert _names(images) == ["0/a/deep/er/y.png", "0/b/x.png", "0/z.png", "1/c.tar/k.png"]
    levels = [images.read(index)[0].getpixel((0, 0))[0] for index in range(4)]
    assert levels == [10, 0, 20, 20]
    assert images.labels is None and {images.read(index)[1] for index in range(4)} == {-1}


def test_places_follow_one_another(pool):
    _write(pool.parent / "more" / "q.png", 90)
    images = _open(pool / "c.tar", pool.parent / "more")
    assert _names(images) == ["0/c.tar/k.png", "1/q.png"]


@pytest.mark.parametrize(
    "text",
    [
        "image\nb/x.png\nz.png\n",
        "image,split,age\nb/x.png,train,3\nz.png,,4\nq.png,val,5\n",
        "image,is_valid,age\nb/x.png,False,3\nz.png,0,4\nq.png,True,5\n",
    ],
)
def test_tables_need_no_labels(pool, text):
    (pool / "list.csv").write_text(text)
    assert _names(_open(pool / "list.csv")) == ["b/x.png", "z.png"]


def test_training_and_validation_folders_are_told_apart(tmp_path):
    for name in ("train/loose.png", "train/x/1.png", "val/cat/1.png", "val/cat/2.png", "val/dog/1.png"):
        _write(tmp_path / "data" / name, 7)
    (tmp_path / "cache").mkdir()
    train, val = _open(tmp_path / "data"), _open(tmp_path / "data", split="val")
    assert (train.labels, len(train)) == (None, 2)
    assert (list(val.labels), val.class_names) == ([0, 0, 1], ["cat", "dog"])
    assert UnlabeledImages.has_validation(str(tmp_path / "data"))
    assert not UnlabeledImages.has_validation(str(tmp_path / "data" / "val"))


@pytest.mark.parametrize(
    ("place", "split", "expected"),
    [("nothing", "train", "does not exist"), ("label.cls", "train", "is a file"), ("pool", "val", "DATA.VAL_FRACTION")],
)
def test_refusals_name_the_path(pool, place, split, expected):
    with pytest.raises(UserError, match=expected) as refused:
        _open(pool.parent / place, split=split)
    assert str(pool.parent / place) in str(refused.value)


def test_a_folder_without_images_says_so(pool):
    (pool.parent / "empty").mkdir()
    with pytest.raises(UserError, match="MORE_PATHS: .*empty contains no images"):
        _open(pool, pool.parent / "empty")


def test_training_samples_hold_no_class(tmp_path):
    class Labeled:
        labels = np.array([5])
        reads_parts = False

        def read(self, index):
            return Image.new("L", (2, 2)), 5

        def __len__(self):
            return 1

    samples = [PretrainingSamples(Labeled(), lambda image, _: np.zeros(1), training) for training in (True, False)]
    assert [each.sample(0, np.random.default_rng(0))[1] for each in samples] == [-1, 5]


def test_parts_of_images_are_read_also_where_some_are_held_out(pool):
    images = _open(pool)
    images.read_with(ReadConfig())
    for split in ("train", "val"):
        part = hold_out(images, split, 0.5, 0, pool.parent / "cache")
        samples = PretrainingSamples(part, TrainingTransform(8), True)
        samples.read_parts()
        for index in range(len(part)):
            assert samples.sample(index, np.random.default_rng(0))[0].shape == (3, 8, 8)
