"""Data sets of predicted boxes, as labelling tools and this package read them: COCO, YOLO, VOC; one split, "train"."""

import io
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import count
from ...core.runtime.spelling import compose
from ...core.tasks.prediction import note_counted, output_names
from ..data.formats import stems
from ..data.inputs import ImageInputs, InputImages
from ..data.reading import orientation, pillow_limit
from ..run_lengths import compress_runs, compute_area
from .coco_files import Id, short
from .detections import DetectedObjects, corners_to_boxes
from .mask_outlines import join_outlines, trace_outlines

COCO, YOLO, VOC = "coco", "yolo", "voc"
LAYOUTS = (COCO, YOLO, VOC)
FOLDER = "dataset"  # in the folder of a prediction
_IMAGES = {COCO: "train", YOLO: "images/train", VOC: "JPEGImages"}
_COPIED = {"JPEG": ".jpg", "PNG": ".png"}  # formats of files that are copied -> their suffix
_XML_TEXT = re.compile("[^\x00-\x08\x0a-\x1f\ud800-\udfff\ufffe\uffff]*")  # without ends of lines
# XML, lists of names or readers of COCO's files do not take them: control characters, ends of lines, bytes that are not
# UTF-8 (surrogates), backslashes.
_NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff\\\\]")


class PredictedDataset:
    """Writes images with their boxes; each rank writes images and label files, the main process the lists.

    Of an object whose mask has no pixel, only the box is known: COCO's file marks it as a crowd, so that it is neither
    learned nor missed; YOLO has no such mark, so it is omitted.

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
        self._stems: list[str] | None = None

    def write(self, index: int, prediction: Any) -> None:
        """Write an image and, for YOLO and VOC, its label file."""
        image, stem = self.samples.image(index), self._stem(index)
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

    def describe(self, index: int, image_id: Id, prediction: Any) -> str:
        """Return what ``finish`` needs to know about an image that was written, with its id in the results: JSON."""
        image = {"id": image_id, **self._written.pop(index)}
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
            if not outlines:
                entry |= {"iscrowd": 1, "segmentation": {"size": list(size), "counts": [size[0] * size[1]]}}
        return {**entry, "score": round(float(shown.scores[number]), 4)}

    def build_categories(self) -> list[dict[str, Any]]:
        """Return the categories in COCO's format."""
        return [{"id": id_, "name": name} for id_, name in zip(self.category_ids, self.class_names)]

    def format_yaml(self) -> str:
        """Return YOLO's data.yaml."""
        # Without a path, programs search the images from the folder of this file, wherever they run.
        names = "".join(f"  {label}: {quote_for_yaml(name)}\n" for label, name in enumerate(self.class_names))
        return f"train: images/train\nval: images/train\nnames:\n{names}"

    def finish(self, described: Iterable[str]) -> list[str]:
        """Write the lists of images and classes, and return a line for the user."""
        images: list[dict[str, Any]] = [json.loads(text) for text in described]
        has_numbers = all(isinstance(image["id"], int) for image in images)
        annotations: list[dict[str, Any]] = []
        num_empty = 0
        for position, image in enumerate(images, 1):
            image["id"] = image["id"] if has_numbers else position
            objects = image.pop("objects")
            num_empty += sum(own["iscrowd"] for own in objects)
            objects = [own for own in objects if self.layout != YOLO or not own["iscrowd"]]
            first = len(annotations) + 1
            annotations += [{"id": k, "image_id": image["id"], **own} for k, own in enumerate(objects, first)]
        if self.layout == COCO:
            content = {"images": images, "annotations": annotations, "categories": self.build_categories()}
            self._write(f"annotations/{self.coco_file}", format_json(content).encode())
        elif self.layout == YOLO:
            self._write("data.yaml", self.format_yaml().encode())
        else:
            self._write("classes.txt", "".join(f"{name}\n" for name in self.class_names).encode())
            names = "".join(f"{record['file_name'].rpartition('.')[0]}\n" for record in images)
            self._write("ImageSets/Main/train.txt", names.encode())
        notes = self._note_counted()
        if num_empty and self.layout != VOC:
            outcome = "omitted" if self.layout == YOLO else "marked as crowds, which are not learned"
            notes.append(f"{count(num_empty, self.noun)} with a mask without a pixel, {outcome}")
        if self.layout == COCO and not has_numbers:
            notes.append(
                f"the images' ids in {self.folder} are 1, 2, 3, since the ids in -annotations are not all numbers"
            )
        data = f"-dataset={self.datasets[self.layout]} -data_path={self.folder}"
        return [
            *notes,
            f"{count(len(images), 'image')} with {count(len(annotations), self.noun)} of a score of at least "
            f"{self.least_score:g} are in {self.folder}: {data}",
        ]

    def choose(self, prediction: Any, size: tuple[int, int]) -> Any:
        """Return the objects of a label that has a name and of at least the score, with boxes clipped to the image."""
        prediction = prediction.finite()
        boxes = np.clip(prediction.boxes, 0, [size[1], size[0]] * 2)
        is_shown = (prediction.scores >= self.least_score) & (prediction.labels < len(self.category_ids))
        is_shown &= (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        return prediction._replace(boxes=boxes).only(is_shown)

    def _stem(self, index: int) -> str:
        """Return the unique name of an image's files without suffix, which all layouts can hold."""
        if self._stems is None:
            self._stems = output_names(self._make_stems())
        return self._stems[index]

    def _make_stems(self) -> list[str]:
        return [_NOT_IN_NAMES.sub("_", compose(stem)) for stem in stems(self.samples.names)]

    def _note_counted(self) -> list[str]:
        """Return a note if images have one name only since characters in their names are replaced."""
        made, given = self._make_stems(), list(map(compose, stems(self.samples.names)))
        is_new = len(set(map(str.lower, made))) < len(set(map(str.lower, given)))
        return note_counted(made, output_names(made), "image") if is_new else []

    def _encode(self, index: int, image: Image.Image) -> tuple[str, bytes]:
        """Return suffix and content of an image: the stored file if programs show what was seen, or PNG."""
        stored = self.samples.stored_bytes(index) if isinstance(self.samples, ImageInputs) else b""
        if stored:
            with pillow_limit(image.width * image.height), Image.open(io.BytesIO(stored)) as header:
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


def require_voc_names(class_names: Sequence[str]) -> None:
    """Raise UserError if VOC's files, a list and texts in XML, cannot hold the names of the classes."""
    names = [name.strip() for name in class_names]
    for name, stripped in zip(class_names, names):
        if name != stripped or not name or names.count(name) > 1 or not _XML_TEXT.fullmatch(name):
            problem = "is the name of two classes" if names.count(stripped) > 1 else "cannot be a name of a class there"
            raise UserError(f"predict: -save_as={VOC}: {short(name)} {problem}: choose {COCO} or {YOLO}")


def quote_for_yaml(text: str) -> str:
    """Return a text in quotes as YAML reads it, where JSON's pairs of surrogates are two characters."""
    quoted = format_json(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in quoted)


def complete_ids(ids: Sequence[Id | None], own_ids: Sequence[int]) -> list[int]:
    """Return ids of categories that are all numbers: ``ids``, with unused numbers for None; ``own_ids`` if not."""
    if any(isinstance(id_, str) for id_ in ids):
        return list(map(int, own_ids))
    unused = (number for number in itertools.count(1) if number not in ids)
    return [next(unused) if id_ is None else int(id_) for id_ in ids]


def format_yolo(detections: DetectedObjects, size: tuple[int, int]) -> str:
    """Return the lines of a label file: class, and x and y of the center, width, height as shares of the image."""
    sides = np.array([size[1], size[0]], np.float64)
    low, high = detections.boxes[:, :2] / sides, detections.boxes[:, 2:] / sides
    rows = np.concatenate([(low + high) / 2, high - low], axis=1).tolist()
    lines = (f"{label} {' '.join(f'{v:.7f}' for v in row)}\n" for label, row in zip(detections.labels.tolist(), rows))
    return "".join(lines)


def _format_yolo_outlines(detections: DetectedObjects, size: tuple[int, int]) -> str:
    """Return the lines of a label file: class, and x and y of the corners of an outline as shares of the image.

    A mask of several parts, or with holes, has one outline, see ``join_outlines``; one without a pixel is omitted.
    """
    lines = []
    for label, mask in zip(detections.labels.tolist(), detections.masks or ()):
        if outlines := trace_outlines(mask, *size):
            shares = (join_outlines(outlines) / (size[1], size[0])).reshape(-1).tolist()
            lines.append(f"{label} {' '.join(f'{share:.7f}' for share in shares)}\n")
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
