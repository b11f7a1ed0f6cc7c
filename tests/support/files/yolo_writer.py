"""YOLO's files of labels, with images."""

from paddlevit_dist.images.detection.data.yolo import find_label_file
from support.files.coco_writer import write_image

LABELS = {"1": "0 0.5 0.5 0.4 0.6\n\n2 0.1 0.2 0.2 0.2\n", "7": "1 0 0 1 0 0.5 1\n", "9": None}


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
