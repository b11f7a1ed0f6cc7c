"""YOLO's files of labels, with images."""

from paddlevit_dist.images.detection.data.yolo import find_label_file
from support.files.coco_writer import write_image

LABELS = {"1": "0 0.5 0.5 0.4 0.6\n\n2 0.1 0.2 0.2 0.2\n", "7": "1 0 0 1 0 0.5 1\n", "9": None}
DARKNET = ("classes = 2", "train = data/train.txt", "valid = data/valid.txt", "names = data/obj.names", "backup = b/")


def write_yolo(root, images="images/train", labels=LABELS, names="names: [cat, dog, cow]\n", **places):
    for number, (stem, text) in enumerate(labels.items()):
        image = root / images / f"{stem}.png"
        write_image(image, 20, 40, number)
        if text is not None:
            file = find_label_file(str(image))
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text(text)
    if names is not None:
        (root / "data.yaml").write_text(names + "".join(f"{split}: {place}\n" for split, place in places.items()))


def write_darknet(root, data=DARKNET, prefix="data/", end="\n", inner=""):
    """The export "YOLO 1.1" of CVAT, whose paths begin above the folder."""
    for split, names in (("train", "ab"), ("valid", "c")):
        folder = root / f"obj_{split}_data" / inner
        folder.mkdir(parents=True)
        for number, name in enumerate(names):
            write_image(folder / f"{name}.png", 50, 100, number)
            (folder / f"{name}.txt").write_text("1 0.500000 0.400000 0.200000 0.400000\n")
        lines = [f"{prefix}obj_{split}_data/{inner}{name}.png" for name in names]
        (root / f"{split}.txt").write_text(end.join(lines) + end)
    (root / "obj.names").write_text("no\nbig dog\n")
    (root / "obj.data").write_text(end.join(data))
