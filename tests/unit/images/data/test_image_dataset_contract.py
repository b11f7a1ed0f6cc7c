"""What the trainer relies on, checked for each registered image dataset."""

import gzip
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image
from support.files import hub_files
from support.files.cifar_writer import write_cifar10, write_cifar100

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks import BadSample
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.images import ImageDataset, SegmentationDataset

NAMES = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "imagenet2012", "folder", "tar", "table", "hub")


def write_idx(folder):
    for prefix in ("train", "t10k"):
        for part, array in (
            ("images-idx3", np.ones((6, 28, 28), np.uint8)),
            ("labels-idx1", np.arange(6, dtype=np.uint8)),
        ):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            (folder / f"{prefix}-{part}-ubyte.gz").write_bytes(gzip.compress(header + array.tobytes()))


def write_class_folders(folder):
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            (folder / split / name).mkdir(parents=True)
            Image.new("CMYK", (7, 5)).save(folder / split / name / "1.jpg")


def write_lists(folder):
    for split in ("train", "val"):
        Image.new("P", (7, 5)).save(folder / f"{split} 1.png")
        (folder / f"{split}_list.txt").write_text(f"{split} 1.png 3\n")


def write_table(folder):
    Image.new("P", (7, 5)).save(folder / "1.png")
    Image.new("LA", (5, 7)).save(folder / "2.png")
    rows = "image,label,split\n1.png,bee,train\n2.png,ant,train\n2.png,ant,val\n"
    (folder / "labels.csv").write_text(rows, encoding="utf-8")


def write_class_tars(folder):
    write_class_folders(folder)
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            with tarfile.open(folder / split / f"{name}.tar", "w") as tar:
                tar.add(folder / split / name / "1.jpg", "1.jpg")


def write_parquets(folder):
    columns = {"image": hub_files.images([1, 2]), "label": [1, 0]}
    features = {"image": hub_files.IMAGE, "label": hub_files.classes("ant", "bee")}
    for split in ("train", "val"):
        hub_files.write_parquet(folder / "data" / f"{split}-00000-of-00001.parquet", columns, features)


WRITERS = {
    "mnist": write_idx,
    "fashion_mnist": write_idx,
    "cifar10": write_cifar10,
    "cifar100": write_cifar100,
    "imagenet2012": write_lists,
    "folder": write_class_folders,
    "tar": write_class_tars,
    "table": write_table,
    "hub": write_parquets,
}


def test_no_data_set_is_forgotten():
    assert set(NAMES) == {name for name, target in REGISTRY.datasets.items() if ".images.data." in str(target)}


EVERY = [(name, split) for name in NAMES for split in ("train", "val")]


def opened(name, split, folder):
    """The data set, written below ``folder``."""
    (folder / "data").mkdir(parents=True)
    (folder / "cache").mkdir()
    WRITERS.get(name, lambda folder: None)(folder / "data")
    return resolve("dataset", name)(str(folder / "data"), split, folder / "cache")


@pytest.fixture(params=EVERY, ids=lambda p: f"{p[0]}-{p[1]}")
def dataset(request, tmp_path):
    return opened(*request.param, tmp_path)


def test_samples_are_what_the_dataset_promises(dataset):
    assert len(dataset.labels) == len(dataset) > 0
    assert dataset.kind in ("photo", "glyph") and dataset.image_mode in ("RGB", "L")
    assert dataset.class_names is None or len(dataset.class_names) == dataset.num_classes
    assert len({dataset.describe(index) for index in range(len(dataset))}) == len(dataset)
    for index in range(min(len(dataset), 6)):
        image, label = dataset.read(index)
        assert isinstance(image, Image.Image) and image.mode == dataset.image_mode
        assert type(label) is int and 0 <= label < dataset.num_classes
        assert label == dataset.labels[index]


def test_machines_see_the_bytes_of_each_sample_where_it_is_stored(dataset):
    """Of a file or a member of a tar file as they are, of arrays the pixels and the label."""
    for index in range(min(len(dataset), 6)):
        ((size, first),) = dataset.peek(index, 5)
        if dataset.reading is None:
            image, label = dataset.read(index)
            whole = image.tobytes() + bytes([label])
        else:
            whole = dataset.encoded(index)
        assert (size, first) == (len(whole), whole[:5])


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_split_is_refused_by_those_that_exist(name, tmp_path):
    WRITERS.get(name, lambda folder: None)(tmp_path)
    with pytest.raises(UserError, match="tset.*train, val"):
        resolve("dataset", name)(str(tmp_path), "tset", tmp_path)


@pytest.mark.parametrize("name", ["folder", "imagenet2012", "tar"])
def test_any_other_split_has_the_classes_of_the_training(name, tmp_path):
    data = tmp_path / "data"
    write_class_folders(data)
    for number, wanted in enumerate(("ant", "bee", "bee")):
        (data / "holdout" / wanted).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (7, 5)).save(data / "holdout" / wanted / f"{number}.jpg")
    if name == "tar":
        write_class_tars(data / "tars")
        for wanted in ("ant", "bee"):
            with tarfile.open(data / "tars" / f"holdout-{wanted}.tar", "w") as tar:
                for image in sorted((data / "holdout" / wanted).iterdir()):
                    tar.add(image, f"{wanted}/{image.name}")
        data = data / "tars"
    found = resolve("dataset", name)(str(data), "holdout", tmp_path)
    assert found.class_names == ["ant", "bee"] and found.labels.tolist() == [0, 1, 1]


def test_images_without_class_folders_are_not_evaluated(tmp_path):
    write_class_folders(tmp_path)
    (tmp_path / "test").mkdir()
    Image.new("RGB", (7, 5)).save(tmp_path / "test" / "1.jpg")
    with pytest.raises(UserError, match="test has no class folders; .* for images without labels, use 'predict'"):
        resolve("dataset", "folder")(str(tmp_path), "test", tmp_path)


@pytest.mark.parametrize(
    ("base", "truth", "expected"),
    [(ImageDataset, 1, "label"), (SegmentationDataset, np.zeros((4, 6), np.uint8), "label map")],
)
def test_what_a_users_class_reads_is_an_image_of_eight_bits_with_its_truth(base, truth, expected):
    class Own(base):
        def __init__(self, image, *more):
            self.sample = image, *more

        def __len__(self):
            return 1

        def read(self, index):
            return self.sample

    for mode in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK"):
        image, found = OpenedDataset(Own(Image.new(mode, (6, 4)), truth)).read(0)
        assert found is truth and image.mode == (mode if base is ImageDataset else "RGB")
    for mode in ("F", "I", "I;16"):
        with pytest.raises(
            BadSample, match=f"^sample 0: its image has Pillow's mode {mode}: scale its numbers to 8 bits"
        ):
            OpenedDataset(Own(Image.new(mode, (6, 4)), truth)).read(0)
    with pytest.raises(BadSample, match="^sample 0: its image has 0 x 4 pixels: expected one or more"):
        OpenedDataset(Own(Image.new("RGB", (0, 4)), truth)).read(0)
    for sample in (
        (np.zeros((4, 6), np.float32), truth),
        (Image.new("L", (6, 4)),),
        (Image.new("L", (6, 4)), truth, 1),
    ):
        with pytest.raises(
            BadSample, match=rf"^sample 0: Own.read returns tuple of .*, expected \(PIL image, {expected}\)$"
        ):
            OpenedDataset(Own(*sample)).read(0)
