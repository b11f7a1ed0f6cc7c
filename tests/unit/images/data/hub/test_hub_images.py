"""Images with classes and several labels in data files."""

import io
import pickle

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from support.files.hub_files import IMAGE, classes, images, picture, write_arrow, write_parquet, write_saved

from paddlevit_dist import UserError
from paddlevit_dist.images.data.held_out import hold_out
from paddlevit_dist.images.data.hub.columns import HubChoices
from paddlevit_dist.images.data.hub.hub_images import HubImages, HubLabelSets, HubUnlabeled
from paddlevit_dist.images.data.hub.opening import HubOptions
from paddlevit_dist.images.data.parts import PartReader

FEATURES = {"image": IMAGE, "label": classes()}


@pytest.fixture(autouse=True)
def unpacked(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLEVIT_DIST_CACHE", str(tmp_path / "shared"))
    return tmp_path / "shared" / "datasets"


def write(root, numbers=(4, 1, 3), labels=(2, 0, 1), features=FEATURES, kind=None, **options):
    return write_parquet(root / "train.parquet", {"image": images(numbers, kind), "label": labels}, features, **options)


def options(kind, **chosen):
    return HubOptions(HubChoices(**chosen), kind.contents)


def sizes(dataset):
    return [dataset.read(index)[0].width - 10 for index in range(len(dataset))]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("form", ["parquet", "stream", "compressed", "file"])
def test_images_of_each_form_have_their_bytes_and_labels_in_another_process(tmp_path, cache, kind, form):
    if str(kind) == "binary_view" and form == "parquet":
        kind = pa.binary()  # is not written by older versions
    columns, root = {"image": images([4, 1, 3], kind), "label": [2, 0, 1]}, tmp_path / "data"
    if form == "parquet":
        write_parquet(root / "train.parquet", columns, FEATURES, row_group_size=2)
    elif form == "file":
        table = pa.table(columns)
        root.mkdir()
        with pa.ipc.new_file(str(root / "train.arrow"), table.schema) as writer:
            writer.write_table(table)
    else:
        write_arrow(root / "train.arrow", columns, FEATURES, compression="zstd" if form == "compressed" else None)
    dataset = HubImages(str(root), "train", cache)
    content = pickle.dumps(dataset)
    dataset = pickle.loads(content)
    assert len(content) < 1500 and sizes(dataset) == [4, 1, 3] and dataset.labels.tolist() == [2, 0, 1]
    assert [dataset.encoded(index) for index in range(3)] == list(map(picture, (4, 1, 3)))
    assert dataset.part(1, 2, 5).tobytes() == picture(1)[2:7] and dataset.peek(0, 4) == [
        (len(picture(4)), picture(4)[:4])
    ]
    assert dataset.identity(2) == ("train.parquet/2" if form == "parquet" else "train.arrow/2")
    assert dataset.class_names == (["0", "1", "2"] if form == "file" else ["ant", "bee", "cow"])


def test_rows_without_image_or_label_are_counted_and_not_used(tmp_path, cache):
    write(tmp_path / "data", [4, None, 1, 3, 2], [2, 0, -1, None, 1])
    dataset = HubImages(str(tmp_path / "data"), "train", cache)
    assert dataset.labels.tolist() == [2, 1] and sizes(dataset) == [4, 2] and dataset.identity(1) == "train.parquet/4"
    told = "\n".join(dataset.notices)
    assert "1 row without image not used" in told and "2 images without a label not used" in told


@pytest.mark.parametrize(("mode", "is_told"), [("L", True), ("RGB", False), (None, False)])
def test_a_mode_that_the_type_converts_images_to_is_told(tmp_path, cache, mode, is_told):
    write(tmp_path / "data", features={"image": {**IMAGE, "mode": mode}, "label": classes()})
    notices = HubImages(str(tmp_path / "data"), "train", cache).notices
    assert ("note: datasets converts column image to mode L: " in notices[0]) == is_told


def test_texts_are_classes_in_their_order_and_those_of_training_count(tmp_path, cache):
    root = tmp_path / "data"
    write(root, labels=["cow", "ant", "ant"], features=None)
    write_parquet(root / "test.parquet", {"image": images([5]), "label": ["cow"]})
    train, val = (HubImages(str(root), split, cache) for split in ("train", "val"))
    assert train.class_names == val.class_names == ["ant", "cow"] and val.labels.tolist() == [1]
    assert HubImages.has_validation(str(root)) and "are split test" in val.notices[0]
    write_parquet(root / "test.parquet", {"image": images([5]), "label": ["emu"]})
    with pytest.raises(UserError, match="1 label that no training image has: emu"):
        HubImages(str(root), "val", cache)


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_unused_categories_are_no_classes(tmp_path, cache, form):
    labels = pa.DictionaryArray.from_arrays(pa.array([3, 1, None], pa.int8()), pa.array(["a", "b", "c", "d"]))
    columns = {"image": images([4, 1, 3]), "label": labels}
    (write_parquet if form == "parquet" else write_arrow)(tmp_path / "d" / f"train.{form}", columns)
    dataset = HubImages(str(tmp_path / "d"), "train", cache)
    assert dataset.class_names == ["b", "d"] and dataset.labels.tolist() == [1, 0]


def test_numbers_without_names_are_ordered_by_value(tmp_path, cache):
    write(tmp_path / "data", labels=[10, 2, 2], features=None)
    dataset = HubImages(str(tmp_path / "data"), "train", cache)
    assert dataset.class_names == ["2", "10"] and dataset.labels.tolist() == [1, 0, 0]


def test_a_part_is_held_out_and_crops_read_a_part_of_the_bytes(tmp_path, cache):
    write_saved(
        tmp_path / "d",
        {"train": {"image": images(range(8)), "label": [0, 1] * 4}},
        {**FEATURES, "label": classes("a", "b")},
    )
    dataset = HubImages(str(tmp_path / "d"), "train", cache)
    parts = [hold_out(dataset, split, 0.25, 0, cache) for split in ("train", "val")]
    assert sorted(sizes(parts[0]) + sizes(parts[1])) == list(range(8)) and len(parts[1]) == 2
    assert PartReader(pickle.loads(pickle.dumps(parts[1])))(0)[0].size[0] - 10 == sizes(parts[1])[0]
    assert not HubImages.has_validation(str(tmp_path / "d"))


def test_data_say_how_they_are_published(tmp_path, cache, monkeypatch):
    commit = "c0ffee" * 6 + "abcd"
    for name, splits in (
        ("folder", ("train", "test")),
        (f"datasets--me--tiny/snapshots/{commit}", ("train", "validation")),
    ):
        for split in splits:
            write_parquet(
                tmp_path / name / f"{split}.parquet", {"image": images([4, 1, 3]), "label": [2, 2, 1]}, FEATURES
            )
    references = tmp_path / "datasets--me--tiny" / "refs"
    references.mkdir()
    (references / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "datasets--me--tiny" / "snapshots" / commit / "README.md").write_text("---\nlicense: mit\n---\n")
    local = HubImages(str(tmp_path / "folder"), "val", cache)
    assert local.published_as == {"configuration": "default", "split": "test"}
    fetched = HubImages("hf:me/tiny", "val", cache)
    facts = {"repository": "me/tiny", "revision": commit, "configuration": "default"}
    assert fetched.published_as == {**facts, "split": "validation"}
    training = HubImages("hf:me/tiny", "train", cache)
    assert hold_out(training, "val", 0.4, 0, cache).published_as == {**facts, "split": "train", "share": 0.4}


def test_images_may_be_files_that_the_rows_name(tmp_path, cache):
    root = tmp_path / "data"
    (root / "below").mkdir(parents=True)
    (root / "below" / "q.png").write_bytes(picture(6))
    rows = [{"bytes": None, "path": "below/q.png"}, {"bytes": picture(2), "path": None}]
    write_parquet(root / "train.parquet", {"image": pa.array(rows), "label": [1, 0]}, FEATURES)
    dataset = HubImages(str(root), "train", cache)
    assert sizes(dataset) == [6, 2] and dataset.identity(0) == "below/q.png" and dataset.num_bytes(0) == len(picture(6))


def test_the_unpacked_file_is_written_once_and_again_if_it_is_damaged(tmp_path, cache, unpacked):
    root = tmp_path / "data"
    write(root)
    HubImages(str(root), "train", cache)
    [file] = unpacked.glob("*.unpacked")
    written = file.stat().st_mtime_ns
    HubImages(str(root), "train", cache)
    assert file.stat().st_mtime_ns == written
    file.write_bytes(file.read_bytes()[:100])
    assert sizes(HubImages(str(root), "train", cache)) == [4, 1, 3]
    file.unlink()
    assert sizes(HubImages(str(root), "train", cache)) == [4, 1, 3]
    write(root, [7], [0])
    assert sizes(HubImages(str(root), "train", cache)) == [7]


def test_what_identifies_the_data_depends_on_labels_and_not_on_the_place(tmp_path, cache):
    keys = []
    for folder, labels in (("a", [2, 0, 1]), ("b", [2, 0, 1]), ("c", [2, 0, 0])):
        write(tmp_path / folder, labels=labels)
        keys.append(HubImages(str(tmp_path / folder), "train", cache).content_key)
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("labels", "features", "wanted", "names"),
    [
        (
            [[2, 0], [], None],
            {"_type": "List", "feature": classes()},
            [[1, 0, 1], [0, 0, 0], [-1, -1, -1]],
            ["ant", "bee", "cow"],
        ),
        ([["b", "a"], ["c"], []], None, [[1, 1, 0], [0, 0, 1], [0, 0, 0]], ["a", "b", "c"]),
        ([[0, 1, 0], [1, 1, 0], [0, 0, 0]], None, [[0, 1, 0], [1, 1, 0], [0, 0, 0]], ["0", "1", "2"]),
        ([2, None, 0], classes(), [[0, 0, 1], [-1, -1, -1], [1, 0, 0]], ["ant", "bee", "cow"]),
        ([[True, False, True], [False] * 3, None], None, [[1, 0, 1], [0, 0, 0], [-1, -1, -1]], ["0", "1", "2"]),
        ([[1.0, 0.0, -1.0], [0.0] * 3, [1.0] * 3], None, [[1, 0, -1], [0, 0, 0], [1, 1, 1]], ["0", "1", "2"]),
        (
            [[2, -1], [-1], []],
            {"_type": "List", "feature": classes()},
            [[0, 0, 1], [-1, -1, -1], [0, 0, 0]],
            ["ant", "bee", "cow"],
        ),
    ],
)
def test_lists_of_labels_are_a_matrix(tmp_path, cache, labels, features, wanted, names):
    write(tmp_path / "data", labels=labels, features=features and {"image": IMAGE, "label": features})
    dataset = pickle.loads(pickle.dumps(HubLabelSets(str(tmp_path / "data"), "train", cache)))
    assert dataset.label_matrix.tolist() == wanted and dataset.class_names == names and dataset.labels is None
    assert dataset.label_matrix.dtype == np.int8 and dataset.read(0)[1].tolist() == wanted[0]


