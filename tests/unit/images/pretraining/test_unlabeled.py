"""Images without labels at any places: which are found, in which order, and that no label is read."""

import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.hosts.range_server import RangeServer
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.images.data.held_out import hold_out
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.images.pretraining.samples import PretrainingSamples
from paddlevit_dist.images.pretraining.unlabeled import UnlabeledImages
from paddlevit_dist.images.transforms.crops import TrainingTransform


def _write(path: Path, level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 10), (level, 0, 0)).save(path)


@pytest.fixture
def pool(tmp_path):
    """Images at three depths, hidden ones, and a tar file with a label that is not a number."""
    for level, name in enumerate(("b/x.png", "a/deep/er/y.png", "z.png", ".thumbs/x.png", "a/.y.png")):
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


def test_places_follow_one_another(pool, monkeypatch):
    _write(pool.parent / "more" / "q.png", 90)
    monkeypatch.setenv("HOME", str(pool))
    monkeypatch.chdir(pool.parent)
    images = UnlabeledImages("~/c.tar", "train", pool.parent / "cache", ["more"])
    assert [images.describe(index) for index in range(2)] == [f"{pool}/c.tar/k.png", f"{pool.parent}/more/q.png"]
    assert _names(images) == ["0/c.tar/k.png", "1/q.png"]


@pytest.mark.parametrize(
    "text, others",
    [
        ("image\nb/x.png\nz.png\n", []),
        ("b/x.png\n\n z.png \nb/x.png\n", []),
        ("image,split,age\nb/x.png,train,3\nz.png,,4\nq.png,val,5\n", ["1 of val"]),
        ("image,is_valid,age\nb/x.png,False,3\nz.png,0,4\nq.png,True,5\n", ["1 of val"]),
    ],
)
def test_tables_need_no_labels(pool, text, others):
    (pool / "list.csv").write_text(text)
    images = _open(pool / "list.csv")
    assert _names(images) == ["b/x.png", "z.png"]
    assert [line.rpartition(": ")[2] for line in images.notices if "other splits than train" in line] == others


def test_training_and_validation_folders_are_told_apart(tmp_path):
    for name in ("train/loose.png", "train/x/1.png", "val/cat/1.png", "val/cat/2.png", "val/dog/1.png"):
        _write(tmp_path / "data" / name, 7)
    for name in ("own/dog/1.png", "own/ant/2.png", "own/ant/1.png"):
        _write(tmp_path / "data" / name, 9)
    (tmp_path / "data" / "own" / "notes.odt").touch()
    (tmp_path / "cache").mkdir()
    train, val = _open(tmp_path / "data"), _open(tmp_path / "data", split="val")
    assert (train.labels, len(train)) == (None, 2)
    assert (list(val.labels), val.class_names) == ([0, 0, 1], ["cat", "dog"]) and val.labels.dtype == np.int32
    own = _open(tmp_path / "data", split="own")
    assert (own.class_names, list(own.labels), own.num_classes) == (["ant", "dog"], [0, 0, 1], 2)
    assert own.describe(2) == str(tmp_path / "data" / "own" / "dog" / "1.png") and own.label_at(2) == 1
    assert sum(own.skipped_files.counts.values()) == 1 and not val.skipped_files.counts
    assert UnlabeledImages.has_validation(str(tmp_path / "data"))
    assert not UnlabeledImages.has_validation(str(tmp_path / "data" / "val"))
    _write(tmp_path / "data" / "own" / "loose.png", 8)
    own = _open(tmp_path / "data", split="own")  # not all images are in folders
    assert (own.labels, own.class_names, own.num_classes, own.label_at(1)) == (None, None, None, -1)
    (tmp_path / "data" / "val").rename(tmp_path / "data" / "later")  # now "train" is a folder like any other
    assert _names(_open(tmp_path / "data"))[:2] == ["later/cat/1.png", "later/cat/2.png"]


