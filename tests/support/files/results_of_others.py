"""Results in the formats of other programs, which docs/explanation/scoring_and_confidence_intervals.md scores."""

from pathlib import Path

import numpy as np
from PIL import Image

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.points.data.scannet_classes import submitted_numbers


def val(dataset: str, recipe: str):
    return resolve("dataset", dataset).open(settings.load([f"-cfg={recipe}"]).values, "val", None)


def write(path: Path, lines: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def write_results_of_others(folder: Path) -> None:
    """Write logits.csv, found_boxes, found_maps, found_points and found_scenes, and the truth in boxes and maps.

    Also write the class folders ``drawn``, of which a run draws its validation set.
    """
    write_class_folders(folder / "drawn")
    write_logits(folder / "logits.csv")
    write_boxes_and_maps(folder)
    write_points(folder / "found_points")
    write_scenes(folder / "found_scenes")


def write_class_folders(folder: Path) -> None:
    """80 gray images, dark and light."""
    generator = np.random.default_rng(0)
    for number in range(80):
        images = folder / ("dark", "light")[number % 2]
        images.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 200, (16, 16)) + 55 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(images / f"{number:02d}.png")


def write_logits(file: Path) -> None:
    """A table as timm's inference.py writes one: how near each digit is to the mean image of each class."""
    train, digits = (resolve("dataset", "digits")(None, split, None) for split in ("train", "val"))
    images, labels = (np.array([np.ravel(train.read(i)[k]) for i in range(len(train))], float) for k in (0, 1))
    means = np.stack([images[labels[:, 0] == digit].mean(axis=0) for digit in range(10)])
    rows = [",".join(["filename", *(f"logit_{digit}" for digit in range(10))])]
    for index in range(len(digits)):
        logits = -np.square(np.ravel(digits.read(index)[0]) - means).sum(axis=1) / 50_000
        rows.append(",".join([digits.identity(index), *(f"{logit:.6f}" for logit in logits)]))
    write(file, rows)


def write_boxes_and_maps(folder: Path) -> None:
    """Images with boxes in YOLO's layout and what a detector saved of them; label maps, and found ones."""
    shapes = val("synthetic_shapes", "detr_shapes")
    write(folder / "boxes/data.yaml", ["val: images/val", f"names: [{', '.join(shapes.class_names)}]"])
    for name in ("boxes/images/val", "maps", "found_maps"):
        (folder / name).mkdir(parents=True)
    for index in range(40):
        image, true = shapes.read(index)
        image.save(folder / f"boxes/images/val/{index:03d}.png")
        shares, middles = true.boxes / (*image.size, *image.size), np.zeros((image.height, image.width), np.uint8)
        boxes = [(label, x + w / 2, y + h / 2, w, h) for label, (x, y, w, h) in zip(true.labels, shares)]
        write(folder / f"boxes/labels/val/{index:03d}.txt", [" ".join(map(str, box)) for box in boxes])
        moved = [(k, x + 0.02 * (place % 3), y, w, h, 0.9 - place / 10) for place, (k, x, y, w, h) in enumerate(boxes)]
        write(folder / f"found_boxes/{index:03d}.txt", [" ".join(map(str, box)) for box in moved])
        for label, (x, y, w, h) in zip(true.labels, true.boxes.astype(int)):
            middles[y : y + h, x : x + w] = label + 1
        Image.fromarray(middles).save(folder / f"maps/{index:03d}.png")
        Image.fromarray(np.roll(middles, 2, axis=1)).save(folder / f"found_maps/{index:03d}.png")


def write_points(folder: Path) -> None:
    """Points of 3D Slicer, in LPS."""
    heads = val("synthetic_landmarks", "landmark_unet3d")
    for index in range(len(heads)):
        places = zip(heads.names, (heads.world(index) + (index % 4, 0, 1)) * (-1, -1, 1))
        points = [f"{n},{x},{y},{z},0,0,0,1,1,1,0,{name},," for n, (name, (x, y, z)) in enumerate(places) if x == x]
        write(folder / f"{heads.case(index)}.fcsv", ["# CoordinateSystem = LPS", *points])


def write_scenes(folder: Path) -> None:
    """The numbers of the classes of each scene's points; every tenth is called wall."""
    rooms = val("synthetic_rooms", "minkunet14_synthetic_rooms")
    numbers, _ = submitted_numbers(rooms.class_names)  # 1 for wall to 39 for otherfurniture
    for index in range(len(rooms)):
        room = rooms.read(index)
        classes = [1 if k % 10 == 0 or label < 0 else numbers[label] for k, label in enumerate(room.semantic)]
        write(folder / f"{room.name}.txt", classes)
