"""Two images with three objects, as labeling programs export them; facts of their files, not their code.

``a.png`` of 64 x 48 pixels shows a nut and a bolt, ``b.png`` a nut.
"""

import json
from pathlib import Path
from typing import Any

from support.files.coco_writer import write_image

SIZE = (48, 64)  # height, width
CLASSES = ("nut", "bolt")
BOXES = {"a": [(0, (4, 6, 20, 10)), (1, (30, 20, 16, 20))], "b": [(0, (8, 8, 24, 16))]}  # class, x, y, width, height


def write_images(folder: Path, name: str = "{}.png") -> None:
    for number, stem in enumerate(BOXES):
        write_image(folder / name.format(stem), *SIZE, number)


def list_objects() -> list[tuple[int, int, tuple[int, ...]]]:
    """Position of the image, class and box of each object."""
    return [(image, label, box) for image, boxes in enumerate(BOXES.values()) for label, box in boxes]


def outline(box: Any) -> list[float]:
    x, y, width, height = box
    return [x, y, x + width, y, x + width, y + height, x, y + height]


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def coco(
    name: str = "{}.png", first: int = 1, categories: Any = None, image: Any = None, of: Any = None
) -> dict[str, Any]:
    """The lists of a COCO file: ids from ``first``, with more fields of images, and of objects by their box."""
    category = {"nut": first, "bolt": first + 1}
    return {
        "images": [
            {"id": first + n, "file_name": name.format(stem), "height": SIZE[0], "width": SIZE[1], **(image or {})}
            for n, stem in enumerate(BOXES)
        ],
        "annotations": [
            {
                **{"id": first + n, "image_id": first + owner, "category_id": category[CLASSES[label]]},
                **{"bbox": list(box), "area": box[2] * box[3], "iscrowd": 0, "segmentation": []},
                **(of(box) if of else {}),
            }
            for n, (owner, label, box) in enumerate(list_objects())
        ],
        "categories": categories or [{"id": id_, "name": own, "supercategory": ""} for own, id_ in category.items()],
    }


def cvat_coco(root: Path) -> None:
    write_images(root / "images" / "default")
    content = coco(image={"license": 0, "flickr_url": "", "coco_url": "", "date_captured": 0})
    content = {"licenses": [{"name": "", "id": 0, "url": ""}], "info": {"contributor": ""}, **content}
    write_json(root / "annotations" / "instances_default.json", content)


def label_studio_coco(root: Path, name: str = "images\\\\{}.png") -> None:
    write_images(root / "images", "5d3ac0de-{}.png")
    name = name.replace("\\\\", "\\").replace("{}", "5d3ac0de-{}")
    categories = [{"id": n, "name": own} for n, own in enumerate(CLASSES)]
    content = coco(name, 0, categories, of=lambda box: {"ignore": 0})
    write_json(root / "result.json", {**content, "info": {"version": "1.0", "contributor": "Label Studio"}})


def label_studio_of_another_computer(root: Path) -> None:
    label_studio_coco(root, "../../label-studio/media/upload/4/{}.png")


def label_studio_of_a_project(root: Path) -> None:
    label_studio_coco(root, "images\\\\1/{}.png")


def roboflow_coco(root: Path) -> None:
    group = {"id": 0, "name": "parts", "supercategory": "none"}
    own = [{"id": n, "name": name, "supercategory": "parts"} for n, name in enumerate(CLASSES, 1)]
    for split in ("train", "valid"):
        write_images(root / split, "{}_png.rf.0a1b.png")
        content = coco("{}_png.rf.0a1b.png", 1, [group, *own], {"license": 1, "extra": {"name": "x.png"}})
        write_json(root / split / "_annotations.coco.json", {"info": {"year": "2026"}, "licenses": [], **content})


def fiftyone_coco(root: Path) -> None:
    write_images(root / "data")
    categories = [{"id": n, "name": own, "supercategory": None} for n, own in enumerate(CLASSES, 1)]
    content = coco(categories=categories, image={"license": None, "coco_url": None})
    write_json(root / "labels.json", {"info": {"year": ""}, "licenses": [], **content})


def fiftyone_coco_by_split(root: Path) -> None:
    for split in ("train", "val"):
        fiftyone_coco(root / split)


