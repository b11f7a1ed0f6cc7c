"""Tiny sets of images with keypoints in the layouts of published sets and of labeling tools' exports.

What is odd in them is in these, too: crowds and people without a labeled point in COCO's file, labels without
visibility in YOLO's, boxes that CVAT does not write, empty cells in tables.
"""

from pathlib import Path
from typing import Any

import numpy as np

from support.files.coco_writer import annotation, write_coco, write_image
from support.files.yolo_writer import write_yolo
from support.samples.published_images import SIZES

#: the category of person_keypoints_val2017.json, with the skeleton as it is there
PERSON = {
    "supercategory": "person",
    "id": 1,
    "name": "person",
    "keypoints": (
        "nose left_eye right_eye left_ear right_ear left_shoulder right_shoulder left_elbow right_elbow left_wrist "
        "right_wrist left_hip right_hip left_knee right_knee left_ankle right_ankle"
    ).split(),
    "skeleton": [
        *([16, 14], [14, 12], [17, 15], [15, 13], [12, 13], [6, 12], [7, 13], [6, 7], [6, 8], [7, 9]),
        *([8, 10], [9, 11], [2, 3], [1, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7]),
    ],
}
#: as in Ultralytics' coco-pose.yaml
FLIP_IDX = [0, 2, 1, 4, 3, 6, 5, 8, 7, 10, 9, 12, 11, 14, 13, 16, 15]
HAND = ("wrist", "thumb", "little_finger")
CEPHALOGRAM = ("sella", "nasion", "gnathion", "gonion")


def _place_points(seed: int, number: int, box: list[float]) -> list[list[float]]:
    """Points in a box: whole numbers, every fifth not labeled, every seventh hidden."""
    generator, (x, y, width, height) = np.random.default_rng(seed), box
    points = []
    for point in range(number):
        place = [int(x + generator.integers(1, width)), int(y + generator.integers(1, height))]
        points.append([0, 0, 0] if point % 5 == 4 else [*place, 1 if point % 7 == 6 else 2])
    return points


def _pose(number: int, image_id: int, box: list[float], points: list[list[float]], **more: Any) -> dict[str, Any]:
    labeled = sum(visibility > 0 for _, _, visibility in points)
    values = {"keypoints": [value for point in points for value in point], "num_keypoints": labeled}
    return annotation(number, image_id, box, 1, **values, **more)


def write_coco_person(root: Path) -> None:
    """COCO's files of people, next to its images: a crowd, and people without a labeled point."""
    for first, (split, number) in enumerate((("train", 6), ("val", 3)), start=1):
        images, annotations = [], []
        for index in range(number):
            height, width = SIZES[(index + first) % len(SIZES)]
            name = f"{100 * first + index:012d}.jpg"
            write_image(root / f"{split}2017" / name, height, width, 100 * first + index)
            images.append({"id": 100 * first + index, "file_name": name, "height": height, "width": width})
            for place in range(1 + index % 2):
                box = [2.5 + 10 * place, 4.0, 22.25, 31.0]
                points = _place_points(len(annotations), 17, box)
                corners = [box[0], box[1], box[0] + box[2], box[1], box[0], box[1] + box[3]]
                more = {"segmentation": [corners], "area": 300.5}
                annotations.append(_pose(1000 - len(annotations), images[-1]["id"], box, points, **more))
        height, width = images[0]["height"], images[0]["width"]
        counts = {"size": [height, width], "counts": [height * 2, height, height * (width - 3)]}
        crowd = {"iscrowd": 1, "segmentation": counts}
        nobody = [[0, 0, 0]] * 17
        annotations.append(_pose(2, images[0]["id"], [2.0, 0.0, 1.0, float(height)], nobody, **crowd))
        annotations.append(
            _pose(3, images[0]["id"], [30.0, 8.0, 6.0, 9.0], nobody, segmentation=[[30, 8, 36, 8, 36, 17]])
        )
        file = f"annotations/person_keypoints_{split}2017.json"
        write_coco(root, annotations, f"{split}2017", images, file, [PERSON], info={"year": 2017}, licenses=[])


