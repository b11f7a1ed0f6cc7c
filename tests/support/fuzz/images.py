"""Images and their labels, for the table."""

import gzip
import io
import struct
import tarfile

import numpy as np
from PIL import Image

from paddlevit_dist.images.data.cifar import Cifar10
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.image_dataset import name_folders
from paddlevit_dist.images.data.imagenet import ImageNet2012, read_kit_labels, read_listed_labels
from paddlevit_dist.images.data.label_layouts import TableChoices
from paddlevit_dist.images.data.label_tables import TableOptions, read_table
from paddlevit_dist.images.data.prepared import Preparation, read_preparation, write_preparation
from paddlevit_dist.images.data.reading import ReadConfig, decode_image, examine_image
from paddlevit_dist.images.data.remote_tars import INDEX_FILE, parse_index
from paddlevit_dist.images.data.small_sets import Mnist
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.images.prepare.published_index import publish_index
from paddlevit_dist.images.transforms.decoding_opencv import FastReader
from support.files.cifar_writer import write_cifar10

_KIT = "ILSVRC2012_devkit_t12"
_FOLDERS = ["n01", "n02", "n03"]


def _pixels(height=12, width=17):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def make_class_names(folder):
    (folder / "classes.txt").write_text("".join(f"{name} name of {name}\n" for name in _FOLDERS))
    return [folder / "classes.txt"]


def read_class_names(folder):
    assert len(name_folders(str(folder), _FOLDERS)) == 3


def make_labels(folder):
    (folder / "val_list.txt").write_text("".join(f"val/{number}.jpg {number % 3}\n" for number in range(9)))
    return [folder / "val_list.txt"]


def read_labels(folder):
    labels = read_listed_labels(str(folder), "val")
    assert all(0 <= label < 1 << 31 for label in labels.values())


def make_list(folder):
    (folder / "train_list.txt").write_text("".join(f"train/{number}.jpg {number % 3}\n" for number in range(9)))
    (folder / "classes.txt").write_text("a\nb\nc\n")
    return [folder / "train_list.txt"]


def read_list(folder):
    (folder / "cache").mkdir()
    dataset = ImageNet2012(str(folder), "train", folder / "cache")
    assert {int(label) for label in dataset.labels} <= {0, 1, 2}
    assert all(dataset.describe(index) for index in range(len(dataset)))


_TABLE_ROWS = [
    (f"{number}.png", f"{'ox' if number % 3 else 'ant'};{number % 2}", 1 - number % 3) for number in range(9)
]


def _write_table_images(folder):
    for name, _, _ in _TABLE_ROWS:
        Image.fromarray(_pixels()).save(folder / name)


def make_label_table(folder):
    _write_table_images(folder)
    headings = "image;label;labels;ox;fold\r\n"
    rows = (f'{name};"{labels}";{labels.replace(";", "|")};{known};{known}\r\n' for name, labels, known in _TABLE_ROWS)
    (folder / "labels.csv").write_text(headings + "".join(rows), encoding="utf-8-sig", newline="")
    return [folder / "labels.csv"]


def make_parquet_table(folder):
    import pyarrow
    from pyarrow import parquet

    _write_table_images(folder)
    names, labels, known = map(list, zip(*_TABLE_ROWS))
    lists = [text.split(";") for text in labels]
    table = pyarrow.table({"image": names, "label": labels, "labels": lists, "ox": known, "fold": known})
    parquet.write_table(table, folder / "labels.parquet")
    return [folder / "labels.parquet"]


def make_lists(folder):
    """Make the files of CUB-200-2011."""
    names = [f"{number:03d}.bird/{number}.png" for number in range(4)]
    for name in names:
        (folder / name).parent.mkdir()
        Image.fromarray(_pixels()).save(folder / name)
    (folder / "images.txt").write_text("".join(f"{number} {name}\n" for number, name in enumerate(names)))
    (folder / "train_test_split.txt").write_text("0 1\n1 1\n2 1\n3 1\n")
    return [folder / "images.txt", folder / "train_test_split.txt"]


def read_lists(folder):
    found = read_table(str(folder / "images.txt"), "train", TableOptions(), False)
    assert len(found.paths) == len(found.labels) and found.labels.max() < len(found.class_names)


def read_label_table(folder):
    (path,) = (*folder.glob("labels.csv"), *folder.glob("labels.parquet"))
    for choices, has_several in ((("label",), False), (("labels",), True), (("ox",), True)):
        options = TableOptions(TableChoices("image", choices))
        for split in ("train", "val"):
            found = read_table(str(path), split, options, has_several)
            assert len(found.paths) == len(found.labels) and all((folder / path).is_file() for path in found.paths)
            assert found.labels.max() <= (1 if has_several else len(found.class_names) - 1)


def _idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def make_idx(folder):
    images = np.random.default_rng(0).integers(0, 256, (5, 6, 7), dtype=np.uint8)
    (folder / "t10k-images-idx3-ubyte").write_bytes(_idx(images))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(_idx(np.arange(5, dtype=np.uint8)))
    return sorted(folder.iterdir())


def make_idx_gz(folder):
    for file in make_idx(folder):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    return sorted(folder.iterdir())


