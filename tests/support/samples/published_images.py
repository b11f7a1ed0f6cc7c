"""Tiny sets of images in published layouts: rectangular images, classes of unequal counts, names out of order.

What is odd in the published sets is in these, too: PNG files called JPEG, images in gray or CMYK, boxes without height.
"""

import gzip
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from paddlevit_dist.images.detection.detector import COCO_CATEGORIES
from paddlevit_dist.images.imagenet_classes import names_by_synset
from support.files.coco_writer import annotation, write_coco, write_image
from support.files.voc_writer import an_object, write_voc
from support.files.yolo_writer import write_yolo

SIZES = ((40, 56), (61, 44), (48, 72), (50, 37))  # height and width, in turn
#: WordNet id -> numbers of training and validation images, of tabby, tench and African elephant; ids are in the order
#: tench, tabby, African elephant
SYNSETS = {"n02123045": (4, 1), "n01440764": (3, 2), "n02504458": (2, 4)}
#: What the development kit says of five validation images: its numbers 1, 2 and 3 are kit fox, English setter and
#: Siberian husky, which are 278, 212 and 250 in the order of WordNet ids.
KIT_NUMBERS = (1, 2, 1, 3, 1)
CLOTHES = {"train": (4, 9, 9, 1, 4, 9, 0, 9), "t10k": (9, 4, 9, 2, 9)}
# CheXpert's columns, in their order. Source: J. Irvin et al., arXiv 1901.07031, and its files.
FINDINGS = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,"
    "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
).split(",")
DOG, PERSON, TOOTHBRUSH = 18, 1, 90


def write_synsets(root: Path) -> None:
    """ImageNet as class folders; of its JPEG files, some are PNG files and some have four channels."""
    for label, (synset, counts) in enumerate(SYNSETS.items()):
        for split, number in zip(("train", "val"), counts):
            for index in range(number):
                height, width = SIZES[(index + label) % len(SIZES)]
                path = root / split / synset / f"{synset}_{index}.JPEG"
                seed = 10 * label + index + 100 * (split == "val")
                write_image(path, height, width, seed, format="PNG" if index == 1 else "JPEG")
                if index == 2:
                    _convert(path, "CMYK")


def _convert(path: Path, mode: str) -> None:
    with Image.open(path) as image:
        image.convert(mode).save(path, "JPEG")


def write_lists(root: Path) -> None:
    """ImageNet with PaddleViT's lists, and names of the classes in the order of the lists' labels."""
    write_synsets(root)
    for split in ("train", "val"):
        paths = sorted((root / split).rglob("*.JPEG"), key=lambda path: path.name[::-1])
        lines = (f"{path.relative_to(root)} {list(SYNSETS).index(path.parent.name)}\n" for path in paths)
        (root / f"{split}_list.txt").write_text("".join(lines))
    (root / "classes.txt").write_text("tabby\ntench\nAfrican elephant\n")


def write_kit(root: Path) -> None:
    """ImageNet as its archives are unpacked: validation images in one folder, labels in the development kit."""
    for number, synset in enumerate(names_by_synset()):
        (root / "train" / synset).mkdir(parents=True)
        Image.new("RGB", (9, 7), (number % 251, 40, 90)).save(root / "train" / synset / f"{synset}_1.JPEG")
    for number in range(1, len(KIT_NUMBERS) + 1):
        write_image(root / "val" / f"ILSVRC2012_val_{number:08d}.JPEG", *SIZES[number % len(SIZES)], number)
    truth = root / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.parent.mkdir(parents=True)
    truth.write_text("".join(f"{number}\n" for number in KIT_NUMBERS))


