"""COCO's files and their images: read as COCO's tools do, wherever and however people store them."""

import functools
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from support.files.coco_writer import BOX, CATEGORIES, annotation, refused_by, write_coco, write_image

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.images.data.inspection import SplitInspection
from paddlevit_dist.images.data.quarantine import ReplacementReader
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.samples import DetectionSamples, open_samples
from paddlevit_dist.images.detection.data.transforms import DetectionEvaluationTransform
from paddlevit_dist.images.run_lengths import decode

TRIANGLE = [[2.0, 3.0, 12.0, 3.0, 2.0, 11.0]]


refused = functools.partial(refused_by, Coco)


def pickled_size(dataset, folder):
    """Bytes that each loader process gets, without the path of the folder."""
    return len(pickle.dumps(dataset).replace(str(folder).encode(), b""))


def test_everything_is_as_coco_s_own_tools_have_it(tmp_path, cache):
    generator = np.random.default_rng(0)
    images, annotations = [], []
    for number in generator.permutation(40).tolist():
        images.append({"id": 5 * number, "file_name": f"{number}.png", "height": 40, "width": 50 + number})
        for _ in range(generator.integers(0, 4)):
            box = generator.integers(0, 25, 4).astype(float).tolist()
            x, y, w, h = box
            shape = [[x, y, x + w + 1, y, x + w / 2, y + h + 2]]
            if generator.random() < 0.2:
                shape = {"size": [40, 50 + number], "counts": [100, 30, 40 * (50 + number) - 130]}
            more = {"iscrowd": int(isinstance(shape, dict)), "segmentation": shape}
            annotations.append(annotation(0, 5 * number, box, int(generator.choice([3, 7])), **more))
    generator.shuffle(annotations)
    for number, one in enumerate(annotations):
        one["id"] = 1000 - number
    path = write_coco(tmp_path, annotations, images=images)
    write_image(tmp_path / "train2017" / "0.png", 40, 50)
    theirs = COCO(str(path))
    ours = pickle.loads(pickle.dumps(Coco(str(tmp_path), "train", cache)))
    assert pickled_size(ours, tmp_path) <= 1000
    assert ours.category_ids == tuple(sorted(theirs.getCatIds())) and ours.class_names == ["dog", "ant", "cat"]
    assert len(ours) == 40 and ours.has_masks and ours.labeled
    assert ours.image_ids.tolist() == [image["id"] for image in images]
    assert ours.image_ids.dtype == ours.sizes.dtype == np.int64
    for index in range(40):
        image = theirs.loadImgs(ours.image_id(index))[0]
        assert ours.size(index) == (image["height"], image["width"]) and ours.describe(index).endswith(
            image["file_name"]
        )
        entries, found = theirs.imgToAnns[image["id"]], ours.annotations(index)
        assert found.boxes.shape == (len(entries), 4)
        assert found.boxes.tolist() == [entry["bbox"] for entry in entries]
        assert [ours.category_ids[label] for label in found.labels] == [entry["category_id"] for entry in entries]
        assert found.areas.tolist() == [entry["area"] for entry in entries]
        assert found.is_crowd.tolist() == [bool(entry["iscrowd"]) for entry in entries]
        assert found.ids.tolist() == [entry["id"] for entry in entries]
        dtypes = [values.dtype for values in (found.boxes, found.labels, found.areas, found.is_crowd, found.ids)]
        assert dtypes == [np.float64, np.int64, np.float64, bool, np.int64]
        for mask, entry in zip(found.masks, entries):
            np.testing.assert_array_equal(decode(mask, *ours.size(index)), theirs.annToMask(entry), strict=True)


def test_images_and_boxes_are_read_and_counted(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 13, BOX), annotation(2, 11, BOX, 3), annotation(3, 13, BOX, iscrowd=1)])
    dataset = Coco(str(tmp_path), "train", cache)
    image, found = dataset.read(2)
    assert image.size == (30, 20) and image.mode == "RGB" and found.ids.tolist() == [1, 3]
    assert found.is_learnable.tolist() == [True, False] and found.masks is None and not dataset.has_masks
    assert (
        dataset.summary()
        == "3 images, 3 boxes: cat 2, dog 1, ant 0; 1 of them a crowd, not learned; 1 image without boxes"
    )
    assert dataset.object_counts().tolist() == [[1, 1], [0, 0], [1, 1]]
    assert dataset.sizes.tolist() == [[20, 30]] * 3
    for index in (-1, 3):  # not the last image, and no endless loop over all of them
        with pytest.raises(IndexError, match=f"image {index} is outside 0..2"):
            dataset.annotations(index)
    assert dataset.notices == [
        f"train: {tmp_path}/annotations/instances_train2017.json, images in {tmp_path}/train2017"
    ]