def test_columns_of_classes_are_a_matrix(tmp_path, cache):
    columns = {"image": images([1, 2, 3]), "cat": [1, 0, None], "dog": [True, False, True]}
    write_parquet(tmp_path / "d" / "train.parquet", columns)
    dataset = HubLabelSets(str(tmp_path / "d"), "train", cache, options(HubLabelSets, labels=("cat", "dog")))
    assert dataset.label_matrix.tolist() == [[1, 1], [0, 0], [-1, 1]] and dataset.class_names == ["cat", "dog"]
    inside = [{"cat": 1, "dog": True}, {"cat": 0, "dog": None}]
    write_parquet(tmp_path / "e" / "train.parquet", {"image": images([1, 2]), "has": inside})
    dataset = HubLabelSets(str(tmp_path / "e"), "train", cache, options(HubLabelSets, labels=("has.cat", "has.dog")))
    assert dataset.label_matrix.tolist() == [[1, 1], [0, -1]]


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ([7, -1, 3, 7], ["7", None, "3", "7"]),
        ([1, -1, 1, -1], ["1", "-1", "1", "-1"]),
        ([0, -1, 0, 1], ["0", None, "0", "1"]),
        (["b", "-1", "a", "b"], ["b", "-1", "a", "b"]),
        ([2.0, float("nan"), 1.0, 2.0], ["2", None, "1", "2"]),
    ],
)
def test_minus_one_is_no_label_among_numbers(tmp_path, cache, labels, wanted):
    write(tmp_path / "data", range(4), labels, None)
    write_parquet(tmp_path / "data" / "test.parquet", {"image": images(range(4)), "label": labels})
    for split in ("train", "test"):
        dataset = HubImages(str(tmp_path / "data"), split, cache)
        kept = [(number, name) for number, name in enumerate(wanted) if name is not None]
        found = [dataset.class_names[label] for label in dataset.labels]
        assert list(zip(sizes(dataset), found)) == kept
        assert sorted(dataset.class_names) == sorted({name for _, name in kept})


