"""What is written next to tar files for runs that read them from an address."""

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.images.data.tar import TarImages
from paddlevit_dist.images.prepare.published_index import publish_index


def write_tar(path, names) -> None:
    with tarfile.open(path, "w") as archive:
        for name in names:
            image = io.BytesIO()
            Image.new("RGB", (4, 4), "navy").save(image, "png")
            for member, content in ((f"{name}.png", image.getvalue()), (f"{name}.cls", b"0")):
                entry = tarfile.TarInfo(member)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def test_an_index_has_the_images_and_the_tar_files_of_each_split(tmp_path):
    folder = tmp_path / "tars"
    folder.mkdir()
    with pytest.raises(UserError, match=r"tars has no tar files such as train-00000\.tar or val-00000\.tar$"):
        list(publish_index(folder))
    for name, images in (("train-00000.tar", "ab"), ("train-00001.tar", "c"), ("val-00000.tar", "d")):
        write_tar(folder / name, images)
    assert list(publish_index(folder)) == [("train", 3, 2), ("val", 1, 1)]
    first = {path.name for path in folder.iterdir()}
    write_tar(folder / "train-00001.tar", "cef")
    assert list(publish_index(folder)) == [("train", 5, 2), ("val", 1, 1)]
    text = (folder / "tar-index.json").read_text()
    index = json.loads(text)
    assert text.startswith('{\n "') and text.endswith("}\n") and (index["version"], len(index["splits"])) == (1, 2)
    tars = {"train": ["train-00000.tar", "train-00001.tar"], "val": ["val-00000.tar"]}
    files = set()
    for split, names in tars.items():
        listed, images = index["splits"][split], TarImages(str(folder), split, tmp_path)
        assert listed["shards"] == {name: (folder / name).stat().st_size for name in names}
        assert listed["key"] == images.content_key
        assert np.load(folder / listed["locations"]).shape == (len(images), 2)
        files |= {listed["index"], listed["locations"]}
    present = {path.name for path in folder.iterdir()}
    assert present == {*tars["train"], *tars["val"], "tar-index.json", *files} and first - present