def test_a_category_that_no_image_has_and_names_that_occur_twice_are_kept(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX)], categories=[*CATEGORIES, {"id": 9, "name": "cat"}])
    dataset = Coco(str(tmp_path), "train", cache)
    assert dataset.class_names == ["dog", "ant", "cat (id 7)", "cat (id 9)"] and dataset.category_ids == (3, 5, 7, 9)
    assert any("1 category with the name of another category ('cat'), such as 9" in line for line in dataset.notices)


def test_without_annotations_a_split_has_no_labels(tmp_path, cache):
    write_coco(tmp_path, None, split="test2017", file="annotations/image_info_test2017.json")
    dataset = Coco(str(tmp_path), "test", cache)
    assert not dataset.labeled and len(dataset) == 3 and len(dataset.annotations(1).ids) == 0


def test_sizes_that_the_file_does_not_say_are_measured(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 5, BOX)], images=[{"id": 5, "file_name": "a.png"}])
    write_image(tmp_path / "train2017" / "a.png", 25, 35)
    dataset = Coco(str(tmp_path), "train", cache)
    assert dataset.size(0) == (25, 35)
    assert any("1 image without height or width, both measured, such as 5" in line for line in dataset.notices)


def test_a_changed_file_gives_another_index_and_a_damaged_index_is_made_again(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX)])
    assert len(Coco(str(tmp_path), "train", cache).annotations(0).ids) == 1
    for path in list(cache.iterdir()):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
        assert len(Coco(str(tmp_path), "train", cache).annotations(0).ids) == 1
    write_coco(tmp_path, [annotation(1, 11, BOX), annotation(2, 11, BOX)])
    assert len(Coco(str(tmp_path), "train", cache).annotations(0).ids) == 2


def test_an_index_below_the_data_is_no_file_of_annotations(tmp_path):
    write_coco(tmp_path, [annotation(1, 11, BOX)], file="train.json")
    (tmp_path / "cache").mkdir()
    for _ in range(2):  # DATA.CACHE_FOLDER may be a folder beside the images
        assert len(Coco(str(tmp_path), "train", str(tmp_path / "cache")).annotations(0).ids) == 1


def test_masks_of_a_file_that_changes_during_a_run_are_refused(tmp_path, cache):
    path = write_coco(tmp_path, [annotation(1, 11, BOX, segmentation=TRIANGLE), annotation(2, 11, BOX)])
    dataset = Coco(str(tmp_path), "train", cache)
    assert any("1 object without a mask: its box is used" in line for line in dataset.notices)
    masks = dataset.annotations(0).masks
    assert masks[0] == TRIANGLE and decode(masks[1], 20, 30).sum() == 80
    path.write_text(path.read_text().replace('"annotations"', '            "annotations"'))
    with pytest.raises(UserError, match="has changed since this run started"):
        pickle.loads(pickle.dumps(dataset)).annotations(0)


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/instances_val.json", "images/val"),
        ("val.json", "images"),
        ("my_validation_set.json", ""),
        ("valid/_annotations.coco.json", "valid"),
        ("annotations/valid.json", "valid"),
    ],
)
def test_other_layouts_are_found_and_told(tmp_path, cache, file, folder):
    write_coco(tmp_path, [annotation(1, 11, BOX)], split=folder or ".", file=file)
    write_coco(tmp_path, [], split="train", file="annotations/train.json")
    dataset = Coco(str(tmp_path), "val", cache)
    assert dataset.read(0)[0].size == (30, 20)
    assert f"{tmp_path / file}, images in {tmp_path / folder}" in dataset.notices[0]
    assert Coco.has_validation(str(tmp_path))


