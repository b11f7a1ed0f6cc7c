"""Tar files of smaller images, written in this process."""

import io
import json
import os
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.data.prepared import read_preparation
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.images.prepare import shards
from paddlevit_dist.images.prepare.shards import PAGES, ShardSettings, prepare_shards

SMALL = ShardSettings(shorter_side=8, quality=70, shard_size=2)


def encode(size, kind="JPEG", mode="RGB", orientation=1, **options):
    values = np.random.default_rng(sum(size)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    Image.fromarray(values).convert(mode).save(out, kind, **({"exif": exif.tobytes()} if orientation > 1 else {}))
    return out.getvalue()


class Encoded:
    """Images in memory; what is not an image is torn."""

    def __init__(self, images, names=None, skipped=0):
        self.images, self.class_names, self.reading = images, names, ReadConfig()
        self.labels, self.num_classes = np.arange(len(images)) % 3, 3 + len(images)
        self.content_key = f"of {len(images)}"
        self.skipped_files = SimpleNamespace(num_images=skipped) if skipped else None

    def __len__(self):
        return len(self.images)

    def describe(self, index):
        return f"/data/set/{index}.img"

    def encoded(self, index):
        return self.images[index]


@pytest.fixture(autouse=True)
def jobs(monkeypatch):
    """Jobs run here, one after the other; what they were."""
    done = []

    def work(function, jobs, workers, total, label):
        done.append((len(jobs), workers, total, label))
        return (function(*arguments) for _, arguments in jobs)

    monkeypatch.setattr(shards, "work", work)
    return done


@pytest.mark.parametrize(
    "image, stored, suffix, size",
    [
        ((8, 20), "jpeg", None, None),  # copied
        ((9, 20), "jpeg", ".jpg", (8, 18)),
        ((40, 10), "jpeg", ".jpg", (32, 8)),
        ((8, 20), PAGES, ".ppm", (8, 20)),
        ((16, 16), PAGES, ".ppm", (8, 8)),
    ],
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_are_reduced_to_the_shorter_side(image, stored, suffix, size, mode):
    encoded = encode(image, mode=mode)
    settings = SMALL._replace(stored=stored)
    found, content = shards.shrink_image(encoded, "a", ReadConfig(), settings)
    if suffix is None:
        assert (found, content) == (".jpg", encoded)
        return
    assert found == (suffix.replace("ppm", "pgm") if mode == "L" else suffix)
    with Image.open(io.BytesIO(encoded)) as opened:
        expected = opened if size == image else opened.resize(size, Image.Resampling.BICUBIC)
        out = io.BytesIO()
        expected.load()
        expected.save(out, "PPM" if suffix == ".ppm" else "JPEG", **({} if suffix == ".ppm" else {"quality": 70}))
    assert content == out.getvalue()


def test_orientations_are_stored_and_other_formats_become_jpegs():
    turned = encode((20, 30), orientation=6)
    for stored in ("jpeg", PAGES):
        suffix, content = shards.shrink_image(turned, "a", ReadConfig(), SMALL._replace(stored=stored))
        with Image.open(io.BytesIO(content)) as image:
            assert (suffix, image.format, image.size, image.getexif()[0x0112]) == (".jpg", "JPEG", (8, 12), 6)
    suffix, content = shards.shrink_image(encode((4, 4), "PNG", "RGBA"), "a", ReadConfig(), SMALL)
    with Image.open(io.BytesIO(content)) as image:
        assert (suffix, image.format, image.mode, image.size) == (".jpg", "JPEG", "RGB", (4, 4))
        assert not image.getexif()
    assert shards.shrink_image(encode((1, 64)), "a", ReadConfig(), SMALL)[0] == ".jpg"


def list_members(file):
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def test_splits_are_written_in_order_and_a_second_run_makes_what_is_missing(tmp_path, jobs):
    images = {
        split: [encode((6, 7 + number)) for number in range(count)] for split, count in (("train", 5), ("val", 1))
    }
    datasets = {split: Encoded(images[split], ["ant", "bee\udce9"]) for split in images}
    output = tmp_path / "new" / "out"
    output.mkdir(parents=True)
    old, new, other = (output / name for name in ("val-00000.tar.1.tmp", "x.tar.2.tmp", "x.tmp"))
    made = prepare_shards(datasets, "/data", output, SMALL, 4)
    assert jobs == [(4, 4, 6, "preparing")]
    assert made == read_preparation(str(output)) and (made.num_classes, made.left_out, made.complete) == (8, 0, True)
    assert made.fingerprints == {"train": "of 5", "val": "of 1"} and made.source == "/data" and made.stored == "jpeg"
    assert (made.shorter_side, made.quality, made.shard_size) == (8, 70, 2)
    assert (output / "classes.txt").read_bytes() == b"ant\nbee\xe9\n"
    names = ["train-00000.tar", "train-00001.tar", "train-00002.tar", "val-00000.tar"]
    assert sorted(path.name for path in output.glob("*.tar")) == names
    members = list_members(output / names[1])
    assert list(members) == ["000000002.jpg", "000000002.json", "000000003.jpg", "000000003.json"]
    assert members["000000003.jpg"] == images["train"][3]
    assert json.loads(members["000000003.json"]) == {"label": 0, "source": "set/3.img"}
    assert list(list_members(output / names[2])) == ["000000004.jpg", "000000004.json"]
    before = (output / names[0]).stat().st_ino
    (output / names[1]).unlink()
    for path in (old, new, other):
        path.touch()
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))
    os.utime(new, (2**33, 2**33))
    assert prepare_shards(datasets, "/data", output, SMALL, 2) == made and jobs[1] == (1, 2, 2, "preparing")
    assert list(list_members(output / names[1])) == list(members) and (output / names[0]).stat().st_ino == before
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)
    assert not list(output.glob("quarantine*"))


