"""Data sets of predicted boxes, as labelling tools and this package read them: COCO, YOLO, VOC; one split, "train"."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import count
from ..data.inputs import ImageInputs, InputImages
from ..data.reading import orientation
from ..run_lengths import compress_runs, compute_area
from .detections import DetectedObjects, corners_to_boxes
from .mask_outlines import join_outlines, trace_outlines

COCO, YOLO, VOC = "coco", "yolo", "voc"
LAYOUTS = (COCO, YOLO, VOC)
FOLDER = "dataset"  # in the folder of a prediction
_IMAGES = {COCO: "train", YOLO: "images/train", VOC: "JPEGImages"}
_COPIED = {"JPEG": ".jpg", "PNG": ".png"}  # formats of files that are copied -> their suffix


class PredictedDataset:
    """Writes images with their boxes; each rank writes images and label files, the main process the lists.

    A subclass for objects with more than boxes extends ``format_labels``, ``build_entry``, ``build_categories`` and
    ``format_yaml``.

    Args:
        layout: one of ``LAYOUTS``.
        category_ids: ids in the order of labels, for COCO.
        least_score: lowest score of a box that is written.
    """

    #: name of COCO's file of annotations
    coco_file = "instances_train.json"
    #: registered names of the data sets that read the layouts
    datasets: Mapping[str, str] = {layout: layout for layout in LAYOUTS}
    #: what an object is called
    noun = "box"

    def __init__(
        self,
        folder: Path,
        samples: InputImages,
        layout: str,
        class_names: Sequence[str],
        category_ids: Sequence[int],
        least_score: float,
    ) -> None:
        self.folder, self.samples, self.layout = folder / FOLDER, samples, layout
        self.class_names, self.category_ids = list(class_names), list(map(int, category_ids))
        self.least_score = least_score
        self._written: dict[int, dict[str, Any]] = {}  # index -> file name and size, until ``describe``

    def write(self, index: int, stem: str, prediction: Any) -> None:
        """Write an image and, for YOLO and VOC, its label file; ``stem`` is the unique name of its files."""
        image = self.samples.image(index)
        suffix, content = self._encode(index, image)
        name = f"{stem}{suffix}"
        self._write(f"{_IMAGES[self.layout]}/{name}", content)
        width, height = image.size
        self._written[index] = {"file_name": name, "height": height, "width": width}
        shown = self.choose(prediction, (height, width))
        if self.layout == YOLO:
            self._write(f"labels/train/{stem}.txt", self.format_labels(shown, (height, width)).encode())
        elif self.layout == VOC:
            text = _format_voc(shown, (height, width), name, self.class_names)
            self._write(f"Annotations/{stem}.xml", text)

    def describe(self, index: int, prediction: Any) -> str:
        """Return what ``finish`` needs to know about an image that was written: JSON."""
        image = self._written.pop(index)
        size = image["height"], image["width"]
        shown = self.choose(prediction, size)
        objects = [self.build_entry(shown, number, size) for number in range(len(shown.labels))]
        return format_json({**image, "objects": objects})

    def format_labels(self, shown: Any, size: tuple[int, int]) -> str:
        """Return the lines of YOLO's label file of an image of this height and width."""
        return format_yolo(shown, size) if shown.masks is None else _format_yolo_outlines(shown, size)

    def build_entry(self, shown: Any, number: int, size: tuple[int, int]) -> dict[str, Any]:
        """Return the annotation of one of the objects in an image, without ids, in COCO's format."""
        box = [round(value, 3) for value in corners_to_boxes(shown.boxes[number]).tolist()[0]]
        entry = {"category_id": self.category_ids[shown.labels[number]], "bbox": box, "iscrowd": 0}
        entry["area"] = round(box[2] * box[3], 3)
        masks = getattr(shown, "masks", None)
        if masks is not None:
            outlines = trace_outlines(masks[number], *size)
            entry["segmentation"] = [corners.astype(int).reshape(-1).tolist() for corners in outlines]
            entry["area"] = compute_area(compress_runs(masks[number], *size))
        return {**entry, "score": round(float(shown.scores[number]), 4)}

    def build_categories(self) -> list[dict[str, Any]]:
        """Return the categories in COCO's format."""
        return [{"id": id_, "name": name} for id_, name in zip(self.category_ids, self.class_names)]

    def format_yaml(self) -> str:
        """Return YOLO's data.yaml."""
        # Without a path, programs search the images from the folder of this file, wherever they run.
        names = "".join(f"  {label}: {format_json(name)}\n" for label, name in enumerate(self.class_names))
        return f"train: images/train\nval: images/train\nnames:\n{names}"

    def finish(self, described: Iterable[str]) -> list[str]:
        """Write the lists of images and classes, and return a line for the user."""
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number, text in enumerate(described, 1):
            image = json.loads(text)
            objects = image.pop("objects")
            images.append({"id": number, **image})
            annotations += [{"id": len(annotations) + k, "image_id": number, **own} for k, own in enumerate(objects, 1)]
        if self.layout == COCO:
            content = {"images": images, "annotations": annotations, "categories": self.build_categories()}
            self._write(f"annotations/{self.coco_file}", format_json(content).encode())
        elif self.layout == YOLO:
            self._write("data.yaml", self.format_yaml().encode())
        else:
            self._write("classes.txt", "".join(f"{name}\n" for name in self.class_names).encode())
            stems = "".join(f"{record['file_name'].rpartition('.')[0]}\n" for record in images)
            self._write("ImageSets/Main/train.txt", stems.encode())
        return [
            f"{count(len(images), 'image')} with {count(len(annotations), self.noun)} of a score of at least "
            f"{self.least_score:g} are in {self.folder}: -dataset={self.datasets[self.layout]} -data_path={self.folder}"
        ]

    def choose(self, prediction: Any, size: tuple[int, int]) -> Any:
        """Return the objects of a label that has a name and of at least the score, with boxes clipped to the image."""
        prediction = prediction.finite()
        boxes = np.clip(prediction.boxes, 0, [size[1], size[0]] * 2)
        is_shown = (prediction.scores >= self.least_score) & (prediction.labels < len(self.category_ids))
        is_shown &= (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        return prediction._replace(boxes=boxes).only(is_shown)

    def _encode(self, index: int, image: Image.Image) -> tuple[str, bytes]:
        """Return suffix and content of an image: the stored file if programs show what was seen, or PNG."""
        stored = self.samples.stored_bytes(index) if isinstance(self.samples, ImageInputs) else b""
        if stored:
            with Image.open(io.BytesIO(stored)) as header:
                if header.format in _COPIED and orientation(header) == 1 and getattr(header, "n_frames", 1) == 1:
                    return _COPIED[header.format], stored
        content = io.BytesIO()
        image.save(content, "PNG", compress_level=3)
        return ".png", content.getvalue()

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(content)


def format_yolo(detections: DetectedObjects, size: tuple[int, int]) -> str:
    """Return the lines of a label file: class, and x and y of the center, width, height as shares of the image."""
    sides = np.array([size[1], size[0]], np.float64)
    low, high = detections.boxes[:, :2] / sides, detections.boxes[:, 2:] / sides
    rows = np.concatenate([(low + high) / 2, high - low], axis=1).tolist()
    lines = (f"{label} {' '.join(f'{v:.7f}' for v in row)}\n" for label, row in zip(detections.labels.tolist(), rows))
    return "".join(lines)


def _format_yolo_outlines(detections: DetectedObjects, size: tuple[int, int]) -> str:
    """Return the lines of a label file: class, and x and y of the corners of an outline as shares of the image.

    A mask of several parts, or with holes, has one outline, see ``join_outlines``; one without a pixel has its box.
    """
    lines = format_yolo(detections, size).splitlines(keepends=True)
    for number, (label, mask) in enumerate(zip(detections.labels.tolist(), detections.masks or ())):
        if outlines := trace_outlines(mask, *size):
            shares = (join_outlines(outlines) / (size[1], size[0])).reshape(-1).tolist()
            lines[number] = f"{label} {' '.join(f'{share:.7f}' for share in shares)}\n"
    return "".join(lines)


def _format_voc(detections: DetectedObjects, size: tuple[int, int], name: str, class_names: Sequence[str]) -> bytes:
    """Return an XML file of annotations, with corners as VOC counts them: pixels from 1, inside the box."""
    root = ElementTree.Element("annotation")
    ElementTree.SubElement(root, "filename").text = name
    sides = ElementTree.SubElement(root, "size")
    for key, value in (("width", size[1]), ("height", size[0]), ("depth", 3)):
        ElementTree.SubElement(sides, key).text = str(value)
    for label, (left, top, right, low) in zip(detections.labels.tolist(), detections.boxes.tolist()):
        entry = ElementTree.SubElement(root, "object")
        ElementTree.SubElement(entry, "name").text = class_names[label]
        ElementTree.SubElement(entry, "difficult").text = "0"
        box = ElementTree.SubElement(entry, "bndbox")
        for key, value in (("xmin", left + 1), ("ymin", top + 1), ("xmax", right), ("ymax", low)):
            ElementTree.SubElement(box, key).text = f"{value:.3f}"
    return ElementTree.tostring(root, encoding="utf-8")
