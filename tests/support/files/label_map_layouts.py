"""Small copies of the layouts in which images with label maps are published or exported, drawn by a generator."""

import base64
import io
import json

import numpy as np
from PIL import Image

SIZE = (6, 9)  # height and width


def numbers(seed, known):
    """A label map: numbers of ``known`` at random, each of them at least once."""
    values = np.random.default_rng(seed).choice(known, SIZE)
    values.reshape(-1)[: len(known)] = known
    return values


def save(path, pixels, mode=None, palette=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(pixels, np.uint16 if mode == "I;16" else np.uint8))
    if palette is not None:
        image = Image.fromarray(np.asarray(pixels, np.uint8), "P")
        image.putpalette(np.asarray(palette, np.uint8).ravel().tolist())
    elif mode not in (None, "I;16"):
        image = image.convert(mode)
    image.save(path, **options)


def photo(path, size=SIZE, **options):
    save(path, np.random.default_rng(len(str(path))).integers(0, 255, (*size, 3)), **options)


def ade20k(root):
    (root / "objectInfo150.txt").write_text("Idx\tRatio\n")
    maps = {}
    for split, folder in (("train", "training"), ("val", "validation")):
        for number in (1, 2):
            name = f"ADE_{split}_0000000{number}"
            photo(root / "images" / folder / f"{name}.jpg")
            maps[split, name] = numbers(number, [0, 1, 2, 150])
            save(root / "annotations" / folder / f"{name}.png", maps[split, name])
    return {key: np.where(values == 0, 255, values - 1) for key, values in maps.items()}