def test_labels_may_be_in_a_struct_and_names_of_columns_have_points(tmp_path, cache):
    columns = {"a.image": images([1, 2, 3]), "about": [{"label": number} for number in (5, 6, 5)], "a.tag": [1, 2, 1]}
    write_parquet(tmp_path / "d" / "train.parquet", columns)
    for name, numbers in (("about.label", "565"), ("a.tag", "121")):
        dataset = HubImages(str(tmp_path / "d"), "train", cache, options(HubImages, labels=(name,)))
        assert sizes(dataset) == [1, 2, 3] and [dataset.class_names[label] for label in dataset.labels] == [*numbers]
    for chosen, key in (({"labels": ("about.nothing",)}, "LABELS"), ({"image": "about.label"}, "IMAGE")):
        with pytest.raises(UserError, match=rf"has no column about\..* \(DATA.TABLE.{key}\), only a.image \(image\)"):
            HubImages(str(tmp_path / "d"), "train", cache, options(HubImages, **chosen))
    inside = [{"photo": image} for image in images([1, 2]).to_pylist()]
    write_parquet(tmp_path / "e" / "train.parquet", {"sample": inside, "label": [0, 1]})
    with pytest.raises(UserError, match="no column of images.*; write the images inside of sample to a column of"):
        HubImages(str(tmp_path / "e"), "train", cache)