@pytest.mark.parametrize(
    ("place", "split", "expected"),
    [("nothing", "train", "does not exist"), ("label.cls", "train", "is a file"), ("pool", "val", "DATA.VAL_FRACTION")],
)
def test_refusals_name_the_path(pool, place, split, expected):
    with pytest.raises(UserError, match=expected) as refused:
        _open(pool.parent / place, split=split)
    assert str(pool.parent / place) in str(refused.value)


def test_a_validation_folder_without_images_is_none(tmp_path):
    _write(tmp_path / "data" / "train" / "1.png", 7)
    (tmp_path / "data" / "val").mkdir()
    (tmp_path / "cache").mkdir()
    assert refusal_of(_open, tmp_path / "data", split="val") == (
        f"{tmp_path}/data has no val images: hold out some with DATA.VAL_FRACTION 0.01, or name images with classes "
        "with PRETRAINING.LABELED_PATH"
    )


def test_a_folder_that_contains_itself_is_refused(pool):
    (pool / "a" / "again").symlink_to(pool)
    with pytest.raises(UserError, match=r"^folder .*/pool/a/again: it is a link to a folder that contains it"):
        _open(pool)


def test_a_folder_without_images_says_so(pool):
    (pool.parent / "empty").mkdir()
    with pytest.raises(UserError, match="MORE_PATHS: .*empty contains no images; .* or tar files of them$"):
        _open(pool, pool.parent / "empty")
    (pool.parent / "empty" / "a.odt").touch()
    with pytest.raises(
        UserError, match=r"MORE_PATHS: .*empty contains no images; .* or tar files of them \(.*odt.*\)$"
    ):
        _open(pool, pool.parent / "empty")


def test_training_samples_hold_no_class(tmp_path):
    class Labeled:
        labels = np.array([5])
        reads_parts = False

        def read(self, index):
            return Image.new("L", (2, 2)), 5

        def __len__(self):
            return 1

    class OfSeveral(Labeled):
        labels = None  # each image has a row of labels

        def read(self, index):
            return Image.new("L", (2, 2)), np.array([True, False])

    for dataset, expected in ((Labeled(), [-1, 5]), (OfSeveral(), [-1, -1])):
        samples = [PretrainingSamples(dataset, lambda image, _: np.zeros(1), training) for training in (True, False)]
        assert [each.sample(0, np.random.default_rng(0))[1] for each in samples] == expected


def test_parts_of_images_are_read_also_where_some_are_held_out(pool):
    images = _open(pool)
    images.read_with(ReadConfig())
    for split in ("train", "val"):
        part = hold_out(images, split, 0.5, 0, pool.parent / "cache")
        samples = PretrainingSamples(part, TrainingTransform(8), True)
        samples.read_parts()
        for index in range(len(part)):
            assert samples.sample(index, np.random.default_rng(0))[0].shape == (3, 8, 8)


def test_parts_and_sizes_are_of_the_source_that_has_the_image(pool):
    (pool / "z.png").write_bytes((pool / "z.png").read_bytes() + b"tail")  # the member of the tar file has no tail
    images = _open(pool)
    sizes = [images.num_bytes(index) for index in range(4)]
    assert sizes[:3] == [(pool / name).stat().st_size for name in ("a/deep/er/y.png", "b/x.png", "z.png")]
    assert sizes[3] == sizes[2] - 4
    assert images.part(2, sizes[2] - 3, 3).tobytes() == b"ail"
    assert images.part(3, 1, sizes[3] - 1).tobytes() == (pool / "z.png").read_bytes()[1:-4]


def test_listed_content_is_the_paths_of_all_places(pool):
    _write(pool.parent / "more" / "q.png", 90)
    listed = _open(pool, pool.parent / "more").listed()
    assert list(listed) == ["names"]
    content = b"".join(map(bytes, listed["names"]))
    places = [content.index(name) for name in (b"a/deep/er/y.png", b"z.png", b"c.tar/k.png", b"q.png")]
    assert places == sorted(places)
    assert b"cls" not in content and b"thumbs" not in content