def via_coco(root: Path) -> None:
    write_images(root)
    content = coco(of=lambda box: {"segmentation": [outline(box)]})
    point = {"segmentation": [[]], "area": [], "bbox": [], "iscrowd": 0, "keypoints": [9, 9, 2], "num_keypoints": 1}
    content["annotations"].append({"id": 9, "image_id": 1, "category_id": 1, **point})
    write_json(root / "via_project_coco.json", content)


def old_via_coco(root: Path) -> None:
    write_images(root)
    content = coco(of=lambda box: {"segmentation": outline(box)})
    for entry in content["annotations"]:
        entry["image_id"] = str(entry["image_id"])
    write_json(root / "via_export_coco.json", content)


def supervisely_coco(root: Path) -> None:
    write_images(root / "images")
    write_json(root / "annotations" / "instances.json", coco(of=lambda box: {"segmentation": [outline(box)]}))


def makesense_coco(root: Path) -> None:
    write_images(root)
    content = coco(of=lambda box: {"segmentation": [outline(box)]})
    write_json(root / "labels_my-project-name_2026-11-30-08-00-00.json", {"info": {"description": ""}, **content})


def datumaro_coco(root: Path) -> None:
    for split in ("train", "val"):
        write_images(root / "images" / split)
        write_json(root / "annotations" / f"instances_{split}.json", {"licenses": [], **coco()})


def xml(stem: str, inside: str = "", more: str = "<difficult>0</difficult>") -> str:
    objects = "".join(
        f"<object><name>{CLASSES[label]}</name><truncated>0</truncated>{more}<bndbox><xmin>{x + 1}</xmin>"
        f"<ymin>{y + 1}</ymin><xmax>{x + width}</xmax><ymax>{y + height}</ymax></bndbox></object>"
        for label, (x, y, width, height) in BOXES[stem]
    )
    size = f"<size><width>{SIZE[1]}</width><height>{SIZE[0]}</height><depth>3</depth></size>"
    return f"<annotation><folder></folder><filename>{stem}.png</filename>{inside}{size}{objects}</annotation>"


def write_xml(folder: Path, name: str = "{}.xml", more: str = "<difficult>0</difficult>") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem in BOXES:
        (folder / name.format(stem)).write_text(xml(stem, "<source><database>Unknown</database></source>", more))


def cvat_voc(root: Path) -> None:
    write_images(root / "JPEGImages")
    write_xml(root / "Annotations")
    lists = root / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "default.txt").write_text("".join(f"{stem}\n" for stem in BOXES))
    for name in CLASSES:
        (lists / f"{name}_default.txt").write_text("".join(f"{stem} 1\n" for stem in BOXES))
    (root / "labelmap.txt").write_text("# label:color_rgb:parts:actions\nbackground:::\nnut:::\nbolt:::\n")


def label_studio_voc(root: Path) -> None:
    write_images(root / "images", "5d3ac0de-{}.png")
    write_xml(root / "Annotations", "5d3ac0de-{}.xml")


def roboflow_voc(root: Path) -> None:
    for split in ("train", "valid"):
        write_images(root / split, "{}_png.rf.0a1b.png")
        write_xml(root / split, "{}_png.rf.0a1b.xml")


def labelimg_voc(root: Path) -> None:
    write_images(root)
    write_xml(root)


def write_labels(folder: Path, name: str = "{}.txt") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, boxes in BOXES.items():
        lines = [
            f"{label} {(x + w / 2) / SIZE[1]} {(y + h / 2) / SIZE[0]} {w / SIZE[1]} {h / SIZE[0]}\n"
            for label, (x, y, w, h) in boxes
        ]
        (folder / name.format(stem)).write_text("".join(lines))


def cvat_yolo(root: Path) -> None:
    write_images(root / "obj_train_data")
    write_labels(root / "obj_train_data")
    (root / "train.txt").write_text("".join(f"data/obj_train_data/{stem}.png\n" for stem in BOXES))
    (root / "obj.names").write_text("nut\nbolt\n")
    (root / "obj.data").write_text("classes = 2\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n")


def cvat_ultralytics(root: Path) -> None:
    write_images(root / "images" / "train")
    write_labels(root / "labels" / "train")
    (root / "train.txt").write_text("".join(f"data/images/train/{stem}.png\n" for stem in BOXES))
    (root / "data.yaml").write_text("names:\n  0: nut\n  1: bolt\npath: .\ntrain: train.txt\n")


