"""Small archives in the layouts CIFAR is published in."""

import io
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

TEN = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]


def python2_pickle(batch: dict[str, Any]) -> bytes:
    """Protocol 2 as Python 2 wrote it: its strings are 8-bit, whether names or the bytes of an array."""
    return b"\x80\x02" + _python2(batch) + b"."


def _python2(value: Any) -> bytes:
    if isinstance(value, str):
        return b"U" + bytes([len(value)]) + value.encode("latin1")
    if isinstance(value, bool):
        return b"\x89"
    if isinstance(value, int):
        return b"K" + bytes([value])
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(_python2(key) + _python2(item) for key, item in value.items()) + b"u"
    raw, (rows, columns) = value.tobytes(), value.shape
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"J" + struct.pack("<i", rows) + b"J" + struct.pack("<i", columns) + b"\x86"
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    return empty + b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<I", len(raw)) + raw + b"tb"


def make_batches(names: list[str], rows: int, classes: int) -> dict[str, dict[str, Any]]:
    """A batch of random images for each name."""
    generator = np.random.default_rng(0)
    return {
        name: {
            "data": generator.integers(0, 256, (rows, 3072), dtype=np.uint8),
            "labels": generator.integers(0, classes, rows).tolist(),
        }
        for name in names
    }


def write_archive(path: Path, folder: str, files: dict[str, bytes]) -> None:
    """A ``.tar.gz`` with ``files`` in ``folder``."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def pickled(batches: dict[str, dict[str, Any]], label_key: str = "labels") -> dict[str, bytes]:
    """Each batch with the keys of the published ones."""
    return {
        name: python2_pickle(
            {
                "batch_label": f"{name} of several",
                label_key: batch["labels"],
                "data": batch["data"],
                "filenames": [f"image_{row}.png" for row in range(len(batch["labels"]))],
            }
        )
        for name, batch in batches.items()
    }


def write_cifar10(folder: Path, rows: int = 3) -> dict[str, dict[str, Any]]:
    """The archive of Python batches, in the order in which archives happen to be: not the batches' own."""
    batches = make_batches(TEN, rows, 10)
    shuffled = {name: batches[name] for name in ("data_batch_4", "test_batch", *TEN[:3], "data_batch_5")}
    write_archive(folder / "cifar-10-python.tar.gz", "cifar-10-batches-py", {"readme.html": b"x", **pickled(shuffled)})
    return batches


def write_cifar100(folder: Path, rows: int = 3) -> dict[str, dict[str, Any]]:
    """The archive of Python batches."""
    batches = make_batches(["train", "test"], rows, 100)
    write_archive(folder / "cifar-100-python.tar.gz", "cifar-100-python", pickled(batches, "fine_labels"))
    return batches