def write_class_tars(root: Path) -> None:
    """ImageNet's archive of training images, a tar file of each class, and such files for validation."""
    write_synsets(root / "folders")
    for split in ("train", "val"):
        (root / split).mkdir()
        for synset in SYNSETS:
            with tarfile.open(root / split / f"{synset}.tar", "w") as archive:
                for path in sorted((root / "folders" / split / synset).iterdir()):
                    archive.add(path, path.name)
    for path in sorted((root / "folders").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (root / "folders").rmdir()


def write_clothes(root: Path) -> None:
    """Fashion-MNIST's files, also of MNIST: 4 is a coat, 9 an ankle boot; and two images to predict."""
    generator = np.random.default_rng(0)
    for split, labels in CLOTHES.items():
        images = generator.integers(0, 256, (len(labels), 28, 28), np.uint8)
        head = np.array([0x803, *images.shape], ">u4").tobytes()
        (root / f"{split}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        head = np.array([0x801, len(labels)], ">u4").tobytes()
        (root / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(head + bytes(labels)))
    for number in range(2):
        write_image(root / "new" / f"{number}.png", 28, 28, number)


def write_chexpert(root: Path) -> None:
    """CheXpert's small files: a table for each split, whose paths begin above it; findings are 1, 0, -1 or empty."""
    heading = f"Path,Sex,Age,Frontal/Lateral,AP/PA,{','.join(FINDINGS)}"
    for split, folder, number in (("train", "train", 8), ("valid", "valid", 5)):
        lines = [heading]
        for index in range(number):
            name = f"{root.name}/{folder}/patient{index + 1:05d}/study1/view1_frontal.jpg"
            write_image(root.parent / name, *SIZES[index % len(SIZES)], index + 50 * (split == "valid"))
            cells = dict.fromkeys(FINDINGS, "0.0") | {"Support Devices": "" if index == 1 else f"{index % 2}.0"}
            cells |= {
                "Edema": "-1.0" if index == 2 else f"{int(index in (1, 4, 7))}.0",
                "Cardiomegaly": f"{index % 3 % 2}.0",
            }
            lines.append(f"{name},Female,{60 + index},Frontal,AP,{','.join(cells.values())}")
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")


def write_coco_2017(root: Path) -> None:
    """COCO with its 80 categories: polygons, a crowd, a box without height, and an image without objects, in gray."""
    categories = [{"id": number, "name": name, "supercategory": "any"} for number, name in COCO_CATEGORIES.items()]
    objects = {
        "train": [(0, DOG), (0, PERSON), (1, DOG), (2, TOOTHBRUSH), (2, DOG), (3, PERSON), (3, DOG)],
        "val": [(0, DOG), (1, PERSON), (1, DOG), (2, DOG)],
    }
    for first, (split, number) in enumerate((("train", 5), ("val", 3)), start=1):
        images, annotations = [], []
        for index in range(number):
            height, width = SIZES[(index + first) % len(SIZES)]
            name = f"{100 * first + index:012d}.jpg"
            write_image(root / f"{split}2017" / name, height, width, 100 * first + index)
            if index == number - 1:
                _convert(root / f"{split}2017" / name, "L")
            images.append({"id": 100 * first + index, "file_name": name, "height": height, "width": width})
        for index, category in objects[split]:
            x, y, width, height = 4.0 + len(annotations), 6.0, 12.0 + index, 19.0
            corners = [x, y, x + width, y, x + width, y + height, x, y + height]
            place = {"segmentation": [corners]}
            box = [x, y, width, height]
            annotations.append(annotation(len(annotations) + 1, images[index]["id"], box, category, **place))
        if split == "train":
            flat = {"segmentation": [[5.0, 6.0, 14.0, 6.0, 14.0, 6.0]]}
            annotations.append(annotation(98, images[3]["id"], [5.0, 6.0, 9.0, 0.0], DOG, **flat))
        else:
            height, width = images[0]["height"], images[0]["width"]
            counts = [height * 2, height, height * (width - 3)]  # the third column
            crowd = {"iscrowd": 1, "segmentation": {"size": [height, width], "counts": counts}}
            annotations.append(annotation(99, images[0]["id"], [2.0, 0.0, 1.0, float(height)], PERSON, **crowd))
        write_coco(root, annotations, f"{split}2017", images, categories=categories)


def write_voc_2007(root: Path) -> None:
    """Pascal VOC's folder of a year, with three of its categories: objects with a part, and marked as difficult."""
    lists = {"train": ["000012", "000017", "000023", "000026"], "val": ["000005", "000007"]}
    boat = an_object("boat", (2, 5, 17, 19), "<difficult>1</difficult>")
    screen = f"<part>{an_object('screen', (4, 4, 9, 9)).removeprefix('<object>').removesuffix('</object>')}</part>"
    objects = {
        "000005": [an_object("tvmonitor", (4, 2, 20, 15)), boat],
        "000007": [an_object("tvmonitor", (3, 3, 11, 18))],
        "000012": [an_object("tvmonitor", (3, 3, 11, 18), screen), an_object("aeroplane", (6, 1, 29, 9))],
        "000017": [an_object("aeroplane", (1, 1, 30, 20))],
        "000026": [an_object("tvmonitor", (9, 2, 23, 17))],
    }
    write_voc(root / "VOCdevkit" / "VOC2007", lists, ".jpg", objects={"000023": [boat], **objects})


def write_yolo_labels(root: Path) -> None:
    """Ultralytics' folders, whose data.yaml numbers its names: 7 has boxes of two classes, 9 no label file."""
    names = "names:\n  0: zebra\n  1: ant\n  2: mule\n"
    train = {
        "1": "0 0.5 0.5 0.4 0.6\n2 0.3 0.4 0.2 0.3\n",
        "7": "1 0.6 0.4 0.3 0.5\n",
        "8": "1 0.4 0.4 0.2 0.6\n",
        "9": None,
    }
    val = {"3": "2 0.5 0.4 0.5 0.3\n", "4": "2 0.4 0.6 0.3 0.5\n0 0.5 0.5 0.2 0.6\n"}
    write_yolo(root, "images/val", val, names=None)
    write_yolo(root, "images/train", train, names, train="images/train", val="images/val")
