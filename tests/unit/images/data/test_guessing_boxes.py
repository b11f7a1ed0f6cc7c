"""A path alone: whose annotations lie there is found and told, or asked."""

import shutil

import pytest
from support.files.coco_writer import BOX, annotation, write_coco, write_image
from support.files.voc_writer import write_voc
from support.files.yolo_writer import write_darknet, write_yolo
from support.processes import ROOT
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.manifest import BOX_LABELS, MASK_LABELS
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.dataset import dataset_class
from paddlevit_dist.images.data.guessing import find_box_layouts, guess
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.detection_dataset import DetectionDataset
from paddlevit_dist.images.detection.data.samples import open_samples
from paddlevit_dist.images.detection.data.voc import Voc
from paddlevit_dist.images.detection.data.yolo import Yolo
from paddlevit_dist.images.detection.evaluate_command import is_annotation_file
from paddlevit_dist.images.keypoints.guessing import guess_keypoints
from paddlevit_dist.images.segmentation.data.label_maps import LabelMaps


def coco(root):
    write_coco(root, [annotation(1, 11, BOX)])


def roboflow(root):
    for split in ("train", "valid"):
        write_coco(root, [annotation(1, 11, BOX)], split, file=f"{split}/_annotations.coco.json")


def beside_panoptic(root):
    roboflow(root)
    (root / "annotations").mkdir()
    shutil.copy(root / "train" / "_annotations.coco.json", root / "annotations" / "panoptic_train2017.json")


def voc(root):
    write_voc(root / "VOCdevkit" / "VOC2007", {"train": ["000001"], "val": ["000002"]})


def flat_voc(root):
    write_voc(root, {"train": ["1"]}, images="images", annotations="annotations")


def xml_beside(root):
    write_voc(root, {"train": ["1"]}, images="train", annotations="train")


def one_folder_of_voc(root):
    write_voc(root, {"": ["1", "2"]}, images="", annotations="")
    shutil.rmtree(root / "ImageSets")


def yolo(root):
    write_yolo(root, train="images/train")


def yolo_by_split(root):
    write_yolo(root, "train/images", names="names: [a, b, c]\n", train="train/images")


def yolo_of_another_name(root):
    write_yolo(root, names=None)
    (root / "coco128.yaml").write_text("path: C:\\\\data\\\\coco128\ntrain: images\\\\train\nnames: [a, b, c]\n")


def labelimg(root):
    write_yolo(root, "", names=None)
    (root / "classes.txt").write_text("a\nb\nc\n")


def cvat(root):
    write_coco(root, [annotation(1, 11, BOX)], "images/default", file="annotations/instances_default.json")


def yolo_without_description(root):
    write_yolo(root, names=None)
    (root / "classes.txt").write_text("a\nb\nc\n")


@pytest.mark.parametrize(
    ("write", "dataset", "reason"),
    [
        (coco, "coco", "my_data has annotations in COCO's format, such as annotations/instances_train2017.json"),
        (roboflow, "coco", "such as train/_annotations.coco.json"),
        (beside_panoptic, "coco", "such as train/_annotations.coco.json"),
        (voc, "voc", "my_data has Pascal VOC's annotations, such as VOCdevkit/VOC2007/Annotations/000001.xml"),
        (flat_voc, "voc", "such as annotations/1.xml"),
        (xml_beside, "voc", "such as train/1.xml"),
        (one_folder_of_voc, "voc", "such as 1.xml"),
        (yolo, "yolo", "my_data has YOLO's labels, such as data.yaml"),
        (yolo_by_split, "yolo", "such as data.yaml"),
        (yolo_of_another_name, "yolo", "such as coco128.yaml"),
        (labelimg, "yolo", "such as 1.txt"),
        (cvat, "coco", "such as annotations/instances_default.json"),
        (write_darknet, "yolo", "such as obj.data"),
        (yolo_without_description, "yolo", "such as labels/train/1.txt"),
    ],
)
def test_what_lies_there_names_the_data_set_and_can_be_read(write, dataset, reason, tmp_path, monkeypatch):
    write(tmp_path / "my_data")
    monkeypatch.chdir(tmp_path)
    made = guess("my_data")
    assert made.dataset == dataset and reason in made.reason
    loaded = load([f"-cfg={ROOT / 'configs' / 'detr_shapes.yaml'}", "-data_path=my_data"], default_recipe="vit_digits")
    assert any(made.reason in line for line in loaded.notices)
    assert loaded.values.DATA.DATASET == dataset
    assert len(open_samples(loaded.values, "train", tmp_path, is_training=True)) >= 1


@pytest.mark.parametrize("file", ["annotations/instances_default.json", "labels.json"])
def test_a_file_of_annotations_is_a_data_path(tmp_path, file):
    write_coco(tmp_path, [annotation(1, 11, BOX)], "pictures", file=file)
    assert guess(str(tmp_path / file)).dataset == "coco"
    named = [f"-cfg={ROOT / 'configs' / 'detr_shapes.yaml'}", "DATA.TRAIN_IMAGES", "pictures"]
    loaded = load([*named, f"-data_path={tmp_path / file}", "DATA.VAL_FRACTION", "0.4"], default_recipe="vit_digits")
    sizes = [
        len(open_samples(loaded.values, split, tmp_path, is_training=split == "train")) for split in ("train", "val")
    ]
    assert sizes == [2, 1]