def cityscapes(root, kind="labelIds"):
    known = [0, 1, 7, 8, 26, 33] if kind == "labelIds" else [0, 1, 13, 18, 255]
    classes = {0: 255, 1: 255, 7: 0, 8: 1, 26: 13, 33: 18} if kind == "labelIds" else {n: n for n in known}
    truth = {}
    for number, (split, city) in enumerate((("train", "zurich"), ("train", "aachen"), ("val", "munster"))):
        name = f"{city}_00000{number}_000019"
        photo(root / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png")
        values = numbers(number, known)
        save(root / "gtFine" / split / city / f"{name}_gtFine_{kind}.png", values)
        photo(root / "gtFine" / split / city / f"{name}_gtFine_color.png")
        truth[split, f"{name}_leftImg8bit"] = np.vectorize(classes.get)(values)
    return truth


def voc(root, labels="SegmentationClass", lists="Segmentation", known=(0, 1, 20, 255)):
    home = root / "VOCdevkit" / "VOC2012"
    truth = {}
    (home / "ImageSets" / lists).mkdir(parents=True)
    for split, names in (("train", ["2007_000032", "2007_000039"]), ("val", ["2007_000033"])):
        (home / "ImageSets" / lists / f"{split}.txt").write_text("\n".join(names) + "\n")
        for name in names:
            truth[split, name] = numbers(int(name[-2:]), known)
            photo(home / "JPEGImages" / f"{name}.jpg")
            save(home / labels / f"{name}.png", truth[split, name], palette=np.arange(768).reshape(256, 3) % 256)
    photo(home / "JPEGImages" / "2008_000001.jpg")  # of detection only
    return truth


def pascal_context(root):
    truth = voc(root, "SegmentationClassContext", "SegmentationContext", (0, 1, 59))
    return {key: np.where(values == 0, 255, values - 1) for key, values in truth.items()}


def coco_stuff(root):
    classes = {0: 0, 10: 10, 12: 11, 181: 170, 255: 255}
    truth = {}
    for split in ("train", "val"):
        photo(root / f"{split}2017" / "000000000139.jpg")
        values = numbers(len(split), list(classes))
        save(root / "stuffthingmaps" / f"{split}2017" / "000000000139.png", values)
        truth[split, "000000000139"] = np.vectorize(classes.get)(values)
    return truth


def coco_stuff_10k(root):
    from scipy.io import savemat

    classes = {0: 255, 1: 0, 13: 11, 182: 170}
    truth = {}
    (root / "imageLists").mkdir()
    (root / "annotations").mkdir()
    for split, word in (("train", "train"), ("val", "test")):
        name = f"COCO_train2014_00000000007{len(word)}"
        (root / "imageLists" / f"{word}.txt").write_text(f"{name}\n")
        photo(root / "images" / f"{name}.jpg")
        values = numbers(len(split), list(classes))
        savemat(root / "annotations" / f"{name}.mat", {"S": values.astype(np.uint16), "names": ["x"]})
        truth[split, name] = np.vectorize(classes.get)(values)
    return truth


def coco_panoptic(root):
    truth = {}
    for split in ("train", "val"):
        photo(root / f"{split}2017" / "000000000139.jpg")
        ids = numbers(len(split), [0, 300, 70_000, 3_000_000])
        channels = np.stack([ids % 256, ids // 256 % 256, ids // 65_536], axis=2)
        save(root / "annotations" / f"panoptic_{split}2017" / "000000000139.png", channels)
        segments = [(300, 1), (70_000, 200), (3_000_000, 1)]
        content = {
            "images": [{"id": 139, "file_name": "000000000139.jpg"}],
            "annotations": [
                {
                    "image_id": 139,
                    "file_name": "000000000139.png",
                    "segments_info": [{"id": number, "category_id": of, "area": 3} for number, of in segments],
                }
            ],
            "categories": [
                {"id": 1, "name": "person", "isthing": 1, "color": [220, 20, 60]},
                {"id": 200, "name": "rug-merged", "isthing": 0, "color": [152, 161, 64]},
            ],
        }
        (root / "annotations" / f"panoptic_{split}2017.json").write_text(json.dumps(content))
        truth[split, "000000000139"] = np.vectorize({0: 255, 300: 0, 70_000: 1, 3_000_000: 0}.get)(ids)
    return truth


def cvat_masks(root):
    colors = np.array([(0, 0, 0), (250, 50, 83), (51, 221, 255)], np.uint8)
    lines = ["# label:color_rgb:parts:actions", "background:0,0,0::", "cat:250,50,83::", "big dog:51,221,255::"]
    (root / "labelmap.txt").write_text("\n".join(lines) + "\n")
    (root / "ImageSets" / "Segmentation").mkdir(parents=True)
    (root / "ImageSets" / "Segmentation" / "default.txt").write_text("a\nb\n")
    truth = {}
    for name in "ab":
        truth["train", name] = numbers(ord(name), [0, 1, 2])
        photo(root / "JPEGImages" / f"{name}.jpg")
        save(root / "SegmentationClass" / f"{name}.png", colors[truth["train", name]])
        photo(root / "SegmentationObject" / f"{name}.png")
    return truth


BOX = [(1, 1), (5, 1), (5, 4), (1, 4)]  # rows 1 to 3 and columns 1 to 4, by COCO's rule


def box_map(label, around=0):
    drawn = np.full(SIZE, around)
    drawn[1:4, 1:5] = label
    return drawn


def labelme(root):
    mask = io.BytesIO()
    Image.fromarray(np.array([[True, False], [False, True]])).save(mask, "PNG")
    shapes = [
        {"label": "dog", "points": BOX, "shape_type": "polygon"},
        {"label": "cat", "points": [[3, 2], [4, 3]], "shape_type": "mask", "mask": base64.b64encode(mask.getvalue())},
        {"label": "dog", "points": [[7, 5]], "shape_type": "point"},
    ]
    shapes[1]["mask"] = shapes[1]["mask"].decode("ascii")
    photo(root / "a.jpg")
    content = {"version": "5.5", "shapes": shapes, "imagePath": "a.jpg", "imageData": None}
    (root / "a.json").write_text(json.dumps({**content, "imageHeight": SIZE[0], "imageWidth": SIZE[1]}))
    photo(root / "unlabeled.jpg")
    photo(root / "b.jpg")
    content = {"version": "5.5", "shapes": [{**shapes[0], "label": "cat"}], "imagePath": "b.jpg", "imageData": None}
    (root / "b.json").write_text(json.dumps({**content, "imageHeight": SIZE[0], "imageWidth": SIZE[1]}))
    truth = box_map(2)
    truth[2, 3] = truth[3, 4] = 1
    return {("train", "a"): truth, ("train", "b"): box_map(1)}


def yolo_outlines(root):
    shares = " ".join(f"{x / SIZE[1]} {y / SIZE[0]}" for x, y in BOX)
    whole = "1 0 0 1 0 1 1 0 1"
    truth = {}
    for split in ("train", "val"):
        photo(root / "images" / split / "a.jpg")
        photo(root / "images" / split / "b.jpg")
        (root / "labels" / split).mkdir(parents=True)
        (root / "labels" / split / "a.txt").write_text(f"0 {shares}\n{whole}\n")
        truth |= {(split, "a"): box_map(1, around=2), (split, "b"): np.zeros(SIZE, int)}
    (root / "data.yaml").write_text("train: images/train\nval: images/val\nnames: [leaf, soil]\n")
    return truth


LAYOUTS = {
    "ade20k": (ade20k, 150, ("wall", "flag")),
    "cityscapes": (cityscapes, 19, ("road", "bicycle")),
    "voc_segmentation": (voc, 21, ("background", "tvmonitor")),
    "pascal_context": (pascal_context, 59, ("aeroplane", "wood")),
    "coco_stuff": (coco_stuff, 171, ("person", "wood")),
    "coco_panoptic": (coco_panoptic, 2, ("person", "rug-merged")),
    "label_maps": (cvat_masks, 3, ("background", "big dog")),
    "labelme": (labelme, 3, ("background", "dog")),
    "yolo_outlines": (yolo_outlines, 3, ("background", "soil")),
}