def _read_dataset(kind, folder, split="val"):
    (folder / "cache").mkdir(exist_ok=True)
    dataset = kind(str(folder), split, folder / "cache")
    for index in range(min(len(dataset), 50)):
        image, label = dataset.read(index)
        assert 0 <= label < dataset.num_classes and image.size


def read_idx(folder):
    _read_dataset(Mnist, folder)


def make_cifar_archive(folder):
    write_cifar10(folder)
    return [folder / "cifar-10-python.tar.gz"]


def make_cifar(folder):
    (archive,) = make_cifar_archive(folder)
    with tarfile.open(archive) as tar:
        for member in tar:
            (folder / member.name).parent.mkdir(exist_ok=True)
            (folder / member.name).write_bytes(tar.extractfile(member).read())
    archive.unlink()
    return [folder / "cifar-10-batches-py" / "test_batch"]


def read_cifar(folder):
    _read_dataset(Cifar10, folder)


def _png():
    out = io.BytesIO()
    Image.fromarray(_pixels()).save(out, "PNG")
    return out.getvalue()


def make_tar(folder):
    with tarfile.open(folder / "val-0.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for number in range(3):
            for name, content in (
                (f"{'long' * 30}/{number}.png", _png()),
                (f"{'long' * 30}/{number}.json", b'{"label": %d, "more": [1, {"a": null}]}' % number),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return [folder / "val-0.tar"]


def read_tar(folder):
    _read_dataset(TarImages, folder)


def make_tar_index(folder):
    [made] = make_tar(folder)
    list(publish_index(folder))
    made.unlink()
    return [folder / INDEX_FILE]


def read_tar_index(folder):
    index = parse_index((folder / INDEX_FILE).read_bytes(), str(folder / INDEX_FILE))
    assert all("/" not in files.index + files.locations for files in index.splits.values())


def make_kit(folder):
    with tarfile.open(folder / f"{_KIT}.tar.gz", "w:gz", compresslevel=1) as tar:
        content = b"".join(b"%d\n" % number for number in (3, 1000, 1))
        member = tarfile.TarInfo(f"{_KIT}/data/ILSVRC2012_validation_ground_truth.txt")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return [folder / f"{_KIT}.tar.gz"]


def read_kit(folder):
    assert all(0 <= label < 1000 for label in read_kit_labels(str(folder)).values())


def make_record(folder):
    settings = {"shorter_side": 256, "quality": 90, "shard_size": 1000, "num_classes": 3}
    fingerprints = {"train": "a", "val": "b"}
    write_preparation(folder, Preparation(source="/data", fingerprints=fingerprints, complete=True, **settings))
    return [folder / "prepared.json"]


def read_record(folder):
    found = read_preparation(str(folder))
    assert found.note(str(folder)) and isinstance(found.num_classes, int)


def make_images(folder):
    image = Image.fromarray(_pixels())
    for name, more in (
        ("a.png", {}),
        ("b.jpg", {"exif": b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"}),
        ("c.gif", {"save_all": True, "append_images": [image]}),
        ("d.tiff", {"compression": "tiff_lzw"}),
        ("e.bmp", {}),
        ("f.webp", {"lossless": True}),
        ("g.ppm", {}),
        ("h.tga", {"compression": "tga_rle"}),
        ("i.ico", {"sizes": [(8, 8), (16, 16)]}),
        ("j.pcx", {}),
        ("k.sgi", {}),
        ("l.tiff", {"compression": "tiff_deflate"}),
        ("m.jp2", {}),
        ("o.dds", {}),
    ):
        image.save(folder / name, **more)
    out = io.BytesIO()
    image.resize((128, 128)).save(out, "PNG")
    icon = b"ic07" + struct.pack(">I", 8 + len(out.getvalue())) + out.getvalue()
    (folder / "n.icns").write_bytes(b"icns" + struct.pack(">I", 8 + len(icon)) + icon)  # Pillow writes each size
    image.convert("P").save(folder / "p.png", bits=4)
    image.convert("L").convert("I;16").save(folder / "q.png")
    return sorted(folder.iterdir())


def read_images(folder):
    reading = ReadConfig(exif_rotate=True)
    for file in sorted(folder.iterdir()):
        encoded = file.read_bytes()
        for mode in ("RGB", "L"):
            image = decode_image(encoded, str(file), mode, reading)
            assert image.mode == mode and np.asarray(image).size
        examine_image(encoded, str(file), "RGB", reading)


def make_jpegs(folder):
    (folder / "train" / "ant").mkdir(parents=True)
    for name, more in (("a.jpg", {}), ("b.jpg", {"progressive": True}), ("c.jpg", {"subsampling": 0})):
        Image.fromarray(_pixels(40, 48)).save(folder / "train" / "ant" / name, **more)
    return sorted((folder / "train" / "ant").iterdir())


def read_jpegs(folder):
    (folder / "cache").mkdir()
    dataset = ClassFolders(str(folder), "train", folder / "cache")
    for index in range(len(dataset)):
        for channels in (1, 3):
            pixels, label = FastReader(dataset, channels)(index)
            assert np.asarray(pixels).size <= 3 * ReadConfig().max_pixels and label == 0