def test_of_several_files_of_a_split_that_of_instances_is_taken(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX)])
    for name in ("captions_train2017", "person_keypoints_train2017", "train2017_instances_"):
        write_coco(tmp_path, [], file=f"annotations/{name}.json")
    dataset = Coco(str(tmp_path), "train", cache)
    assert f"{tmp_path}/annotations/instances_train2017.json, " in dataset.notices[0]
    assert dataset.summary().startswith("3 images, 1 box")


def test_the_only_annotations_of_no_split_are_for_training(tmp_path, cache):
    root = tmp_path / "data"
    write_coco(root, [annotation(1, 11, BOX)], split="photos", file="photos/all.json")
    (root / "notes.json").write_text('{"images": 3}')
    divide = "or set DATA.VAL_FRACTION to split the training set"
    assert divide in refused(root, cache, "val") and divide not in refused(root, cache, "extra")
    write_coco(root, [], split="photos", file="val.json")
    dataset = Coco(str(root), "train", cache)
    assert f"{root}/photos/all.json, images in {root}/photos" in dataset.notices[0]
    write_coco(root, [], split="photos", file="photos/more.json")
    assert "has no file of train annotations; there is notes.json, val.json, " in refused(root, cache)
    (root / "val.json").unlink()
    assert divide not in refused(root, cache, "val")


def test_what_is_not_found_or_not_clear_is_told_with_the_key_that_names_it(tmp_path, cache):
    path = write_coco(tmp_path, [])
    assert "has no file of val annotations; there is annotations/instances_train2017.json" in refused(
        tmp_path, cache, "val"
    )
    write_coco(tmp_path, [], file="val/train.json")  # the name of a file counts before that of its folder
    assert not Coco.has_validation(str(tmp_path))
    (tmp_path / "val" / "train.json").unlink()
    write_coco(tmp_path, [], file="annotations/instances_train.json")
    assert "has 2 files of annotations for train" in refused(tmp_path, cache)
    dataset = Coco(str(tmp_path), "train", cache, annotations="annotations/instances_train.json")
    assert len(dataset) == 3
    for name in ("test_a.json", "test_b.json"):
        write_coco(tmp_path, [], file=f"annotations/{name}")
    assert "2 files of annotations for test" in refused(tmp_path, cache, "test")
    assert "name one with -split=val DATA.VAL_ANNOTATIONS" in refused(tmp_path, cache, "test")
    assert "DATA.TRAIN_ANNOTATIONS x.json: there is no file" in refused(tmp_path, cache, annotations="x.json")
    shutil.move(str(tmp_path / "train2017"), str(tmp_path.parent / f"{tmp_path.name}-elsewhere"))
    (tmp_path / "annotations" / "instances_train.json").unlink()
    message = refused(tmp_path, cache)
    searched = f"such as 1.png, 2.png, 3.png, are not below {tmp_path} (searched annotations, .): name"
    assert searched in message and "DATA.TRAIN_IMAGES" in message
    elsewhere = str(tmp_path.parent / f"{tmp_path.name}-elsewhere")
    assert Coco(str(tmp_path), "train", cache, str(path), elsewhere).read(0)[0].size == (30, 20)


def test_an_image_of_another_size_than_annotated_is_refused_with_both_sizes(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX)])
    write_image(tmp_path / "train2017" / "1.png", 20, 31)
    dataset = Coco(str(tmp_path), "train", cache)
    with pytest.raises(UserError, match=r"1.png has 31 x 20 pixels .*, but instances_train2017.json says 30 x 20"):
        dataset.read(0)
    write_image(tmp_path / "train2017" / "1.png", 30, 20)
    with pytest.raises(UserError, match="try DATA.EXIF_ROTATE true"):
        dataset.read(0)
    with pytest.raises(UserError, match="20 x 30 pixels") as wrong:
        dataset.require_size(0, (30, 20))
    assert str(pickle.loads(pickle.dumps(wrong.value))) == str(wrong.value)  # it crosses from a loader process
    dataset.require_size(1, (20, 30))