def test_unreadable_images_are_skipped_and_listed_once(tmp_path):
    images = [encode((6, 6)), b"torn", encode((6, 7)), b"", b"torn too"]
    datasets = {"train": Encoded(images, skipped=7), "val": Encoded(images[:1])}
    skipping = SMALL._replace(skip_bad=True)
    made = prepare_shards(datasets, "/data", tmp_path / "out", skipping, 1)
    assert made.left_out == 3 + 7
    lines = (tmp_path / "out" / "quarantine.tsv").read_text().splitlines()
    assert lines[0] == "path\treason" and [line.split("\t")[0] for line in lines[1:]] == [
        f"/data/set/{number}.img" for number in (1, 3, 4)
    ]
    assert not list((tmp_path / "out").glob("*.unreadable")) and not (tmp_path / "out" / "classes.txt").exists()
    assert list(list_members(tmp_path / "out" / "train-00000.tar")) == ["000000000.jpg", "000000000.json"]
    assert list_members(tmp_path / "out" / "train-00002.tar") == {}
    assert prepare_shards(datasets, "/data", tmp_path / "out", skipping, 1).left_out == 10  # as listed before


def test_what_cannot_be_prepared_is_refused(refuse, tmp_path):
    torn = {"train": Encoded([b"torn"])}
    said = refuse(prepare_shards, torn, "/data", tmp_path / "torn", SMALL, 1)
    assert said.startswith("/data/set/0.img cannot be read as an image: ") and said.endswith(
        "; repair it, or skip such images with --on_bad_sample=skip (prepare images IN without OUT lists them all)"
    )
    datasets = {"train": Encoded([encode((6, 6))])}
    assert prepare_shards(datasets, "/data", tmp_path / "torn", SMALL, 1).complete  # once it is repaired
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    said = refuse(prepare_shards, datasets, "/data", tmp_path / "full", SMALL, 1)
    assert said == f"{tmp_path}/full is not empty and has no prepared.json; choose a new folder"
    said = refuse(prepare_shards, datasets, "/data", tmp_path / "full" / "mine", SMALL, 1)
    assert said == f"{tmp_path}/full/mine cannot be created: File exists; choose another folder"
    prepare_shards(datasets, "/data", tmp_path / "out", SMALL, 1)
    said = refuse(prepare_shards, datasets, "/data", tmp_path / "out", SMALL._replace(quality=71), 1)
    assert said == (
        f"{tmp_path}/out was prepared with other settings (quality 70, now 71); give the same ones or choose a new "
        "folder"
    )