def test_another_file_is_no_data_path(tmp_path):
    (tmp_path / "a.json").write_text('{"version": "5.3", "shapes": [], "imagePath": "a.jpg"}')
    for path in (tmp_path / "a.json", tmp_path):
        with pytest.raises(UserError, match=f"a.json is a Labelme file of one image; .*labelme2coco {tmp_path}\\)"):
            guess(str(path), BOX_LABELS)
    assert guess(str(tmp_path)).dataset == "labelme"
    (tmp_path / "a.json").write_text('{"a": 1}')
    with pytest.raises(UserError, match=f"is a file; give the folder with this file and the images: {tmp_path}"):
        guess(str(tmp_path / "a.json"))


@pytest.mark.parametrize("kind", [Coco, Voc, Yolo])
def test_holding_out_is_advised_only_where_there_is_a_training_set(tmp_path, kind):
    if kind is Coco:
        write_coco(tmp_path, [], file="annotations/instances_train.json")
    elif kind is Voc:
        write_voc(tmp_path, {"train": ["1"]})
    else:
        yolo(tmp_path)
    for split, is_advised in (("val", True), ("test", False)):
        assert ("VAL_FRACTION" in refusal_of(kind, str(tmp_path), split, tmp_path)) == is_advised


def test_two_kinds_of_annotations_are_both_named(tmp_path):
    coco(tmp_path)
    yolo(tmp_path)
    message = refusal_of(guess, str(tmp_path))
    assert "(-dataset=coco)" in message and "(-dataset=yolo)" in message
    assert "select one with -dataset" in message


def test_of_boxes_and_label_maps_those_that_a_task_reads_are_taken(tmp_path):
    coco(tmp_path)
    write_image(tmp_path / "images" / "1.jpg", 4, 4)
    write_image(tmp_path / "masks" / "1.png", 4, 4)
    found = [guess(str(tmp_path), contents).dataset for contents in (None, BOX_LABELS, MASK_LABELS)]
    assert found == ["coco", "coco", "label_maps"]


def test_class_folders_beside_annotations_are_both_named(tmp_path):
    flat_voc(tmp_path)
    for name in ("train/ant/1.jpg", "train/bee/1.jpg"):
        write_image(tmp_path / name, 4, 4)
    message = refusal_of(guess, str(tmp_path))
    assert "(-dataset=folder)" in message and "(-dataset=voc)" in message
    assert guess(str(tmp_path), BOX_LABELS).dataset == "voc"  # of a task that reads boxes


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.json", '{"images": 3}'),
        ("labels/notes.txt", "3 images\n"),
        ("annotations/x.xml", "<svg/>"),
        ("data.yaml", "x: 1"),
        ("recipe.yaml", "names: [a, b]\n"),  # without the places of images
        ("recipe.yaml", "train: images/train\n"),  # without classes
        ("1.txt", "0 0.5 0.5 0.2 0.2\n"),  # without an image of this name
    ],
)
def test_other_files_of_these_kinds_are_not_taken_for_annotations(tmp_path, name, content):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    write_image(tmp_path / "2.jpg", 4, 4)
    assert guess(str(tmp_path)) is None


def test_data_of_another_task_are_refused_with_the_names_of_those_that_fit(tmp_path):
    for dataset, task, fitting in (
        (
            "digits",
            "detection",
            "TASK detection reads images with boxes; set DATA.DATASET to one of box_table, coco, hub_boxes, s",
        ),
        (
            "coco",
            "classification",
            "holds images with boxes, but TASK classification reads images; set DATA.DATASET to one",
        ),
    ):
        config = load(["TASK", task, f"-dataset={dataset}", "-data_path=x" if dataset == "coco" else "-seed=1"]).values
        contract = DetectionDataset if task == "detection" else DetectionDataset.__mro__[1]
        message = refusal_of(dataset_class, config, contract)
        assert fitting in message
        assert ("coco" in message.partition("one of ")[2]) == (task == "detection")


@pytest.mark.parametrize("name", ["data.yaml", "second.yml"])
def test_the_file_that_describes_yolo_data_is_their_path(tmp_path, cache, name):
    write_yolo(tmp_path, train="images/train")
    text = (tmp_path / "data.yaml").read_text()
    (tmp_path / "second.yml").write_text(text.replace("cat", "lynx"))
    file, expected = str(tmp_path / name), {"data.yaml": "cat", "second.yml": "lynx"}[name]
    assert guess(file, BOX_LABELS).dataset == "yolo" == find_box_layouts(file, file)[0].dataset
    assert Yolo(file, "train", cache).class_names[0] == expected
    outlines = LabelMaps(file, "train", cache, "yolo_outlines")
    assert expected in outlines.class_names and len(outlines) == 3
    with (tmp_path / name).open("a") as stream:
        stream.write("kpt_shape: [2, 3]\n")
    assert guess_keypoints(file).dataset == "yolo_pose"
    assert not is_annotation_file(file) and is_annotation_file(str(tmp_path / "images" / "train" / "1.png"))
