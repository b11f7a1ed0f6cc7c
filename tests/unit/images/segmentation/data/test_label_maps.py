"""Label maps as a run meets them: shares held out, damaged files, what is told before the training."""

import numpy as np
import pytest
from PIL import Image
from support.files.label_map_layouts import SIZE, labelme, photo, save

from paddlevit_dist import UserError
from paddlevit_dist.core.data.path_index import PathIndex
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data.label_pixels import LabelPixels
from paddlevit_dist.images.segmentation.data.label_maps import LabelMaps, LabelTable, _channels
from paddlevit_dist.images.segmentation.data.segmentation_dataset import summarize_labels
from paddlevit_dist.images.segmentation.samples import LabelMapsPart
from paddlevit_dist.images.segmentation.task import ImageSegmentation


@pytest.fixture
def root(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def write(root, maps, place="{0}/{1}.{2}"):
    for number, labels in enumerate(maps):
        photo(root / place.format("images", number, "jpg"))
        save(root / place.format("masks", number, "png"), labels)
    (root / "classes.txt").write_text("ground\nbox\nnever\n")


def make_samples(root, split, *settings):
    named = ["-cfg=segformer_b0_shapes", f"-data_path={root}", f"-output={root.parent / 'run'}", *settings]
    task = ImageSegmentation(load(named, default_recipe="vit_digits").values)
    return task.build_dataset(split, root.parent / "cache")


def test_machines_see_images_and_label_maps(root):
    write(root, [np.full(SIZE, number % 2) for number in range(3)], "{0}/train/{1}.{2}")
    dataset = make_samples(root, "train").dataset
    for index in range(3):
        image = root / "images" / "train" / f"{index}.jpg"
        files = [content.read_bytes() for content in (image, root / "masks" / "train" / f"{index}.png")]
        assert dataset.peek(index, 9) == [(len(content), content[:9]) for content in files]


def test_a_share_is_held_out_and_both_keep_their_labels(root):
    write(root, [np.full(SIZE, number % 2) for number in range(10)])
    parts = [make_samples(root, split, "DATA.VAL_FRACTION", "0.3") for split in ("train", "val")]
    assert [len(part) for part in parts] == [7, 3]
    assert isinstance(parts[0].dataset, LabelMapsPart) and parts[0].is_random_split
    names = [{part.name(index) for index in range(len(part))} for part in parts]
    assert names[0] | names[1] == {f"images/{number}.jpg" for number in range(10)} and not names[0] & names[1]
    for part in parts:
        for index in range(len(part)):
            number = int(part.name(index)[len("images/") : -len(".jpg")])
            assert (part.dataset.read_labels(index) == number % 2).all()


def test_a_run_tells_what_it_has_found_and_how_often_each_class_occurs(root):
    write(root, [np.zeros(SIZE), np.ones(SIZE), np.zeros(SIZE)], "{0}/train/{1}.{2}")
    assert make_samples(root, "train").notices == [
        f"train: 3 images in {root}: images and label maps",
        f"3 classes of {root}/classes.txt: ground, box, never",
        "opened all 3 images of train",
        "images of train: 9 x 6 color -> at 0.75 to 1.5 times the size, crops of 64 x 64 color",
        "labels of train, in all 3 label maps: ground 66.7 %, box 33.3 %; unlabeled 0 % of all pixels",
        "warning: 1 of 3 classes do not occur in them: never",
    ]


def test_a_damaged_label_map_ends_a_training_or_the_next_one_takes_its_place(root):
    write(root, [np.zeros(SIZE), np.ones(SIZE)], "{0}/train/{1}.{2}")
    damaged = root / "masks/train/0.png"
    damaged.write_bytes(damaged.read_bytes()[:45])
    with pytest.raises(UserError, match="0.png cannot be read as an image.*repair or remove it"):
        make_samples(root, "train")
    (root.parent / "run").mkdir()
    samples = make_samples(root, "train", "DATA.ON_INVALID_SAMPLE", "skip", "DATA.CROP_SIZE", "[4, 6]")
    assert any("one of them cannot be read and is replaced by the next" in notice for notice in samples.notices)
    assert (samples.sample(0, np.random.default_rng(0)).labels == 1).any()


def test_labels_are_counted_and_odd_ones_told(root):
    half = np.zeros(SIZE)
    half[:3] = 1
    half[:, -1] = 255
    write(root, [half, np.zeros(SIZE)], "{0}/train/{1}.{2}")
    counted, warned = summarize_labels(LabelMaps(str(root), "train", root.parent / "cache"), "train")
    # 6 x 9 pixels twice, of which 6 have no class and 3 x 8 are boxes
    assert counted == (
        f"labels of train, in all 2 label maps: ground {100 * 78 / 102:.3g} %, box {100 * 24 / 102:.3g} %; "
        f"unlabeled {100 * 6 / 108:.3g} % of all pixels"
    )
    assert warned == "warning: 1 of 3 classes do not occur in them: never"
    maps = sorted((root / "masks" / "train").iterdir())
    maps[0].write_bytes(maps[0].read_bytes()[:45])
    damaged = LabelMaps(str(root), "train", root.parent / "cache")
    assert summarize_labels(damaged, "train")[0].startswith("labels of train, in 1 of 2 label maps: ground 100 %;")
    maps[1].write_bytes(maps[1].read_bytes()[:45])
    assert summarize_labels(damaged, "train") == []  # a training reports them


@pytest.mark.parametrize(
    "value, told",
    [(1, "nearly all labeled pixels are box"), (255, "no pixel of all 1 label maps of train has")],
)
def test_label_maps_of_one_class_or_of_none(value, told, root):
    write(root, [np.full(SIZE, value)], "{0}/train/{1}.{2}")
    lines = summarize_labels(LabelMaps(str(root), "train", root.parent / "cache"), "train")
    assert any(told in line for line in lines) and not any("nearly all pixels are unlabeled" in line for line in lines)


def test_label_maps_with_nearly_nothing_labeled(root):
    size = (30, 40)
    labels = np.full(size, 255)
    labels[0, :2] = 0, 1
    Image.new("RGB", size[::-1]).save(root / "0.jpg")
    for name in ("images", "masks"):
        (root / name / "train").mkdir(parents=True)
    (root / "0.jpg").rename(root / "images/train/0.jpg")
    Image.fromarray(labels.astype(np.uint8)).save(root / "masks/train/0.png")
    lines = summarize_labels(LabelMaps(str(root), "train", root.parent / "cache"), "train")
    assert lines[-1].startswith("warning: nearly all pixels are unlabeled: is 255 a class, or 0 (REDUCE_ZERO_LABEL)?")


@pytest.mark.parametrize(
    "listed, numbers",
    [
        ("void,0,0,0\ncar,128,128,128\ntree,255,255,255\n", [[128, 0, 255], [255, 255, 128]]),  # gray levels
        ("void,0,0,0\ncar,128,0,0\ntree,0,128,0\n", [[1, 0, 2], [2, 2, 1]]),  # places in the list
    ],
)
def test_gray_label_maps_with_a_list_of_colors(listed, numbers, root):
    for name in ("images", "masks"):
        (root / name / "train").mkdir(parents=True)
    (root / "classes.csv").write_text(f"name,r,g,b\n{listed}")
    Image.new("RGB", (3, 2)).save(root / "images/train/0.jpg")
    Image.fromarray(np.array(numbers, np.uint8)).save(root / "masks/train/0.png")
    dataset = LabelMaps(str(root), "train", root.parent / "cache")
    assert dataset.class_names == ["car", "tree"] and dataset.read_labels(0).tolist() == [[0, 255, 1], [1, 1, 0]]


def test_an_unknown_label_ends_a_run_before_its_first_epoch(root):
    write(root, [np.full(SIZE, 9)], "{0}/train/{1}.{2}")
    with pytest.raises(UserError, match=r"0.png has the label 9 at row 0, column 0.*classes are from .*classes.txt"):
        make_samples(root, "train", "DATA.ON_INVALID_SAMPLE", "skip")


def test_the_list_of_files_is_one_memory_mapped_file(root):
    write(root, [np.zeros(SIZE)] * 3, "{0}/train/{1}.{2}")
    dataset = LabelMaps(str(root), "train", root.parent / "cache")
    (file,) = (root.parent / "cache").glob("label-maps-train-*.index")
    index = PathIndex(file)
    assert [index.path(entry) for entry in range(3)] == ["images/train/0.jpg", "masks/train/0.png", ""]
    again = LabelMaps(str(root), "train", root.parent / "cache")
    assert b"".join(map(bytes, again.listed()["names"])) == b"".join(map(bytes, dataset.listed()["names"]))


def test_classes_of_all_files_are_looked_up_again_only_where_one_has_changed(root):
    labelme(root)
    assert LabelMaps(str(root), "train", root.parent / "cache").class_names == ["background", "cat", "dog"]
    text = (root / "a.json").read_text().replace('"dog"', '"wolf"')
    (root / "a.json").write_text(text)
    assert LabelMaps(str(root), "train", root.parent / "cache").class_names == ["background", "cat", "wolf"]


def test_more_classes_than_labels_can_be(root):
    write(root, [np.zeros(SIZE)], "{0}/train/{1}.{2}")
    (root / "classes.txt").write_text("\n".join(f"class {'x' * number}" for number in range(1, 258)))
    with pytest.raises(UserError, match="has 257 classes; expected 1 to 255"):
        LabelMaps(str(root), "train", root.parent / "cache")


@pytest.mark.parametrize("format", ["PNG", "TIFF", "BMP", "GIF"])
def test_label_maps_of_any_format_without_loss(format, root):
    labels = np.arange(54).reshape(SIZE) % 3
    photo(root / "images/train/0.jpg")
    (root / "masks/train").mkdir(parents=True)
    Image.fromarray(labels.astype(np.uint8)).save(root / f"masks/train/0.{format}", format)
    assert np.array_equal(LabelMaps(str(root), "train", root.parent / "cache").read_labels(0), labels)


def test_a_palette_may_have_colors_of_no_class():
    wall, door, ground, other = (red + 256 * green + 65_536 * blue for red, green, blue in
                                 ((1, 2, 3), (3, 2, 1), (0, 0, 9), (7, 7, 8)))  # fmt: skip
    table = LabelTable({}, {wall: 0, door: 1, ground: 2}, "")
    palette = np.array([door, other, ground, wall], np.int32)
    numbers = np.array([[0, 2, 3], [3, 3, 0]], np.uint8)
    assert table.labels(LabelPixels(numbers, False, palette), "a.png").tolist() == [[1, 2, 0], [0, 0, 1]]
    numbers[1, 2] = 1
    with pytest.raises(UserError, match=r"a\.png.* 1 .*row 1, column 2"):
        table.labels(LabelPixels(numbers, False, palette), "a.png")


def test_the_channels_of_a_packed_color_are_red_green_and_blue():
    assert _channels(1 + (200 << 8) + (255 << 16)) == (1, 200, 255) and _channels(255) == (255, 0, 0)
