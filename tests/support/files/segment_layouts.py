"""Images with maps of segments in the layouts of COCO, Cityscapes, ADE20K and one's own, and what they contain.

Each function writes the splits train and val to a folder and returns by (split, name) the class map, -1 for void, the
numbers of the segments by class, and the classes of the crowds.
"""

import json

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 12, 18
CATEGORIES = [
    {"id": 3, "name": "car", "isthing": 1, "color": [0, 0, 142]},
    {"id": 7, "name": "person", "isthing": 1, "color": [220, 20, 60]},
    {"id": 90, "name": "road", "isthing": 0, "color": [128, 64, 128]},
]


def photo(path, size=(HEIGHT, WIDTH)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(str(path.name))).integers(0, 256, (*size, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def save(path, numbers, as_colors=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    if as_colors:
        pixels = np.stack([numbers % 256, numbers // 256 % 256, numbers // 65_536], axis=2).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    else:
        Image.fromarray(numbers.astype(np.uint16)).save(path)


def bands(numbers, shift=0):
    """Columns of the numbers, from left to right, moved by ``shift``."""
    row = np.repeat(numbers, -(-WIDTH // len(numbers)))[:WIDTH]
    return np.tile(np.roll(row, shift), (HEIGHT, 1)).astype(np.int64)


def _listed(folder, image_id, name, segments, file_name=None):
    rows = [
        {"id": number, "category_id": of, "iscrowd": crowd, "area": int(area)} for number, of, crowd, area in segments
    ]
    return (
        {"id": image_id, "file_name": file_name or f"{name}.jpg"},
        {"image_id": image_id, "file_name": f"{name}.png", "segments_info": rows},
    )


def _coco(root, images, maps, json_file, categories=CATEGORIES, ending=""):
    """Two cars, one of them a crowd, a road, and void."""
    truth = {}
    for split in ("train", "val"):
        listed, annotations = [], []
        for image_id, name in ((139, "000000000139"), (285, "000000000285"))[: 2 if split == "train" else 1]:
            numbers = bands([0, 300, 70_000, 3_000_000, 300], image_id % 5)
            photo(root / images.format(split=split) / f"{name}.jpg")
            save(root / maps.format(split=split) / f"{name}.png", numbers)
            sizes = {number: (numbers == number).sum() for number in (300, 70_000, 3_000_000)}
            of = [(300, 3, 0), (70_000, 90, 0), (3_000_000, 3, 1)]
            image, entry = _listed(root, image_id, name, [(*row, sizes[row[0]]) for row in of])
            listed.append(image)
            annotations.append(entry)
            class_map = np.vectorize({0: -1, 300: 0, 70_000: 2, 3_000_000: 0}.get)(numbers)
            truth[split, name] = class_map, [300, 70_000, 3_000_000], [0, 2, 0], [False, False, True]
        file = root / json_file.format(split=split)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"images": listed, "annotations": annotations, "categories": categories}))
    return truth


def coco(root):
    return _coco(root, "{split}2017", "annotations/panoptic_{split}2017", "annotations/panoptic_{split}2017.json")


def own_coco(root):
    return _coco(root, "images/{split}", "panoptic/{split}", "panoptic/{split}.json")


def elsewhere(root):
    """With DATA.TRAIN_ANNOTATIONS truth_train.json, TRAIN_IMAGES photos_train, and so on."""
    return _coco(root, "photos_{split}", "truth_{split}", "truth_{split}.json")


def cityscapes(root):
    """Files of createPanopticImgs.py."""
    truth = {}
    for split, city in (("train", "aachen"), ("val", "lindau")):
        name = f"{city}_000000_000019"
        numbers = bands([0, 7, 24_000, 26_001, 26], len(city))
        photo(root / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png")
        save(root / "gtFine" / f"cityscapes_panoptic_{split}" / f"{name}_gtFine_panoptic.png", numbers)
        rows = [(7, 7, 0), (24_000, 24, 0), (26_001, 26, 0), (26, 26, 1)]
        segments = [
            {"id": number, "category_id": of, "iscrowd": crowd, "area": int((numbers == number).sum())}
            for number, of, crowd in rows
        ]
        content = {
            "images": [{"id": name, "file_name": f"{name}_gtFine_leftImg8bit.png", "width": WIDTH, "height": HEIGHT}],
            "annotations": [{"image_id": name, "file_name": f"{name}_gtFine_panoptic.png", "segments_info": segments}],
            "categories": [
                {"id": 7, "name": "road", "color": [128, 64, 128], "supercategory": "flat", "isthing": 0},
                {"id": 24, "name": "person", "color": [220, 20, 60], "supercategory": "human", "isthing": 1},
                {"id": 26, "name": "car", "color": [0, 0, 142], "supercategory": "vehicle", "isthing": 1},
            ],
        }
        (root / "gtFine" / f"cityscapes_panoptic_{split}.json").write_text(json.dumps(content))
        class_map = np.vectorize({0: -1, 7: 0, 24_000: 1, 26_001: 2, 26: 2}.get)(numbers)
        truth[split, name] = class_map, [7, 24_000, 26_001, 26], [0, 1, 2, 2], [False, False, False, True]
    return truth


def cityscapes_instance_ids(root):
    """Cityscapes' own files: road, sky, a person, a car and a group of cars; 3 and 15 are not evaluated."""
    truth = {}
    for split, city in (("train", "aachen"), ("val", "lindau")):
        name = f"{city}_000000_000019"
        numbers = bands([3, 7, 23, 24_000, 26_001, 26, 15], len(city))
        photo(root / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png")
        save(root / "gtFine" / split / city / f"{name}_gtFine_instanceIds.png", numbers, as_colors=False)
        class_map = np.vectorize({3: -1, 15: -1, 7: 0, 23: 10, 24_000: 11, 26_001: 13, 26: 13}.get)(numbers)
        ids, labels = [7, 23, 26, 24_000, 26_001], [0, 10, 13, 11, 13]
        truth[split, name] = class_map, ids, labels, [False, False, True, False, False]
    return truth


def _ade20k_names(split):
    return [f"ADE_{split}_0000000{number}" for number in range(1, 3 if split == "train" else 2)]


def ade20k(root):
    """Files of Mask2Former's preparation, whose ids of categories start at 0."""
    categories = [{**category, "id": place} for place, category in enumerate(CATEGORIES)]
    truth = {}
    for split, folder in (("train", "training"), ("val", "validation")):
        listed, annotations = [], []
        for shift, name in enumerate(_ade20k_names(split)):
            numbers = bands([0, 300, 70_000, 3_000_000], shift)
            photo(root / "images" / folder / f"{name}.jpg")
            save(root / f"ade20k_panoptic_{split}" / f"{name}.png", numbers)
            of = [(300, 0), (70_000, 2), (3_000_000, 0)]
            image, entry = _listed(
                root, name, name, [(number, row, 0, (numbers == number).sum()) for number, row in of]
            )
            listed.append(image)
            annotations.append(entry)
            class_map = np.vectorize({0: -1, 300: 0, 70_000: 2, 3_000_000: 0}.get)(numbers)
            truth[split, name] = class_map, [300, 70_000, 3_000_000], [0, 2, 0], [False] * 3
        content = {"images": listed, "annotations": annotations, "categories": categories}
        (root / f"ade20k_panoptic_{split}.json").write_text(json.dumps(content))
    return truth


def ade20k_instances(root):
    """ADE20K's own files: wall, a bed over it, two windows, one of them without an object, and sky."""
    truth = {}
    for split, folder in (("train", "training"), ("val", "validation")):
        for shift, name in enumerate(_ade20k_names(split)):
            photo(root / "images" / folder / f"{name}.jpg")
            save(root / "annotations" / folder / f"{name}.png", bands([1, 1, 9, 9, 3, 0], shift), as_colors=False)
            instances = [0, 1 + 256 * 4, 2 + 256 * 7, 2, 0, 0]  # red: place among the things, green: the object
            save(root / "annotations_instance" / folder / f"{name}.png", bands(instances, shift))
            class_map = bands([0, 7, 8, -1, 2, -1], shift)
            truth[split, name] = class_map, [1, 3, 8_004, 9_007], [0, 2, 7, 8], [False] * 4
    return truth


def own_ids(root):
    """Numbers of 16 bits: 1,000 times the category's id plus the number of the object; road also as 90,000 // 1,000."""
    (root / "categories.json").write_text(json.dumps(CATEGORIES))
    truth = {}
    for split in ("train", "val"):
        for name in ("a", "b")[: 2 if split == "train" else 1]:
            numbers = bands([0, 3_001, 3_002, 7_000, 90, 7], ord(name))
            photo(root / "images" / split / f"{name}.jpg")
            save(root / "segments" / split / f"{name}.png", numbers, as_colors=False)
            class_map = np.vectorize({0: -1, 3_001: 0, 3_002: 0, 7_000: 1, 90: 2, 7: 1}.get)(numbers)
            ids, labels = [7, 90, 3_001, 3_002, 7_000], [1, 2, 0, 0, 1]
            truth[split, name] = class_map, ids, labels, [True, False, False, False, False]
    return truth


LAYOUTS = {
    "coco": coco,
    "own_coco": own_coco,
    "cityscapes": cityscapes,
    "cityscapes_instance_ids": cityscapes_instance_ids,
    "ade20k": ade20k,
    "ade20k_instances": ade20k_instances,
    "own_ids": own_ids,
}