def opened(root, cache, *words, split="train", evaluates=False, is_training=True):
    config = load(["TASK", "detection", "-dataset=coco", f"-data_path={root}", f"-output={cache}", *words]).values
    inspection = SplitInspection(evaluates, config.DATA.ON_INVALID_SAMPLE == "skip")
    return open_samples(config, split, cache, is_training, inspection=inspection)


def test_bad_images_are_found_before_a_run_and_replaced_only_where_asked(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX)])
    (tmp_path / "train2017" / "2.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"2.png cannot be read as an image.*DATA.ON_INVALID_SAMPLE skip"):
        opened(tmp_path, cache)
    notices = opened(tmp_path, cache, "DATA.ON_INVALID_SAMPLE", "skip").notices
    assert any("one of them cannot be read and is replaced by the next readable one" in line for line in notices)
    (tmp_path / "train2017" / "2.png").unlink()
    with pytest.raises(UserError, match="1 of 3 images of train are missing, such as .*2.png: restore them, remove"):
        opened(tmp_path, cache)
    samples = opened(tmp_path, cache, "DATA.ON_INVALID_SAMPLE", "skip")
    assert any("1 of 3 images of train are missing, such as" in line for line in samples.notices)
    samples.replacements = ReplacementReader(cache)
    replaced = samples.sample(1, np.random.default_rng(0))
    assert replaced.index == 2 and [Path(found.path).name for found in samples.replacements.collect()] == ["2.png"]
    np.testing.assert_array_equal(replaced.image, samples.sample(2, np.random.default_rng(0)).image, strict=True)
    (tmp_path / "train2017").rename(tmp_path / "moved")
    assert list(samples.dataset.missing()) == [0, 1, 2]
    (tmp_path / "moved").rename(tmp_path / "train2017")
    write_image(tmp_path / "train2017" / "2.png", 20, 29)
    with pytest.raises(UserError, match="2.png has 29 x 20 pixels"):
        opened(tmp_path, cache)
    notices = opened(tmp_path, cache, "DATA.ON_INVALID_SAMPLE", "skip").notices
    assert any("one of them cannot be read" in line and "2.png has 29 x 20 pixels" in line for line in notices)


def test_images_that_the_file_does_not_name_are_told(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX)])
    assert not any("beside" in line for line in opened(tmp_path, cache).notices)
    write_image(tmp_path / "train2017" / "1.jpg", 20, 30)  # beside 1.png
    line = "1 image without annotations in the folder of train skipped, such as 1.jpg"
    assert line in opened(tmp_path, cache).notices