def test_tar_files_at_an_address_are_read_there_and_fetched_by_batch(pool):
    pytest.importorskip("aiohttp")
    (pool / "c.tar").rename(pool / "train-00000.tar")
    (pool / "tars").mkdir()
    (pool / "train-00000.tar").rename(pool / "tars" / "train-00000.tar")
    with RangeServer(pool) as server:
        images = UnlabeledImages(str(pool / "b"), "train", pool.parent / "cache", [server.address("tars")])
        assert _names(images) == ["0/x.png", "1/train-00000.tar/k.png"] and images.is_remote
        images.prefetch([1, 0, 1])
        requests = server.requests.total()
        assert images.read(1)[0].getpixel((0, 0)) == (20, 0, 0)
        assert server.requests.total() == requests
        with pytest.raises(UserError, match=f"{server.address('b')} has no tar files.*train-00000.tar"):
            UnlabeledImages(server.address("b"), "train", pool.parent / "cache")
        with pytest.raises(UserError, match=f"{server.address('b')} has no val images: .*DATA.VAL_FRACTION"):
            UnlabeledImages(server.address("b"), "val", pool.parent / "cache")
        server.marks = server.part_marks = ()
        (pool.parent / "other").mkdir()
        bare = UnlabeledImages(server.address("tars"), "train", pool.parent / "other")
        assert bare.root == server.address("tars").rstrip("/") and bare.labels is None
        assert any("neither ETag nor date of train-00000.tar" in line for line in bare.notices)


def test_tables_say_how_many_images_are_missing(pool):
    (pool / "list.csv").write_text("image,age\nb/x.png,3\nb/no.png,4\nz.png,4\nnor.png,5\n")
    with pytest.raises(UserError, match=r"list\.csv: 2 of 4 images are missing below .*pool: b/no\.png"):
        _open(pool / "list.csv")
    with pytest.raises(UserError, match="dataset unlabeled needs -data_path"):
        UnlabeledImages(None, "train", pool.parent / "cache")


@pytest.mark.parametrize(
    ("folders", "has_validation", "has_classes"),
    [
        (["train", "val/x", "val/y"], True, True),
        (["train", "test/x", "test/y"], True, True),
        (["train", "val/x"], True, False),
        (["train", "other"], False, False),
        (["val/x", "val/y"], False, False),
    ],
)
def test_validation_classes_are_two_or_more_folders_next_to_training_images(
    tmp_path, folders, has_validation, has_classes
):
    for name in folders:
        (tmp_path / name).mkdir(parents=True)
    assert UnlabeledImages.has_validation(str(tmp_path)) == has_validation
    assert UnlabeledImages.has_validation_classes(str(tmp_path)) == has_classes


def test_places_without_folders_have_no_validation_images(tmp_path):
    (tmp_path / "list.csv").write_text("image\n")
    for place in (None, "http://127.0.0.1:1/tars", str(tmp_path / "list.csv")):
        assert not UnlabeledImages.has_validation(place) and not UnlabeledImages.has_validation_classes(place)


@pytest.mark.parametrize("change", ["a name", "a folder", "the second tar file", "the order of tar files"])
def test_a_change_of_any_file_is_seen_in_spite_of_the_index_of_before(pool, change):
    for name in ("d.tar", "e.tar"):
        with tarfile.open(pool / name, "w") as archive:
            archive.add(pool / "z.png", f"{name[0]}1.png")
    before = _names(_open(pool))
    assert before[-2:] == ["1/d.tar/d1.png", "1/e.tar/e1.png"]
    if change == "a name":
        (pool / "z.png").rename(pool / "w.png")
        expected = [name.replace("z.png", "w.png") for name in before]
    elif change == "a folder":
        (pool / "b").rename(pool / "d")
        expected = [name.replace("b/x", "d/x") for name in before]
    elif change == "the second tar file":
        with tarfile.open(pool / "d.tar", "w") as archive:
            archive.add(pool / "z.png", "d2.png")
        expected = [name.replace("d1", "d2") for name in before]
    else:
        (pool / "d.tar").rename(pool / "f.tar")
        expected = [*before[:-2], "1/e.tar/e1.png", "1/f.tar/d1.png"]
    assert _names(_open(pool)) == expected