def write_cvat(root: Path) -> None:
    """CVAT's export "COCO Keypoints 1.0" of a task: one file, no boxes, points counted from 1 in the skeleton."""
    hand = {"id": 1, "name": "hand", "supercategory": "", "keypoints": list(HAND), "skeleton": [[1, 2], [1, 3]]}
    images, annotations = [], []
    for index in range(6):
        height, width = SIZES[index % len(SIZES)]
        write_image(root / "images" / "default" / f"frame_{index}.png", height, width, index)
        images.append(
            {"id": index + 1, "width": width, "height": height, "file_name": f"frame_{index}.png", "license": 0}
        )
        points = _place_points(index, 3, [4, 4, 20, 20])
        entry = _pose(index + 1, index + 1, [], points, segmentation=[], attributes={"occluded": False})
        annotations.append({**entry, "area": 0.0})
    write_coco(root, annotations, "", images, "annotations/person_keypoints_default.json", [hand], info={}, licenses=[])


def write_roboflow(root: Path) -> None:
    """Roboflow's export as COCO: a folder for each split with images and annotations, and a category without points."""
    names = ["head", "tail", "left fin", "right fin"]
    fish = {"id": 1, "name": "fish", "supercategory": "fish", "keypoints": names, "skeleton": [[1, 2], [1, 3], [1, 4]]}
    categories = [{"id": 0, "name": "water", "supercategory": "none"}, fish]
    for first, (split, number) in enumerate((("train", 5), ("valid", 2))):
        images, annotations = [], []
        for index in range(number):
            height, width = SIZES[index % len(SIZES)]
            name = f"{index}_jpg.rf.0a{first}.jpg"
            write_image(root / split / name, height, width, 10 * first + index)
            images.append({"id": index, "license": 1, "file_name": name, "height": height, "width": width})
            points = _place_points(10 * first + index, 4, [3, 3, 30, 20])
            annotations.append(_pose(index, index, [3, 3, 30.5, 20.25], points, segmentation=[]))
        write_coco(root, annotations, split, images, f"{split}/_annotations.coco.json", categories)


def write_yolo_pose(root: Path) -> None:
    """Ultralytics' folders of coco8-pose, with 17 points of three numbers and flip_idx."""
    yaml = f"path: .\nkpt_shape: [17, 3]\nflip_idx: {FLIP_IDX}\nnames:\n  0: person\n"

    def write_label(seed: int) -> str:
        points = _place_points(seed, 17, [10, 5, 80, 90])
        return "0 0.5 0.5 0.8 0.9 " + " ".join(f"{x / 100:.6f} {y / 100:.6f} {v:.6f}" for x, y, v in points) + "\n"

    train = {str(stem): write_label(stem) for stem in (1, 7, 8, 12)} | {"9": None}
    write_yolo(root, "images/val", {str(stem): write_label(stem) for stem in (3, 4)}, names=None)
    write_yolo(root, "images/train", train, yaml, train="images/train", val="images/val")


def write_cephalograms(root: Path) -> None:
    """X-ray images with a table of landmarks, as tutorials have them: columns of names, and the size of a pixel."""
    lines = [f"image,split,spacing_mm,{','.join(f'{name}_x,{name}_y' for name in CEPHALOGRAM)}"]
    for index in range(9):
        height, width = SIZES[index % len(SIZES)]
        write_image(root / "images" / f"{index:03d}.png", height, width, index)
        points = _place_points(index, 4, [5, 5, 30, 30])
        cells = [f"{x}.5,{y}.25" for x, y, _ in points]
        if index == 3:
            cells[1] = ","  # not found by the dentist
        lines.append(f"images/{index:03d}.png,{'test' if index > 5 else 'train'},0.1,{','.join(cells)}")
    (root / "landmarks.csv").write_text("\n".join(lines) + "\n")


def write_points(root: Path) -> None:
    """A row for each point, as spreadsheets of measurements have them, and a table for each split."""
    for first, (split, number) in enumerate((("train", 6), ("val", 3))):
        lines = ["file;landmark;x;y"]
        for index in range(number):
            name = f"{split}_{index}.jpg"
            write_image(root / split / name, *SIZES[index % len(SIZES)], 10 * first + index)
            points = _place_points(10 * first + index, 3, [5, 5, 30, 30])
            lines += [f"{name};{label};{x},5;{y},25" for label, (x, y, _) in zip(HAND, points)]
        (root / f"{split}.csv").write_text("\n".join(lines) + "\n")


LAYOUTS = {
    "coco_keypoints": write_coco_person,
    "cvat": write_cvat,
    "roboflow": write_roboflow,
    "yolo_pose": write_yolo_pose,
    "keypoint_table": write_cephalograms,
    "long table": write_points,
}