def test_images_without_labels_are_for_tasks_that_read_none(tmp_path, cache):
    write_parquet(tmp_path / "d" / "train.parquet", {"x": images([1, 2])}, {"x": IMAGE})
    dataset = HubUnlabeled(str(tmp_path / "d"), "train", cache)
    assert sizes(dataset) == [1, 2] and dataset.labels is None and dataset.num_classes is None
    columns = {"x": images([1, 2, 3]), "label": [0, -1, 1]}
    write_parquet(tmp_path / "e" / "train.parquet", columns, {"x": IMAGE, "label": classes()})
    partly = HubUnlabeled(str(tmp_path / "e"), "train", cache)
    assert sizes(partly) == [1, 2, 3] and partly.labels is None
    with pytest.raises(UserError, match="no column of labels among x .image."):
        HubImages(str(tmp_path / "d"), "train", cache)


@pytest.mark.parametrize(
    ("labels", "features", "message"),
    [
        ([0, 3, 1], FEATURES, "class 3, expected 0 to 2, or -1"),
        ([0, -2, 1], FEATURES, "class -2, expected 0 to 2"),
        ([0.5, 1.0, 2.0], FEATURES, "its labels have 0.5, expected whole numbers of classes"),
        ([np.inf, 1.0, 2.0], None, "its labels have inf, expected whole numbers"),
        (
            [[0, 1], [1], []],
            {"image": IMAGE, "label": {"_type": "List", "feature": classes()}},
            "1 image with several labels",
        ),
        ([0, 1, 2], {"image": IMAGE, "label": {"_type": "List", "feature": classes()}}, "expected lists, found int64"),
        ([-1, -1, -1], FEATURES, "no row of split train has a label"),
        (["a", "b", "c"], {"image": {"_type": "Value", "dtype": "string"}, "label": IMAGE}, "images|no column"),
    ],
)
def test_wrong_labels_end_in_one_line(tmp_path, cache, labels, features, message):
    write(tmp_path / "data", labels=labels, features=features)
    with pytest.raises(UserError, match=message) as raised:
        HubImages(str(tmp_path / "data"), "train", cache)
    assert "\n" not in str(raised.value)


def test_a_damaged_image_is_named_with_its_row(tmp_path, cache):
    rows = [{"bytes": picture(1)[:45], "path": "a.png"}, {"bytes": b"", "path": None}]
    write_parquet(tmp_path / "d" / "train.parquet", {"image": pa.array(rows), "label": [0, 1]}, FEATURES)
    dataset = HubImages(str(tmp_path / "d"), "train", cache)
    for index in range(2):
        with pytest.raises(UserError, match=f"train.parquet/{index} cannot be read as an image"):
            dataset.read(index)
    assert Image.open(io.BytesIO(picture(1))).size == (11, 7)


@pytest.mark.parametrize("columns", [{"label": [-1, -1]}, {"label": pa.array([None, None], pa.int64())}, {}])
def test_a_test_split_without_labels_is_no_validation(tmp_path, columns):
    features = {"image": IMAGE, "label": classes()}
    write_parquet(tmp_path / "train.parquet", {"image": images([1, 2]), "label": [0, 1]}, features)
    test = {"image": images([3, 4]), **columns}
    write_parquet(tmp_path / "test.parquet", test, {name: features[name] for name in test})
    assert not HubImages.has_validation(str(tmp_path))
    write_parquet(tmp_path / "test.parquet", {**test, "label": [-1, 1]}, features)
    assert HubImages.has_validation(str(tmp_path))
