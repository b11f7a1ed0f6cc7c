"""Images with label maps in data files."""

import io
import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from support.files.hub_files import IMAGE, images, picture, write_parquet

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.manifest import MASK_LABELS
from paddlevit_dist.images.data.guessing import guess
from paddlevit_dist.images.segmentation.data.hub_label_maps import HubLabelMaps
from paddlevit_dist.images.segmentation.data.label_maps import LabelChoices

FEATURES = {"image": IMAGE, "annotation": IMAGE}


@pytest.fixture(autouse=True)
def unpacked(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLEVIT_DIST_CACHE", str(tmp_path / "shared"))


def label_map(number: int, dtype=np.uint8, kind: str = "PNG", **values: int) -> bytes:
    """A label map of the size of ``picture(number)``: 1, with a row of 0 and a pixel of another value."""
    pixels = np.ones((7, 10 + number), dtype)
    pixels[0], pixels[3, 2] = values.get("first", 0), values.get("pixel", 255)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def write(root, maps, split="train"):
    rows = pa.array([{"bytes": content, "path": None} for content in maps])
    columns = {"image": images(range(len(maps))), "annotation": rows}
    write_parquet(root / f"{split}.parquet", columns, FEATURES)
    return str(root)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_numbers_in_all_splits_are_classes_in_another_process(tmp_path, cache, dtype):
    root = write(tmp_path / "d", [label_map(0, dtype), label_map(1, dtype)])
    write(tmp_path / "d", [label_map(0, dtype, pixel=4)], "validation")
    opened = HubLabelMaps(root, "train", cache)
    dataset = pickle.loads(pickle.dumps(opened))
    assert dataset.class_names == ["0", "1", "4"] and len(dataset) == 2 and dataset.identity(1) == "train.parquet/1"
    image, labels = dataset.read(1)
    assert image.size == (11, 7) and labels.dtype == np.uint8 and labels[0].tolist() == [0] * 11
    assert labels[3, :4].tolist() == [1, 1, 255, 1] and dataset.read_labels(0).shape == (7, 10)
    assert HubLabelMaps(root, "val", cache).read_labels(0)[3, 2] == 2
    assert any("3, from the numbers in all 3 label maps" in line for line in opened.notices)


def test_a_file_lists_classes_and_zero_may_be_unlabeled(tmp_path, cache):
    root = write(tmp_path / "d", [label_map(0, pixel=2)])
    (tmp_path / "d" / "id2label.json").write_text('{"0": "sky", "1": "sea", "2": "sun"}')
    dataset = HubLabelMaps(root, "train", cache)
    assert dataset.class_names == ["sky", "sea", "sun"] and dataset.read_labels(0)[3, :3].tolist() == [1, 1, 2]
    (tmp_path / "d" / "id2label.json").rename(tmp_path / "names.txt")
    (tmp_path / "names.txt").write_text("sea\nsun\n")
    choices = LabelChoices(str(tmp_path / "names.txt"), reduce_zero_label=True)
    dataset = HubLabelMaps(root, "train", cache, choices=choices)
    assert dataset.read_labels(0)[0, 0] == 255 and dataset.read_labels(0)[3, 2] == 1


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ([label_map(0, kind="JPEG")], "train.parquet/0.*is a JPEG file, which changes class numbers"),
        ([label_map(0)[:40]], "train.parquet/0.*cannot be read as an image"),
        ([label_map(3)], r"train.parquet/0 has 10 x 7 pixels .width x height., but .*/0, annotation has 13 x 7"),
        ([None], "no row of split train has an image in image, annotation"),
    ],
)
def test_wrong_label_maps_end_in_one_line(tmp_path, cache, maps, message):
    root = write(tmp_path / "d", maps)
    with pytest.raises(UserError, match=message) as raised:
        HubLabelMaps(root, "train", cache).read(0)
    assert "\n" not in str(raised.value)


def test_more_numbers_than_classes_that_bytes_hold_are_refused(tmp_path, cache):
    maps = []
    for number in range(5):
        out = io.BytesIO()
        Image.fromarray(np.arange(70 * number, 70 * number + 70, dtype=np.uint16).reshape(7, 10)).save(out, "PNG")
        maps.append(out.getvalue())
    with pytest.raises(UserError, match="label maps with 349 numbers and no list of classes"):
        HubLabelMaps(write(tmp_path / "d", maps), "train", cache)


def test_a_small_label_map_of_a_large_size_is_not_decoded(tmp_path, cache):
    out = io.BytesIO()
    Image.new("L", (5000, 5000), 9).save(out, "PNG")
    dataset = HubLabelMaps(write(tmp_path / "d", [label_map(0), out.getvalue()]), "train", cache)
    assert dataset.class_names == ["0", "1"] and dataset.read(0)[0].width == 10
    dataset.reading = dataset.reading._replace(max_pixels=1 << 30)
    for read in (dataset.read, dataset.read_labels):
        with pytest.raises(UserError, match="has 11 x 7 pixels .width x height., but .* has 5000 x 5000"):
            read(1)


def test_metadata_name_images_and_their_label_maps_in_files(tmp_path, cache):
    root, lines = tmp_path / "d", []
    for number in range(3):
        names = f"some images/{number}.png", f"deep/er/{number} map.png"
        for name, content in zip(names, (picture(number), label_map(number, pixel=number))):
            (root / "train" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "train" / name).write_bytes(content)
        lines.append(json.dumps({"file_name": names[0], "mask_file_name": names[1]}))
    (root / "train" / "metadata.jsonl").write_text("\n".join(lines))
    assert guess(str(root), MASK_LABELS).dataset == "hub_label_maps"
    dataset = pickle.loads(pickle.dumps(HubLabelMaps(str(root), "train", cache)))
    assert dataset.class_names == ["0", "1", "2"] and dataset.identity(2) == "train/some images/2.png"
    for number in range(3):
        image, labels = dataset.read(number)
        assert image.width == 10 + number and labels.shape == (7, 10 + number) and labels[3, 2] == number
    assert dataset.peek(1, 9)[1] == (len(label_map(1, pixel=1)), label_map(1, pixel=1)[:9])
    (root / "train" / "deep" / "er" / "1 map.png").unlink()
    with pytest.raises(UserError, match="train/deep/er/1 map.png cannot be read as an image: No such file"):
        dataset.read(1)
    with pytest.raises(UserError, match="1 of 3 images that it names are missing: train/deep/er/1 map.png"):
        HubLabelMaps(str(root), "train", tmp_path / "other")


@pytest.mark.parametrize("columns", [{"annotation": pa.array([None, None], images([1]).type)}, {}])
def test_a_test_split_without_label_maps_hinders_no_training(tmp_path, cache, columns):
    root = write(tmp_path / "d", [label_map(0), label_map(1, pixel=4)])
    features = dict.fromkeys(("image", *columns), IMAGE)
    write_parquet(tmp_path / "d" / "test.parquet", {"image": images([3, 4]), **columns}, features)
    dataset = HubLabelMaps(root, "train", cache)
    assert len(dataset) == 2 and dataset.class_names == ["0", "1", "4"] and not HubLabelMaps.has_validation(root)
    assert any("split test is not searched for classes" in line for line in dataset.notices)
    with pytest.raises(UserError, match="test"):
        HubLabelMaps(root, "test", cache)
    write(tmp_path / "d", [label_map(0)], "validation")
    assert HubLabelMaps.has_validation(root) and len(HubLabelMaps(root, "val", cache)) == 1