def label_studio_yolo(root: Path) -> None:
    write_images(root / "images", "5d3ac0de-{}.png")
    write_labels(root / "labels", "5d3ac0de-{}.txt")
    (root / "classes.txt").write_text("nut\nbolt")
    write_json(root / "notes.json", {"categories": [{"id": 0, "name": "nut"}, {"id": 1, "name": "bolt"}], "info": {}})


def roboflow_yolo(root: Path) -> None:
    for split in ("train", "valid"):
        write_images(root / split / "images", "{}_png.rf.0a1b.png")
        write_labels(root / split / "labels", "{}_png.rf.0a1b.txt")
    (root / "data.yaml").write_text(
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 2\nnames: ['nut', 'bolt']\n\n"
        "roboflow:\n  workspace: mine\n  license: MIT\n"
    )


def fiftyone_yolo(root: Path) -> None:
    for split in ("train", "val"):
        write_images(root / "images" / split)
        write_labels(root / "labels" / split)
    (root / "dataset.yaml").write_text(
        "names:\n  0: nut\n  1: bolt\npath: .\ntrain: ./images/train/\nval: ./images/val/\n"
    )


def labelimg_yolo(root: Path) -> None:
    write_images(root)
    write_labels(root)
    (root / "classes.txt").write_text("nut\nbolt\n")


# Program and format -> what writes it, and the data set that its folder is.
EXPORTS = {
    "CVAT COCO": (cvat_coco, "coco"),
    "Label Studio COCO": (label_studio_coco, "coco"),
    "Label Studio COCO of another computer": (label_studio_of_another_computer, "coco"),
    "Label Studio COCO of a project": (label_studio_of_a_project, "coco"),
    "Roboflow COCO": (roboflow_coco, "coco"),
    "FiftyOne COCO": (fiftyone_coco, "coco"),
    "FiftyOne COCO by split": (fiftyone_coco_by_split, "coco"),
    "VGG Image Annotator COCO": (via_coco, "coco"),
    "VGG Image Annotator 2.0 COCO": (old_via_coco, "coco"),
    "Supervisely COCO": (supervisely_coco, "coco"),
    "makesense COCO": (makesense_coco, "coco"),
    "Datumaro COCO": (datumaro_coco, "coco"),
    "CVAT VOC": (cvat_voc, "voc"),
    "Label Studio VOC": (label_studio_voc, "voc"),
    "Roboflow VOC": (roboflow_voc, "voc"),
    "labelImg VOC": (labelimg_voc, "voc"),
    "CVAT YOLO": (cvat_yolo, "yolo"),
    "CVAT Ultralytics": (cvat_ultralytics, "yolo"),
    "Label Studio YOLO": (label_studio_yolo, "yolo"),
    "Roboflow YOLO": (roboflow_yolo, "yolo"),
    "FiftyOne YOLO": (fiftyone_yolo, "yolo"),
    "labelImg YOLO": (labelimg_yolo, "yolo"),
}

# Own format of a program -> its file and the beginning of its content.
OWN_FORMATS: dict[str, tuple[str, Any]] = {
    "Label Studio": (
        "project-1-at-2026-11-30.json",
        [{"id": 1, "annotations": [{"id": 1, "result": [{"original_width": 64, "from_name": "label"}]}]}],
    ),
    "VGG Image Annotator": ("via_project.json", {"_via_settings": {}, "_via_img_metadata": {}}),
    "Datumaro": (
        "annotations/default.json",
        {"info": {}, "categories": {"label": {"labels": []}}, "items": [{"id": "a", "annotations": [{"id": 0}]}]},
    ),
    "Supervisely": ("ds0/a.png.json", {"size": {"height": 48}, "objects": [{"id": 1, "classTitle": "nut"}]}),
    "Labelbox": ("export.ndjson", {"data_row": {"id": "x"}, "projects": {}}),
    "V7 Darwin": ("a.json", {"version": "2.0", "annotations": [{"bounding_box": {"h": 1, "w": 1}}]}),
    "CreateML": ("_annotations.createml.json", [{"image": "a.png", "annotations": [{"coordinates": {"x": 1}}]}]),
    "FiftyOne": ("metadata.json", {"name": "x", "sample_fields": []}),
    "CVAT": ("annotations.xml", "<?xml version='1.0'?>\n<annotations>\n  <version>1.1</version>\n</annotations>"),
}
