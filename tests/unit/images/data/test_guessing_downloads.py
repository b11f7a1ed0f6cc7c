"""Downloads drawn as they are published: what each opens as, by split, or what its refusal names; none is read wrong.

A row is a tree of files, a recipe, and what is opened: images by split, and the classes. Where several readings are
possible, or none, the refusal names what the user has to type or to change.
"""

import csv
import itertools
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import paddlevit_dist as pv

SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".ppm", ".gif")
GRAY = "mask:"  # before the names of label maps


def plant(root, tree):
    """Write ``tree``: name with ``{a,b}`` and ``#n`` (n numbered files) -> text, rows of a table, or None: images."""
    for pattern, content in tree.items():
        for name in expand(pattern.removeprefix(GRAY)):
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, list):
                with open(path, "w", newline="") as file:
                    csv.writer(file).writerows(content)
            elif content is not None:
                path.write_text(content)
            elif path.suffix.lower() in SUFFIXES:
                draw(pattern.startswith(GRAY), zlib.crc32(name.encode())).save(path)
            else:
                path.write_bytes(b"")


def draw(is_mask, seed):
    """A photograph, or a mask of two gray levels."""
    random = np.random.default_rng(seed)
    if is_mask:
        return Image.fromarray(np.kron(random.integers(0, 2, (3, 4)), np.full((8, 8), 1)).astype(np.uint8) * 255)
    return Image.fromarray(random.integers(0, 255, (24, 32, 3)).astype(np.uint8))


def expand(pattern):
    """Return the names of a pattern, ``{a,b}/#2.png``: a/0.png, a/1.png, b/0.png, b/1.png."""
    parts = re.split(r"(\{[^}]*\}|#\d+)", pattern)
    options = [
        part[1:-1].split(",")
        if part[:1] == "{"
        else list(map(str, range(int(part[1:]))))
        if part[:1] == "#"
        else [part]
        for part in parts
    ]
    return ["".join(chosen) for chosen in itertools.product(*options)]


def voc(name):
    return (
        f"<annotation><filename>{name}</filename><size><width>32</width><height>24</height><depth>3</depth></size>"
        "<object><name>cat</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
        "<object><name>dog</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
        "</annotation>"
    )


def table(heading, rows):
    return [heading.split(","), *[str(row).split(",") for row in rows]]


def opened(recipe, root, splits=("train", "val")):
    """Return images by split, and the classes, of a folder that a recipe opens; or the refusal."""
    counts, names = {}, None
    for split in splits:
        try:
            dataset = pv.open_dataset(recipe, split, data_path=str(root))
        except pv.UserError as error:
            return str(error)
        counts[split] = len(dataset)
        names = list(dataset.class_names or [])
    return counts, names


def lines(*names):
    return "".join(f"{name}\n" for name in names)


TWO = ["cat", "dog"]
LISTED = [f"{folder}/{number}.jpg" for folder in ("001.Cat", "002.Dog") for number in range(5)]
BELOW = "{cat,dog}/#5.jpg"  # of which one of each class is held out
HALF = {"train": 8, "val": 2}  # of BELOW
SPLIT = {"train": 10, "val": 4}
IDS = [f"x{number}" for number in range(10)]
ALL, FIRST, LAST = ("{%s}" % ",".join(names) for names in (IDS, IDS[:5], IDS[5:]))  # noqa: UP031 - braces
NAMED = [f"{name},{TWO[number % 2]}" for number, name in enumerate(IDS)]


def split_folders(train, val, more=""):
    return {f"{train}/{{cat,dog}}{more}/#5.jpg": None, f"{val}/{{cat,dog}}{more}/#2.jpg": None}


