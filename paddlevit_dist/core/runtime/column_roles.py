"""What the columns of tables mean: all headings that are read, one role a row, and how the columns of a role are found.

A new heading is one word here. Words and headings are compared without case, spaces and signs: "Image ID" is image_id.
"""

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

_JOINTS = re.compile(r"[\x00-/:-@\[-`{-\x7f]+")  # ASCII but letters and digits; other scripts stay unchanged


@functools.cache
def simplify_heading(heading: str) -> str:
    """Return a heading in lower case without spaces and signs, such as imageid for "Image ID" and image_id."""
    return _JOINTS.sub("", heading.lower())


class Role(NamedTuple):
    """What a column may mean.

    Attributes:
        words: headings with this meaning, the most reliable first.
        is_cell: whether the first cells of a column can have this meaning; None: any can.
    """

    words: tuple[str, ...]
    is_cell: Callable[[Any], bool] | None = None

    def has(self, heading: str) -> bool:
        """Return whether a heading has this meaning."""
        return simplify_heading(heading) in map(simplify_heading, self.words)

    def find_all(self, headings: Sequence[str], columns: Iterable[int] | None = None) -> list[int]:
        """Return the ``columns``, or all, whose headings have this meaning, the most reliable first."""
        places: dict[str, list[int]] = {}
        for column in range(len(headings)) if columns is None else columns:
            places.setdefault(simplify_heading(headings[column]), []).append(column)
        words = dict.fromkeys(map(simplify_heading, self.words))
        return [column for word in words for column in places.get(word, ())]

    def find(
        self, headings: Sequence[str], columns: Sequence[int] | None = None, cells: Sequence[Any] = ()
    ) -> int | None:
        """Return the column that most likely has this meaning; None: there is none.

        That is one of its headings whose cells fit, else one whose ``cells`` fit, else one of its headings.
        """
        known, fitting = self.find_all(headings, columns), list[int]()
        if self.is_cell is not None and cells:
            columns = range(len(headings)) if columns is None else columns
            fitting = [column for column in columns if self.is_cell(cells[column])]
        return next(iter([*(column for column in known if column in fitting), *fitting, *known]), None)


def find_together(groups: Iterable[Sequence[str]], headings: Sequence[str]) -> list[int]:
    """Return the columns of the first of ``groups`` of words that has one for each; empty if there is none."""
    found = ([Role((word,)).find(headings) for word in words] for words in groups)
    return next(([column for column in columns if column is not None] for columns in found if None not in columns), [])


def _split(words: str) -> tuple[str, ...]:
    return tuple(words.split())


# Tables of images, of samples in general, and of the results of other programs.
NAME = Role(
    (
        *_split("name file filename file_name filepath file_path path image image_id image_name img img_path"),
        "picture",
        *_split("input id sample case image_index image_path images img_name id_code"),
    )
)
LABEL = Role(
    _split(
        "label class class_name label_name category category_name target y class_label class_id label_id category_id "
        "diagnosis dx breed species emotion"
    )
)
LABELS = Role(_split("labels tags classes finding_labels attributes categories"))
PREDICTED = Role(
    _split(
        "prediction predicted pred predicted_class predicted_label predicted_labels y_pred class label class_name "
        "class_id category index"
    )
)
TRUE = Role(
    _split("truth true y_true true_class true_label ground_truth target label class class_name class_id category")
)
SCORE = Role(("score",))
SPLIT = Role(_split("split subset partition set phase"))
VALIDATION = Role(_split("is_valid is_val is_validation"))  # fastai: a row of validation is True or 1
FOLD = Role(_split("fold folds kfold cv_fold fold_id"))
LABEL_OF_ROW, CONFIDENCE = Role(("label_name",)), Role(("confidence",))  # Open Images: one label in each row
ROW_NUMBER = re.compile(r"index|unnamed[\W_]*\d+|level_\d+")  # headings of pandas, in lower case

# Boxes: a column of each side, or one with all four in each cell, whose form its heading says, or else COCO's.
XYXY, XYWH, CXCYWH = "xyxy", "xywh", "cxcywh"  # forms
BOXES = {
    XYWH: Role(_split("bbox bboxes box boxes bounding_box bounding_boxes xywh bbox_xywh bboxes_xywh boxes_xywh")),
    XYXY: Role(_split("xyxy bbox_xyxy bboxes_xyxy boxes_xyxy")),
    CXCYWH: Role(_split("cxcywh bbox_cxcywh bboxes_cxcywh boxes_cxcywh")),
}
BOX_SIDES = {
    XYXY: tuple(map(_split, ("xmin ymin xmax ymax", "x1 y1 x2 y2", "x0 y0 x1 y1", "left top right bottom"))),
    CXCYWH: tuple(map(_split, ("x_center y_center width height", "center_x center_y width height", "cx cy w h"))),
    XYWH: tuple(map(_split, ("x y w h", "x y width height", "left top width height", "xmin ymin width height"))),
}
BOXES_IN_WORDS = Role(("prediction_string",))  # of competitions: class and confidence before the sides of each box
BOX_SIGN = Role(_split("bbox bboxes bounding_box prediction_string xmin x_center"))  # a table with one has boxes
CROWD = Role(_split("iscrowd is_crowd crowd is_group_of"))

# Columns and fields of data files with images in their rows, as Hugging Face publishes.
IMAGE_IN_ROW = Role(
    (
        *_split("image img images"),
        "picture",
        *_split("photo pixel_values jpg jpeg png webp image_bytes file_name filename image_file_name"),
    )
)
LABEL_IN_ROW = Role(("label", "labels", *LABEL.words, *LABELS.words, *_split("targets tag cls")))
LABEL_MAP = Role(
    _split(
        "label labels annotation annotations mask masks segmentation segmentation_mask seg segmentation_map "
        "semantic_segmentation semantic_mask label_map gt ground_truth segments png_mask mask_file_name "
        "annotation_file_name label_file_name"
    )
)
OBJECTS = Role(_split("objects annotations object annotation bboxes boxes instances detections labels"))
LABEL_OF_OBJECT = Role(_split("category category_id categories label labels class classes class_id category_ids"))
AREA = Role(_split("area areas"))
ID_OF_OBJECT = Role(_split("id ids bbox_id annotation_id object_id"))
MASK_OF_OBJECT = Role(_split("segmentation segmentations mask masks polygon polygons rle"))
ID_OF_IMAGE, HEIGHT, WIDTH = Role(_split("image_id id")), Role(("height",)), Role(("width",))

# Tables of points.
POINT = Role(
    _split("point landmark keypoint joint bodypart part point_name landmark_name label name")
)  # of images, a row each
LANDMARK = Role(("name", *POINT.words))  # of volumes
IMAGE_OF_POINT = Role(_split("image filename file path"))  # where the column of points has a word for images
VISIBILITY = Role(_split("v vis visible visibility"))
SPACING = Role(_split("spacing_mm spacing pixel_spacing pixel_size_mm mm_per_pixel"))
SPACINGS = (_split("spacing_x_mm spacing_y_mm"), _split("spacing_x spacing_y"))

# Point clouds.
CLASS_OF_POINT = Role(_split("label class semantic category classification"))
INSTANCE = Role(_split("instance instance_id object object_id"))
COLORS = tuple(map(_split, ("red green blue", "diffuse_red diffuse_green diffuse_blue", "r g b")))
NORMALS = tuple(map(_split, ("nx ny nz", "normal_x normal_y normal_z")))