def write_lying(root, sizes):
    """Images that are stored as 20 x 30 pixels (height x width) and turned by EXIF, of which a file says ``sizes``."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for number in range(len(sizes)):
        write_image(root / "train2017" / f"{number}.jpg", 20, 30, exif=exif)
    images = [
        {"id": number + 1, "file_name": f"{number}.jpg", **({"height": size[0], "width": size[1]} if size else {})}
        for number, size in enumerate(sizes)
    ]
    write_coco(root, [annotation(1, 1, BOX)], images=images)


STORED, TURNED, SQUARE = (20, 30), (30, 20), (20, 20)


@pytest.mark.parametrize(
    "sizes, expected",
    [
        ([TURNED, TURNED], (20, 30)),
        ([STORED, STORED], (30, 20)),
        ([TURNED, None], (20, 30)),
        ([STORED, None], (30, 20)),
        ([None, None], (20, 30)),
    ],
)
def test_sizes_prove_whether_exif_turns_images(tmp_path, cache, sizes, expected):
    write_lying(tmp_path, sizes)
    samples = opened(tmp_path, cache)
    assert [samples.dataset.read(index)[0].size for index in range(2)] == [expected] * 2
    views = [line for line in samples.notices if "like images with a given size" in line]
    turned = TURNED in sizes
    assert len(views) == (None in sizes and sizes != [None, None])
    for view in views:
        assert f"{'after EXIF rotation' if turned else 'as stored'}, like" in view
        assert f"(set DATA.EXIF_ROTATE {'false' if turned else 'true'} to change this)" in view
    told = [
        line for line in samples.notices if "whose size is given after EXIF rotation: all images are rotated" in line
    ]
    assert len(told) == (TURNED in sizes)


@pytest.mark.parametrize(
    "sizes, words, part",
    [
        ([TURNED, STORED], [], "1.jpg, and of some after EXIF rotation, such as "),
        (
            [TURNED, TURNED],
            ["DATA.EXIF_ROTATE", "false"],
            "^DATA.EXIF_ROTATE false: .* after EXIF rotation, such as .*0.jpg",
        ),
        ([STORED, None], ["DATA.EXIF_ROTATE", "true"], "^DATA.EXIF_ROTATE true: .* as stored, such as .*0.jpg"),
        ([SQUARE, (30, 31)], [], "has 30 x 20 pixels"),
    ],
)
def test_sizes_that_contradict_exif_are_refused(tmp_path, cache, sizes, words, part):
    write_lying(tmp_path, sizes)
    with pytest.raises(UserError, match=part):
        opened(tmp_path, cache, *words)


def test_where_sizes_prove_both_views_a_key_says_which_are_right(tmp_path, cache):
    write_lying(tmp_path, [TURNED, STORED])
    samples = opened(tmp_path, cache, "DATA.EXIF_ROTATE", "true", "DATA.ON_INVALID_SAMPLE", "skip")
    assert samples.dataset.read(0)[0].size == (20, 30)
    with pytest.raises(UserError, match=r"try DATA.EXIF_ROTATE false"):
        samples.dataset.read(1)


def test_empty_images_are_left_out_and_part_of_the_training_set_is_held_out_where_asked(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX), annotation(2, 12, [1, 1, 0, 0]), annotation(3, 13, BOX, iscrowd=1)])
    samples = opened(tmp_path, cache, "DATA.KEEP_EMPTY_IMAGES", "false")
    assert len(samples) == 1 and samples.dataset.image_ids.tolist() == [11]
    assert "2 training images without objects to learn excluded (DATA.KEEP_EMPTY_IMAGES false)" in samples.notices
    assert samples.sample(0, np.random.default_rng(0)).labels.tolist() == [2]
    assert len(opened(tmp_path, cache)) == 3
    part = functools.partial(opened, tmp_path, cache, "DATA.VAL_FRACTION", "0.4")
    parts = part().dataset, part(split="val", is_training=False).dataset
    assert sorted([*parts[0].image_ids, *parts[1].image_ids]) == [11, 12, 13] and len(parts[1]) == 1
    assert parts[0].is_random_split and parts[1].is_random_split and not samples.is_random_split
    assert not set(parts[0].identities()) & set(parts[1].identities())
    assert parts[1].identity(0) == parts[1].describe(0).removeprefix(f"{tmp_path}/")  # "train2017/...": not of val2017
    part = pickle.loads(pickle.dumps(parts[0]))
    assert pickled_size(parts[0], tmp_path) <= 1100 and part.class_names == ["dog", "ant", "cat"] and part.labeled
    whole = Coco(str(tmp_path), "train", cache)
    for index in range(len(part)):
        position = whole.image_ids.tolist().index(part.image_id(index))
        np.testing.assert_array_equal(part.annotations(index).ids, whole.annotations(position).ids, strict=True)
        assert part.read(index)[0].tobytes() == whole.read(position)[0].tobytes()
        assert part.size(index) == (20, 30) and part.describe(index) == whole.describe(position)
    assert part.summary().startswith("2 images, ")
    write_coco(tmp_path, [annotation(2, 12, [1, 1, 0, 0]), annotation(3, 13, BOX, iscrowd=1)])
    with pytest.raises(UserError, match="has no object to learn in its 3 train images"):
        opened(tmp_path, cache)


def test_entries_of_one_file_are_held_out_together(tmp_path, cache):
    images = [{"id": n, "file_name": f"{n % 4}.png", "height": 4, "width": 4} for n in range(12)]  # each thrice
    write_coco(tmp_path, [annotation(1, 1, [0, 0, 2, 2])], images=images)
    for number in range(4):
        write_image(tmp_path / "train2017" / f"{number}.png", 4, 4)
    val = opened(tmp_path, cache, "DATA.VAL_FRACTION", "0.4", split="val", is_training=False).dataset
    assert len(val) == 6 and len(set(val.identities())) == 2


def test_a_mask_that_cannot_be_drawn_names_its_object(tmp_path, cache):
    write_coco(tmp_path, [annotation(8, 11, BOX, segmentation=[[1.0, 2.0, "x"]])])
    samples = DetectionSamples(
        Coco(str(tmp_path), "train", cache), DetectionEvaluationTransform(20, 40), True, with_masks=True
    )
    with pytest.raises(UserError, match="object 8 cannot be used: its segmentation"):
        samples.sample(0, np.random.default_rng(0))


@pytest.mark.parametrize("file", ["train.json", "Annotations/any.json"])
def test_a_relative_file_of_annotations_is_the_training_set_of_the_folder_around_it(tmp_path, cache, monkeypatch, file):
    write_coco(tmp_path, [annotation(1, 11, BOX)], split="train", file=file)
    write_coco(tmp_path, [], split="val", file="val.json")
    monkeypatch.chdir(tmp_path)
    dataset = Coco(file, "train", cache)
    assert dataset.notices == [f"train: {tmp_path / file}, images in {tmp_path / 'train'}"]
    assert dataset.read(0)[0].size == (30, 20) and len(dataset.annotations(0).ids) == 1
    assert Coco.has_validation(file) and len(Coco(file, "val", cache).annotations(0).ids) == 0
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Coco(f"~/{file}", "train", cache).notices == dataset.notices


def test_file_names_of_any_script_and_in_sub_folders(tmp_path, cache):
    write_coco(tmp_path, [], images=[{"id": 1, "file_name": "bär/画像 1.png", "height": 4, "width": 4}])
    write_image(tmp_path / "train2017" / "bär" / "画像 1.png", 4, 4)
    assert Coco(str(tmp_path), "train", cache).read(0)[0].size == (4, 4)
    content = json.loads((tmp_path / "annotations" / "instances_train2017.json").read_text())
    (tmp_path / "annotations" / "instances_train2017.json").write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    assert Coco(str(tmp_path), "train", cache).describe(0).endswith("bär/画像 1.png")


def test_names_of_lvis_and_of_windows(tmp_path, cache):
    images = [
        {"id": 1, "coco_url": "http://images.cocodataset.org/val2017/1.png", "height": 20, "width": 30},
        {"id": 2, "file_name": "val2017\\2.png", "height": 20, "width": 30},
    ]
    write_coco(tmp_path, [], "val2017", file="lvis_train.json")
    write_coco(tmp_path, [], images=images, file="lvis_train.json")
    dataset = Coco(str(tmp_path), "train", cache)
    assert dataset.describe(0) == str(tmp_path / "val2017" / "1.png") and dataset.read(1)[0].size == (30, 20)
    told = " ".join(dataset.notices)
    assert "1 image without file_name: the end of coco_url is used, such as 1" in told
    assert "1 image whose file_name has backslashes, read as slashes, such as 2" in told


@pytest.mark.parametrize("name", ["../outside.png", "/outside.png", "a/../../../outside.png", "../train2017x/1.png"])
def test_images_outside_of_the_data_are_read_only_where_a_key_allows_it(tmp_path, cache, name):
    root = tmp_path / "data"
    name = str(tmp_path / name[1:]) if name.startswith("/") else name
    inside = {"id": 1, "file_name": "../pictures/1.png", "height": 4, "width": 5}
    write_image(root / "pictures" / "1.png", 4, 5)
    write_image(tmp_path / "elsewhere" / "1.png", 4, 5)
    images = {"images": str(tmp_path / "elsewhere")}  # which a key names
    outside = {"id": 2, "file_name": name, "height": 4, "width": 5}
    write_coco(root, [], images=[inside | {"file_name": "../elsewhere/1.png"}, outside])
    message = refused(root, cache, **images)
    assert (
        "images[1] (id 2) has file_name" in message
        and "set DATA.SEARCH_IMAGES_RECURSIVELY true to allow others" in message
    )
    assert len(Coco(str(root), "train", cache, anywhere=True, **images)) == 2
    assert "DATA.SEARCH_IMAGES_RECURSIVELY" in refused(root, cache, **images)  # also where an index is there already
    write_coco(root, [], images=[inside])
    assert Coco(str(root), "train", cache, images="pictures").read(0)[0].size == (5, 4)