CLASSES = {
    # class folders below splits, as they are called
    "ImageNet": (split_folders("train", "val"), SPLIT, TWO),
    "imagenette": (
        {**split_folders("imagenette2/train", "imagenette2/val"), "imagenette2/noisy_imagenette.csv": "path,noisy\n"},
        SPLIT,
        TWO,
    ),
    "Places365": (
        {**split_folders("places/train", "places/val"), "places/train.txt": "cat/0.jpg 0", "places/val.txt": ""},
        SPLIT,
        TWO,
    ),
    "chest x-ray": (
        {
            **split_folders("chest_xray/train", "chest_xray/test"),
            "chest_xray/val/{cat,dog}/#1.jpg": None,
            **split_folders("chest_xray/chest_xray/train", "chest_xray/chest_xray/test"),
            "chest_xray/__MACOSX/._train": "",
        },
        {"train": 10, "val": 2},
        TWO,
    ),
    "brain tumor": (split_folders("Training", "Testing"), HALF, TWO),
    "Intel": (
        {**split_folders("seg_train/seg_train", "seg_test/seg_test"), "seg_pred/seg_pred/#3.jpg": None},
        HALF,
        TWO,
    ),
    "fruits-360": (
        {
            **split_folders("fruits-360_dataset/fruits-360/Training", "fruits-360_dataset/fruits-360/Test"),
            "fruits-360_dataset/fruits-360/test-multiple_fruits/#3.jpg": None,
            "fruits-360_dataset/fruits-360/LICENSE": "",
        },
        HALF,
        TWO,
    ),
    "cats and dogs, filtered": (
        {**split_folders("cats/train", "cats/validation"), "cats/vectorize.py": ""},
        SPLIT,
        TWO,
    ),
    "monkeys": ({**split_folders("training/training", "validation/validation"), "monkey_labels.txt": ""}, SPLIT, TWO),
    "Roboflow": (
        {**split_folders("train", "valid"), "test/{cat,dog}/#1.jpg": None, "README.roboflow.txt": ""},
        SPLIT,
        TWO,
    ),
    "skin cancer": ({**split_folders("train", "test"), **split_folders("data/train", "data/test")}, HALF, TWO),
    "Stanford cars, folders": (
        {
            **split_folders("car_data/car_data/train", "car_data/car_data/test"),
            "anno_{train,test}.csv": "0.jpg,1,2,3,4,1\n1.jpg,1,2,3,4,1\n",
            "names.csv": "AM General Hummer\nAcura\n",
        },
        HALF,
        TWO,
    ),
    "GTSRB": (
        {
            "Train/{0,1}/#5.png": None,
            "{Test,Meta}/#3.png": None,
            "Train.csv": table(
                "Width,Height,ClassId,Path", [f"32,24,{c},Train/{c}/{n}.png" for c in (0, 1) for n in range(5)]
            ),
            "Test.csv": table("Width,Height,ClassId,Path", [f"32,24,{n % 2},Test/{n}.png" for n in range(3)]),
            "Meta.csv": table("Path,ClassId,ShapeId", ["Meta/0.png,0,1", "Meta/1.png,1,1"]),
        },
        {"train": 10, "val": 3},
        ["0", "1"],
    ),
    "GTSRB, official": (
        {
            "GTSRB/Final_Training/Images/{00000,00001}/#5.ppm": None,
            "GTSRB/Final_Training/Images/{00000,00001}/GT.csv": "Filename;Width\n0.ppm;32\n",
            "GTSRB/Final_Test/Images/#3.ppm": None,
            "GTSRB/Readme.txt": "",
        },
        HALF,
        ["00000", "00001"],
    ),
    "tiny-imagenet": (
        {
            "tiny-imagenet-200/train/{n01,n02}/images/#5.JPEG": None,
            "tiny-imagenet-200/train/{n01,n02}/boxes.txt": "",
            "tiny-imagenet-200/{val,test}/images/#3.JPEG": None,
            "tiny-imagenet-200/val/val_annotations.txt": lines(
                *(f"{n}.JPEG\t{c}\t0\t0\t62\t62" for n, c in enumerate(("n01", "n02", "n01")))
            ),
            "tiny-imagenet-200/{wnids,words}.txt": "n01\nn02\n",
        },
        {"train": 10, "val": 3},
        ["n01", "n02"],
    ),
    "ASL alphabet": (
        {
            "asl_alphabet_train/asl_alphabet_train/{A,B}/#5.jpg": None,
            "asl_alphabet_test/asl_alphabet_test/{A,B}_test.jpg": None,
        },
        HALF,
        ["A", "B"],
    ),
    "FER": ({"train/{angry,happy}/#5.jpg": None, "test/{angry,happy}/#2.jpg": None}, HALF, ["angry", "happy"]),
    "MNIST as pictures": (
        {
            "trainingSet/trainingSet/{0,1}/#5.jpg": None,
            "trainingSample/trainingSample/{0,1}/#2.jpg": None,
            "testSet/testSet/#3.jpg": None,
        },
        HALF,
        ["0", "1"],
    ),
    # class folders, not split
    "flower photos": ({f"flower_photos/{BELOW}": None, "flower_photos/LICENSE.txt": ""}, HALF, TWO),
    "cats and dogs": (
        {"PetImages/{Cat,Dog}/#5.jpg": None, "readme[1].txt": "", "license.docx": ""},
        HALF,
        ["Cat", "Dog"],
    ),
    "EuroSAT": ({f"EuroSAT/2750/{BELOW}": None}, HALF, TWO),
    "animals 10": ({f"raw-img/{BELOW}": None, "translate.py": ""}, HALF, TWO),
    "Caltech 101": (
        {f"caltech101/101_ObjectCategories/{BELOW}": None, "caltech101/Annotations/{cat,dog}/#5.mat": None},
        HALF,
        TWO,
    ),
    # lists name the splits
    "CUB": (
        {
            "CUB_200_2011/images/{001.Cat,002.Dog}/#5.jpg": None,
            "CUB_200_2011/{attributes,parts}/parts.txt": "1 back\n",
            "CUB_200_2011/images.txt": lines(*(f"{n + 1} {LISTED[n]}" for n in range(10))),
            "CUB_200_2011/train_test_split.txt": lines(*(f"{n + 1} {int(n % 5 < 3)}" for n in range(10))),
            "CUB_200_2011/image_class_labels.txt": lines(*(f"{n + 1} {1 + n // 5}" for n in range(10))),
            "CUB_200_2011/classes.txt": "1 001.Cat\n2 002.Dog\n",
            "CUB_200_2011/bounding_boxes.txt": lines(*(f"{n + 1} 1.0 2.0 9.0 9.0" for n in range(10))),
        },
        {"train": 6, "val": 4},
        ["001.Cat", "002.Dog"],
    ),
    "Food-101": (
        {
            f"food-101/images/{BELOW}": None,
            "food-101/meta/{classes,labels}.txt": "cat\ndog\n",
            "food-101/meta/train.txt": lines("cat/0", "cat/1", "cat/2", "dog/0", "dog/1", "dog/2"),
            "food-101/meta/test.txt": lines("cat/3", "cat/4", "dog/3", "dog/4"),
            "food-101/meta/{train,test}.json": "{}",
        },
        {"train": 6, "val": 4},
        TWO,
    ),
    "DTD": (
        {
            f"dtd/images/{BELOW}": None,
            "dtd/imdb/imdb.mat": "",
            "dtd/labels/labels_joint_anno.txt": "cat/0.jpg cat\n",
            "dtd/labels/train{1,2,10}.txt": lines("cat/0.jpg", "cat/1.jpg", "dog/0.jpg"),
            "dtd/labels/val{1,2,10}.txt": lines("cat/2.jpg", "dog/2.jpg"),
            "dtd/labels/test{1,2,10}.txt": lines("cat/3.jpg", "dog/3.jpg"),
        },
        {"train": 3, "val": 2},
        TWO,
    ),
    "indoor scenes": (
        {
            f"Images/{BELOW}": None,
            "TrainImages.txt": lines("cat/0.jpg", "cat/1.jpg", "dog/0.jpg"),
            "TestImages.txt": lines("cat/2.jpg", "dog/2.jpg"),
        },
        {"train": 3, "val": 2},
        TWO,
    ),
    "lists of other images": (
        {f"images/{BELOW}": None, "train.txt": lines("bus/1", "car/1"), "test.txt": lines("bus/2", "car/2")},
        HALF,
        TWO,
    ),
    "Stanford dogs": (
        {f"images/Images/{BELOW}": None, "annotations/Annotation/{cat,dog}/n0_#5": "<annotation>"},
        HALF,
        TWO,
    ),
    "COVID radiography": (
        {
            "COVID-19_Radiography_Dataset/{COVID,Normal}/images/#5.png": None,
            "mask:COVID-19_Radiography_Dataset/{COVID,Normal}/masks/#5.png": None,
            "COVID-19_Radiography_Dataset/{COVID,Normal}.metadata.xlsx": "",
            "COVID-19_Radiography_Dataset/README.md.txt": "",
        },
        HALF,
        ["COVID", "Normal"],
    ),
    "BUSI": (
        {
            "Dataset_BUSI_with_GT/{benign,normal}/scan (#5).png": None,
            "mask:Dataset_BUSI_with_GT/{benign,normal}/scan (#5)_mask.png": None,
            "mask:Dataset_BUSI_with_GT/benign/scan (0)_mask_1.png": None,
        },
        HALF,
        ["benign", "normal"],
    ),
    "PlantVillage": ({f"plantvillage dataset/{{color,grayscale,segmented}}/{BELOW}": None}, ("color", "-data_path")),
    "PlantVillage, twice": (
        {f"PlantVillage/{BELOW}": None, f"plantvillage/PlantVillage/{BELOW}": None},
        ("PlantVillage", "-data_path"),
    ),
    "Office-31": ({f"{{amazon,dslr}}/images/{BELOW}": None}, ("amazon", "dslr")),
    "rock paper scissors": (
        {"rps/{rock,paper}/#5.png": None, "rps/rps-cv-images/{rock,paper}/#5.png": None, "rps/README.txt": ""},
        HALF,
        ["paper", "rock"],
    ),
    "malaria": (
        {f"cell_images/{BELOW}": None, f"cell_images/cell_images/{BELOW}": None},
        HALF,
        TWO,
    ),
    "natural images": ({f"natural_images/{BELOW}": None, f"data/natural_images/{BELOW}": None}, ("-data_path",)),
    "blood cells": (
        {
            "dataset-master/JPEGImages/#3.jpg": None,
            "dataset-master/Annotations/#3.xml": voc("0.jpg"),
            "dataset-master/labels.csv": table("Image,Category", ["0,A", "1,B"]),
            **split_folders("dataset2-master/images/TRAIN", "dataset2-master/images/TEST"),
        },
        ("dataset2-master/images", "-data_path"),
    ),
    "cactus": (
        {
            f"train/train/{ALL}.jpg": None,
            "test/test/t#2.jpg": None,
            "train.csv": table("id,has_cactus", [f"{name}.jpg,{n % 2}" for n, name in enumerate(IDS)]),
        },
        HALF,
        ["0", "1"],
    ),
    "lung cancer": ({"set/{Benign cases,Malignant cases,Test cases}/#5.jpg": None}, ("Test cases", "-dataset=folder")),
    "new plant diseases": (
        {**split_folders("New/New/train", "New/New/valid"), "test/test/#3.jpg": None},
        ("-data_path", "New/New"),
    ),
    "label maps of labeled images": (
        {
            f"imgs/{ALL}.jpg": None,
            f"mask:segs/{ALL}.png": None,
            "labels.csv": table("image,label", [n.replace(",", ".jpg,") for n in NAMED]),
        },
        HALF,
        TWO,
    ),
    "seedlings": (
        {
            "train/{cat,dog}/#5.png": None,
            "test/#3.png": None,
            "sample_submission.csv": table("file,species", ["0.png,cat"]),
        },
        HALF,
        TWO,
    ),
    "faces": (
        {
            "lfw/lfw/{Ann_B,Cy_D}/#5.jpg": None,
            "lfw/people.csv": table("name,images", ["Ann_B,5", "Cy_D,5"]),
            "lfw/pairs.csv": table("name,imagenum1,imagenum2", ["Ann_B,1,4"]),
        },
        HALF,
        ["Ann_B", "Cy_D"],
    ),
    "retinopathy, resized": (
        {
            f"resized_train/resized_train/{ALL}.jpeg": None,
            f"resized_train_cropped/resized_train_cropped/{ALL}.jpeg": None,
            "trainLabels{,_cropped}.csv": table("image,level", [f"{name},{n % 2}" for n, name in enumerate(IDS)]),
        },
        ("resized_train",),
    ),
    "SUN397": (
        {"SUN397/a/{abbey,alley}/#5.jpg": None, "SUN397/b/{bank,beach}/#5.jpg": None},
        ("abbey", "-dataset=folder"),
    ),
    "lung and colon": (
        {"set/colon_image_sets/{colon_aca,colon_n}/#5.jpg": None, "set/lung_image_sets/{lung_aca,lung_n}/#5.jpg": None},
        ("colon_aca", "-dataset=folder"),
    ),
    "folds": ({f"fold_{{1,2,3}}/{BELOW}": None}, ("fold_1", "-data_path")),
    # tables of labels
    "APTOS": (
        {
            f"train_images/{ALL}.png": None,
            "test_images/{t0,t1}.png": None,
            "train.csv": table("id_code,diagnosis", [f"{name},{n % 2}" for n, name in enumerate(IDS)]),
            "test.csv": table("id_code", ["t0", "t1"]),
            "sample_submission.csv": table("id_code,diagnosis", ["t0,0", "t1,0"]),
        },
        HALF,
        ["0", "1"],
    ),
    "a test table of other columns": (
        {
            f"images/{ALL}.png": None,
            "train.csv": table("image,age,label", [line.replace(",", ",40,") for line in NAMED[:8]]),
            "test.csv": table("image,age", ["x8,40", "x9,41"]),
        },
        {"train": 6, "val": 2},
        TWO,
    ),
    "a test table with empty labels": (
        {
            f"images/{ALL}.png": None,
            "train.csv": table("image,label", NAMED[:8]),
            "test.csv": table("image,label", ["x8,", "x9,"]),
        },
        {"train": 6, "val": 2},
        TWO,
    ),
    "another machine's folders": (
        {f"images/{ALL}.png": None, "labels.csv": table("image,label", [f"C:\\Users\\me\\images\\{n}" for n in NAMED])},
        HALF,
        TWO,
    ),
    "two other machines' folders": (
        {f"images/{ALL}.png": None, "labels.csv": table("image,label", [f"/{n[1]}/images/{n}" for n in NAMED])},
        ("labels.csv", "missing"),
    ),
    "cassava": (
        {
            f"train_images/{ALL}.jpg": None,
            "test_images/t0.jpg": None,
            "{train,test}_tfrecords/ld_train00.tfrec": "",
            "train.csv": table("image_id,label", [f"{name}.jpg,{n % 2}" for n, name in enumerate(IDS)]),
            "sample_submission.csv": table("image_id,label", ["t0.jpg,4"]),
            "label_num_to_disease_map.json": '{"0": "cat", "1": "dog"}',
        },
        HALF,
        ["0", "1"],
    ),
    "dog breeds": (
        {
            f"train/{ALL}.jpg": None,
            "test/{t0,t1}.jpg": None,
            "labels.csv": table("id,breed", NAMED),
            "sample_submission.csv": table("id,cat,dog", ["t0,0.5,0.5", "t1,0.5,0.5"]),
        },
        HALF,
        TWO,
    ),
    "CIFAR-10 of Kaggle": (
        {
            "{train,test}/#10.png": None,
            "trainLabels.csv": table("id,label", [f"{n},{TWO[n % 2]}" for n in range(10)]),
            "sampleSubmission.csv": table("id,label", [f"{n},cat" for n in range(10)]),
        },
        HALF,
        TWO,
    ),
    "HAM10000": (
        {
            f"HAM10000_images_part_1/{FIRST}.jpg": None,
            f"HAM10000_images_part_2/{LAST}.jpg": None,
            "HAM10000_metadata.csv": table(
                "lesion_id,image_id,dx,dx_type,age",
                [f"L{n},{name},{TWO[n % 2]},histo,40" for n, name in enumerate(IDS)],
            ),
        },
        HALF,
        TWO,
    ),
    "parts of pictures": (
        {
            f"images_1/{FIRST}.jpg": None,
            f"images_2/{LAST}.jpg": None,
            "labels.csv": table("image,label", [f"{line.replace(',', '.jpg,')}" for line in NAMED]),
        },
        HALF,
        TWO,
    ),
    "labels and folders that differ": (
        {BELOW: None, "labels.csv": table("image,label", [f"{c}/{n}.jpg,{n % 2}" for c in TWO for n in range(5)])},
        ("labels.csv", "-dataset=folder", "-dataset=table"),
    ),
    "labels beside one folder": (
        {f"images/{ALL}.jpg": None, "labels.csv": table("image,label", NAMED)},
        HALF,
        TWO,
    ),
    "RAF-DB": (
        {
            "DATASET/train/1/train_1#5.jpg": None,
            "DATASET/train/2/train_2#5.jpg": None,
            "DATASET/test/{1,2}/test_#2.jpg": None,
            "train_labels.csv": table("image,label", [f"train_{c}{n}.jpg,{c}" for c in (1, 2) for n in range(5)]),
        },
        HALF,
        ["1", "2"],
    ),
    "EuroSAT of Kaggle": (
        {
            f"EuroSAT/{BELOW}": None,
            "EuroSAT/label_map.json": '{"cat": 0, "dog": 1}',
            "EuroSAT/train.csv": table(
                ",Filename,Label,ClassName", [f"{n},{c}/{n}.jpg,{TWO.index(c)},{c}" for c in TWO for n in range(3)]
            ),
            "EuroSAT/validation.csv": table(
                ",Filename,Label,ClassName", [f"{n},{c}/{n}.jpg,{TWO.index(c)},{c}" for c in TWO for n in (3,)]
            ),
            "EuroSAT/test.csv": table(
                ",Filename,Label,ClassName", [f"{n},{c}/{n}.jpg,{TWO.index(c)},{c}" for c in TWO for n in (4,)]
            ),
        },
        {"train": 6, "val": 2},
        ["0", "1"],
    ),
    "ISIC 2019": (
        {
            f"ISIC_2019_Training_Input/{ALL}.jpg": None,
            "ISIC_2019_Training_GroundTruth.csv": table("image,MEL,NV", [f"{name},1.0,0.0" for name in IDS]),
            "ISIC_2019_Training_Metadata.csv": table("image,age_approx,sex", [f"{name},40,male" for name in IDS]),
        },
        HALF,
        ["MEL", "NV"],
    ),
    "plant pathology": (
        {
            "images/{Train,Test}_#5.jpg": None,
            "train.csv": table("image_id,healthy,rust,scab", [f"Train_{n},1,0,0" for n in range(5)]),
            "test.csv": table("image_id", [f"Test_{n}" for n in range(5)]),
            "sample_submission.csv": table(
                "image_id,healthy,rust,scab", [f"Test_{n},0.25,0.25,0.25" for n in range(5)]
            ),
        },
        {"train": 4, "val": 1},
        ["healthy", "rust", "scab"],
    ),
    "NIH": (
        {
            "images_001/images/a.png": None,
            "images_002/images/b.png": None,
            "Data_Entry_2017.csv": table(
                "Image Index,Finding Labels,Patient ID", ["a.png,Mass|Hernia,1", "b.png,Mass,2"]
            ),
            "BBox_List_2017.csv": table("Image Index,Finding Label,Bbox [x,y,w,h]", ["a.png,Mass,1,2,3,4"]),
            "{train_val,test}_list.txt": "a.png\n",
        },
        ("Data_Entry_2017.csv",),
    ),
    "CheXpert": (
        {
            "CheXpert-v1.0-small/train/patient{1,2,3}/study1/view1_frontal.jpg": None,
            "CheXpert-v1.0-small/valid/patient{4,5}/study1/view1_frontal.jpg": None,
            "CheXpert-v1.0-small/train.csv": table(
                "Path,Sex,No Finding,Edema",
                [f"CheXpert-v1.0-small/train/patient{n}/study1/view1_frontal.jpg,Male,1.0," for n in (1, 2, 3)],
            ),
            "CheXpert-v1.0-small/valid.csv": table(
                "Path,Sex,No Finding,Edema",
                [f"CheXpert-v1.0-small/valid/patient{n}/study1/view1_frontal.jpg,Male,1.0,0.0" for n in (4, 5)],
            ),
        },
        ("train.csv", "-dataset=table"),
    ),
    "fashion products": (
        {
            f"images/{ALL}.jpg": None,
            "styles.csv": table("id,gender,masterCategory,season", [f"{name},Men,Apparel,Fall" for name in IDS]),
        },
        ("styles.csv", "masterCategory", "DATA.TABLE.LABELS"),
    ),
    "CelebA": (
        {
            "img_align_celeba/img_align_celeba/#5.jpg": None,
            "list_attr_celeba.csv": table("image_id,Bald,Young", [f"{n}.jpg,1,1" for n in range(5)]),
            "list_eval_partition.csv": table("image_id,partition", [f"{n}.jpg,0" for n in range(5)]),
        },
        ("list_attr_celeba.csv",),
    ),
    "Roboflow's table of classes": (
        {
            "{train,valid}/{a,b}.jpg": None,
            "{train,valid}/_classes.csv": table("filename, cat, dog", ["a.jpg, 1, 0", "b.jpg, 0, 1"]),
        },
        {"train": 2, "val": 2},
        TWO,
    ),
    "Roboflow's table of boxes": (
        {
            "{train,valid}/{a,b}.jpg": None,
            "{train,valid}/_annotations.csv": table(
                "filename,width,height,class,xmin,ymin,xmax,ymax",
                ["a.jpg,32,24,cat,1,2,3,4", "b.jpg,32,24,dog,1,2,3,4"],
            ),
        },
        ("_annotations.csv", "boxes"),
    ),
    # the class is told by names or by files of other formats: refused
    "dogs vs. cats": ({"train/{cat,dog}.#5.jpg": None, "test1/#3.jpg": None}, ("train", "class")),
    "pets": (
        {"images/{Abyssinian,beagle}_#5.jpg": None, "mask:annotations/trimaps/{Abyssinian,beagle}_#5.png": None},
        ("images",),
    ),
    "label maps in color": ({"images/#5.png": None, "masks/#5.png": None}, ("label maps", "recipe")),
    "aircraft": (
        {
            "data/images/#5.jpg": None,
            "data/images_{variant,family}_{train,val,test}.txt": lines("0 707-320", "1 A380", "2 Boeing 707"),
            "data/images_{train,val,test}.txt": lines("0", "1", "2"),
            "data/{images_box,variants}.txt": "0 1 2 3 4\n",
        },
        ("images_variant_train.txt", "-data_path"),
    ),
    "AffectNet": (
        {"{train,val}_set/images/#5.jpg": None, "{train,val}_set/annotations/#5_exp.npy": ""},
        ("train_set",),
    ),
    # they opened before, and stay as they are
    "attributes beside classes": (
        {
            BELOW: None,
            "attributes.csv": table("image,color,size", [f"{c}/{n}.jpg,red,{n}" for c in TWO for n in range(5)]),
        },
        HALF,
        TWO,
    ),
    "labels that say the same": (
        {BELOW: None, "labels.csv": table("image,label", [f"{c}/{n}.jpg,{c}" for c in TWO for n in range(5)])},
        HALF,
        TWO,
    ),
    "mask and no mask": ({"{mask,no_mask}/#5.jpg": None}, HALF, ["mask", "no_mask"]),
    "with mask below splits": (
        {"{train,test}/{with_mask,without_mask}/#5.jpg": None},
        HALF,
        ["with_mask", "without_mask"],
    ),
    "label and no label": ({"{label,no label}/#5.jpg": None}, HALF, ["label", "no label"]),
    "parts that are classes": ({"part_{1,2,3}/#5.jpg": None}, {"train": 12, "val": 3}, ["part_1", "part_2", "part_3"]),
    "a train among vehicles": ({"{bus,car,train}/#5.jpg": None}, {"train": 12, "val": 3}, ["bus", "car", "train"]),
    "binary letters": ({"mask:{A,B}/#5.png": None}, HALF, ["A", "B"]),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_download_for_classification_opens_or_is_refused(name, tmp_path):
    tree, *expected = CLASSES[name]
    plant(tmp_path / "download", tree)
    found = opened("scratch_folder", tmp_path / "download")
    if len(expected) == 2:
        assert found == tuple(expected)
    else:
        assert isinstance(found, str) and "\n" not in found and all(word in found for word in expected[0]), found


FAR = "/home/me/SegNet/CamVid"
MAPS = {
    "CamVid": (
        {
            "{train,val}/f_#4.png": None,
            "mask:{train,val}annot/f_#4.png": None,
            **{
                f"{s}.txt": lines(*(f"{FAR}/{s}/f_{n}.png {FAR}/{s}annot/f_{n}.png" for n in range(4)))
                for s in ("train", "val")
            },
        },
        {"train": 4, "val": 4},
    ),
    "pets": (
        {
            "images/cat_#5.jpg": None,
            "mask:annotations/trimaps/cat_#5.png": None,
            "annotations/xmls/cat_#5.xml": "<annotation/>",
            "annotations/list.txt": "cat_0 1 1 1\n",
        },
        {"train": 5},
    ),
    "Kvasir": (
        {"Kvasir-SEG/images/a#5.jpg": None, "mask:Kvasir-SEG/masks/a#5.jpg": None, "Kvasir-SEG/boxes.json": "{}"},
        ("JPEG",),
    ),
    "CVC": ({"CVC-ClinicDB/Original/#5.png": None, "mask:CVC-ClinicDB/Ground Truth/#5.png": None}, {"train": 5}),
    "Carvana": (
        {"train/car_#5.jpg": None, "mask:train_masks/car_#5_mask.gif": None, "test/new_#3.jpg": None},
        {"train": 5},
    ),
    "ADE20K": (
        {"ADE/images/{training,validation}/#4.jpg": None, "mask:ADE/annotations/{training,validation}/#4.png": None},
        {"train": 4, "val": 4},
    ),
    "Massachusetts": (
        {"tiff/{train,val}/#4.tiff": None, "mask:tiff/{train,val}_labels/#4.tif": None},
        {"train": 4, "val": 4},
    ),
    "LoveDA": (
        {
            "Train/images_png/#4.png": None,
            "mask:Train/masks_png/#4.png": None,
            "Val/images_png/#2.png": None,
            "mask:Val/masks_png/#2.png": None,
        },
        {"train": 4, "val": 2},
    ),
    "CVAT": (
        {
            "JPEGImages/#4.jpg": None,
            "mask:SegmentationClass/#4.png": None,
            "ImageSets/Segmentation/default.txt": lines(*"0123"),
            "labelmap.txt": "background:0,0,0::\nlesion:255,255,255::\n",
        },
        {"train": 4},
    ),
    "masks beside images": ({"a_#5.jpg": None, "mask:a_#5_mask.png": None}, {"train": 5}),
    "Supervisely": (
        {"ds/img/#4.png": None, "ds/ann/#4.png.json": '{"objects": [{"classTitle": "cat"}]}'},
        ("Supervisely",),
    ),
    "DeepGlobe": (
        {"train/#4_sat.jpg": None, "mask:train/#4_mask.png": None, "valid/#2_sat.jpg": None},
        ("-dataset=NAME",),
    ),
    "ISIC 2018": (
        {
            "ISIC2018_Task1-2_Training_Input/ISIC_#4.jpg": None,
            "mask:ISIC2018_Task1_Training_GroundTruth/ISIC_#4_segmentation.png": None,
        },
        {"train": 4},
    ),
    "DRIVE": (
        {
            "training/images/2#4_training.tif": None,
            "mask:training/1st_manual/2#4_manual1.gif": None,
            "mask:training/mask/2#4_training_mask.gif": None,
            "test/images/0#4_test.tif": None,
            "mask:test/mask/0#4_test_mask.gif": None,
        },
        ("1st_manual", "mask"),
    ),
    "labelme2voc": (
        {"JPEGImages/#4.jpg": None, "mask:Segmentation{Class,Object}/#4.png": None, "class_names.txt": "a\nb\n"},
        {"train": 4},
    ),
    "two kinds of label maps": (
        {"images/#4.png": None, "mask:masks/#4.png": None, "mask:labels/#4.png": None},
        ("masks", "labels"),
    ),
    "Montgomery": (
        {"CXR_png/#4.png": None, "mask:ManualMask/{leftMask,rightMask}/#4.png": None},
        ("ManualMask", "leftMask"),
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_a_download_with_label_maps_opens_or_is_refused(name, tmp_path):
    tree, expected = MAPS[name]
    plant(tmp_path / "download", tree)
    found = opened("segformer_b0_shapes", tmp_path / "download", expected if isinstance(expected, dict) else ("train",))
    assert found[0] == expected if isinstance(expected, dict) else all(word in found for word in expected), found


def coco(*names):
    images = [{"id": number, "file_name": name, "width": 32, "height": 24} for number, name in enumerate(names)]
    boxes = [
        {"id": n, "image_id": n, "category_id": 1 + n % 2, "bbox": [1, 2, 9, 9], "area": 81, "iscrowd": 0}
        for n in range(len(names))
    ]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    return json.dumps({"images": images, "annotations": boxes, "categories": categories})


YOLO = "0 0.5 0.5 0.25 0.25\n1 0.5 0.5 0.25 0.25\n"
YAML = "train: ../train/images\nval: ../valid/images\nnc: 2\nnames: ['cat', 'dog']\n"
BOXES = {
    "COCO": (
        {
            "coco/{train,val}2017/#4.jpg": None,
            "coco/annotations/instances_{train,val}2017.json": coco("0.jpg", "1.jpg", "2.jpg", "3.jpg"),
            "coco/annotations/captions_val2017.json": '{"images": [], "annotations": [{"caption": "x"}]}',
        },
        "",
        {"train": 4, "val": 4},
    ),
    "VOC": (
        {
            "VOCdevkit/VOC2012/JPEGImages/#4.jpg": None,
            "VOCdevkit/VOC2012/Annotations/#4.xml": voc("0.jpg"),
            "VOCdevkit/VOC2012/ImageSets/Main/train.txt": lines("0", "1", "2"),
            "VOCdevkit/VOC2012/ImageSets/Main/val.txt": lines("3"),
        },
        "",
        {"train": 3, "val": 1},
    ),
    "Roboflow, YOLO": (
        {"{train,valid}/images/#3.jpg": None, "{train,valid}/labels/#3.txt": YOLO, "data.yaml": YAML},
        "",
        {"train": 3, "val": 3},
    ),
    "Roboflow, YOLO, its YAML": (
        {"{train,valid}/images/#3.jpg": None, "{train,valid}/labels/#3.txt": YOLO, "data.yaml": YAML},
        "data.yaml",
        {"train": 3, "val": 3},
    ),
    "one of two YAMLs": (
        {
            "images/{train,val}/#3.jpg": None,
            "labels/{train,val}/#3.txt": YOLO,
            "{one,two}.yaml": "path: .\ntrain: images/train\nval: images/val\nnames: {0: cat, 1: dog}\n",
        },
        "two.yaml",
        {"train": 3, "val": 3},
    ),
    "Roboflow, COCO": (
        {"{train,valid}/#3.jpg": None, "{train,valid}/_annotations.coco.json": coco("0.jpg", "1.jpg", "2.jpg")},
        "",
        {"train": 3, "val": 3},
    ),
    "Roboflow, VOC": ({"{train,valid}/#3.jpg": None, "{train,valid}/#3.xml": voc("0.jpg")}, "", {"train": 3, "val": 3}),
    "Roboflow, Darknet": (
        {"{train,valid}/#3.jpg": None, "{train,valid}/#3.txt": YOLO, "{train,valid}/_darknet.labels": "cat\ndog\n"},
        "",
        {"train": 3, "val": 3},
    ),
    "Darknet": (
        {
            "obj_train_data/#3.jpg": None,
            "obj_train_data/#3.txt": YOLO,
            "obj.names": "cat\ndog\n",
            "obj.data": "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\n",
            "train.txt": lines(*(f"data/obj_train_data/{n}.jpg" for n in range(3))),
        },
        "",
        {"train": 2, "val": 1},
    ),
    "lists of another machine": (
        {
            "images/#4.jpg": None,
            "labels/#4.txt": YOLO,
            "data.yaml": "train: train.txt\nval: val.txt\nnames: [cat, dog]\n",
            "train.txt": lines("/home/me/images/0.jpg", "/home/me/images/1.jpg"),
            "val.txt": lines("/home/me/images/2.jpg"),
        },
        "",
        {"train": 2, "val": 1},
    ),
    "names beside images": ({"#3.jpg": None, "#3.txt": YOLO, "obj.names": "cat\ndog\n"}, "", {"train": 2, "val": 1}),
    "coco128": (
        {
            "coco128/images/train2017/#3.jpg": None,
            "coco128/labels/train2017/#3.txt": YOLO,
            "coco128.yaml": "path: ../datasets/coco128\ntrain: images/train2017\nval: images/train2017\n"
            "names: [cat, dog]\n",
        },
        "",
        {"train": 3},
    ),
    "wheat": (
        {
            f"train/{ALL}.jpg": None,
            "test/t#2.jpg": None,
            "train.csv": [
                ["image_id", "width", "height", "bbox", "source"],
                *([name, 32, 24, f"[{n}.0, 2.0, 9.0, 9.0]", "arvalis_1"] for n, name in enumerate(IDS)),
            ],
            "sample_submission.csv": table("image_id,PredictionString", ["t0,1.0 0 0 9 9"]),
        },
        "",
        {"train": 8, "val": 2},
        ["object"],
    ),
    "VinBigData": (
        {
            f"train/{ALL}.png": None,
            "train.csv": table(
                "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max",
                [f"{name},{TWO[n % 2]},{n % 2},R1,1,2,9,{10 + n}" for n, name in enumerate(IDS[:8])]
                + [f"{name},No finding,14,R1,,,," for name in IDS[8:]],
            ),
        },
        "",
        {"train": 8, "val": 2},
    ),
    "pneumonia": (
        {
            f"stage_2_train_images/{ALL}.png": None,
            "stage_2_train_labels.csv": table(
                "patientId,x,y,width,height,Target", [f"{name},1,2,9,9,1" for name in IDS[:5]] + ["x5,,,,,0"]
            ),
            "stage_2_detailed_class_info.csv": table("patientId,class", ["x0,Normal"]),
        },
        "",
        ("patientId", "DATA.TABLE.IMAGE"),
    ),
    "Open Images": (
        {
            "{train,validation}/{a,b}.jpg": None,
            "{train,validation}-annotations-bbox.csv": table(
                "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf",
                ["a,xclick,cat,1,0.1,0.5,0.25,0.75,0,0", "b,xclick,dog,1,0.1,0.5,0.25,0.75,0,1"],
            ),
        },
        "",
        {"train": 2, "val": 2},
    ),
    "a competition's words": (
        {
            f"train/{ALL}.jpg": None,
            "train.csv": table(
                "ImageID,PredictionString", [f"{n},cat 1.0 1 2 9 9 dog 0.5 1 2 9 {10 + int(n[1:])}" for n in IDS]
            ),
        },
        "",
        {"train": 8, "val": 2},
    ),
    "car objects": (
        {
            f"data/training_images/{ALL}.jpg": None,
            "data/testing_images/t#2.jpg": None,
            "data/train_solution_bounding_boxes (1).csv": table(
                "image,xmin,ymin,xmax,ymax", [f"{name}.jpg,1.5,2.5,9.5,9.5" for name in IDS]
            ),
        },
        "",
        {"train": 8, "val": 2},
        ["object"],
    ),
    "Roboflow, table": (
        {
            "{train,valid}/{a,b}.jpg": None,
            "{train,valid}/_annotations.csv": table(
                "filename,width,height,class,xmin,ymin,xmax,ymax",
                ["a.jpg,32,24,cat,1,2,3,4", "a.jpg,32,24,dog,1,2,3,4", "b.jpg,32,24,dog,1,2,3,4"],
            ),
        },
        "",
        {"train": 2, "val": 2},
    ),
    "a table of boxes alone": (
        {
            f"images/{ALL}.jpg": None,
            "boxes.csv": table(
                "filename,split,label,x_center,y_center,width,height",
                [f"{n}.jpg,{'val' if n == 'x9' else 'train'},{TWO[int(n[1:]) % 2]},0.5,0.5,0.2,0.2" for n in IDS],
            ),
        },
        "boxes.csv",
        {"train": 9, "val": 1},
    ),
}
KNOWN = {  # of published layouts that are not read, a file
    "WIDER FACE": {
        "WIDER_train/images/{0--Parade,1--Riot}/#3.jpg": None,
        "wider_face_split/wider_face_val_bbx_gt.txt": "",
    },
    "KITTI": {"training/image_2/#3.png": None, "training/label_2/#3.txt": "Car 0.0 0 1.8 1 2 3 4 1 1 1 1 1 1 1\n"},
    "DOTA": {"{train,val}/images/#3.png": None, "{train,val}/labelTxt-v1.0/#3.txt": "imagesource:GoogleEarth\n"},
    "VisDrone": {
        "VisDrone/images/1_d_#3.jpg": None,
        "VisDrone/annotations/1_d_#3.txt": "1,2,3,4,1,4,0,0\n",
    },
    "Market-1501": {"Market-1501/{bounding_box_train,bounding_box_test,query}/0002_c1_#3.jpg": None},
    "CelebA": {"img_align_celeba/#3.jpg": None, "Anno/list_attr_celeba.txt": "3\nBald Young\n0.jpg 1 -1\n"},
    "MPII": {"images/#3.jpg": None, "mpii_human_pose_v1_u12_2/mpii_human_pose_v1_u12_1.mat": ""},
    "Cityscapes": {"leftImg8bit/train/a/#3.png": None, "gtFine/train/a/#3_gtFine_polygons.json": "{}"},
    "SVHN": {"{train,test}/#5.png": None, "{train,test}/digitStruct.mat": ""},
    "Oxford Flowers": {"flowers-102/jpg/image_#5.jpg": None, "flowers-102/{imagelabels,setid}.mat": ""},
    "Stanford Cars": {"cars_train/cars_train/#5.jpg": None, "cars_test/cars_test/#5.jpg": None, "cars_annos.mat": ""},
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_layout_that_is_not_read_is_named(name, tmp_path):
    plant(tmp_path / "download", KNOWN[name])
    for recipe in ("scratch_folder", "finetune_detector", "finetune_keypoints"):
        assert f"the layout of {name}, which is not read" in opened(recipe, tmp_path / "download"), recipe


@pytest.mark.parametrize("name", BOXES)
def test_a_download_with_boxes_opens_or_is_refused(name, tmp_path):
    tree, path, expected, *classes = BOXES[name]
    plant(tmp_path / "download", tree)
    splits = expected if isinstance(expected, dict) else ("train",)
    found = opened("finetune_detector", tmp_path / "download" / path, splits)
    if isinstance(expected, dict):
        assert found == (expected, classes[0] if classes else TWO)
    else:
        assert isinstance(found, str) and all(word in found for word in expected), found


def test_a_list_names_the_lists_of_the_other_splits(tmp_path):
    plant(tmp_path, CLASSES["aircraft"][0])
    found = opened("scratch_folder", tmp_path / "data" / "images_family_train.txt")
    assert found == ({"train": 3, "val": 3}, ["707-320", "A380", "Boeing 707"])
