"""Headings: each word that a table was read by stays one, in its place among the others."""

import random

import pytest

from paddlevit_dist.core.runtime import column_roles as roles

WORDS = {
    "NAME": "name file filename file_name filepath file_path path image image_id image_name img img_path picture input "
    "id sample case image_index image_path images img_name id_code",
    "LABEL": "label class class_name label_name category category_name target y class_label class_id label_id "
    "category_id diagnosis dx breed species emotion",
    "LABELS": "labels tags classes finding_labels attributes categories",
    "PREDICTED": "prediction predicted pred predicted_class predicted_label predicted_labels y_pred class label "
    "class_name class_id category index",
    "TRUE": "truth true y_true true_class true_label ground_truth target label class class_name class_id category",
    "SPLIT": "split subset partition set phase",
    "VALIDATION": "isvalid isval isvalidation",
    "FOLD": "fold folds kfold cvfold foldid",
    "BOX_SIGN": "bbox bboxes boundingbox predictionstring xmin xcenter",
    "POINT": "point landmark keypoint joint bodypart part point_name landmark_name label name",
    "SPACING": "spacing_mm spacing pixel_spacing pixel_size_mm mm_per_pixel",
    "CLASS_OF_POINT": "label class semantic category classification",
    "INSTANCE": "instance instance_id object object_id",
}


@pytest.mark.parametrize("name", WORDS)
def test_words_of_a_role_keep_their_order(name):
    words = list(dict.fromkeys(roles.simplify_heading(word) for word in WORDS[name].split()))
    shuffled = random.Random(0).sample(words, len(words))
    found = [shuffled[column] for column in getattr(roles, name).find_all(shuffled)]
    assert found == words


def test_a_role_is_found_by_heading_and_cells():
    headings, cells = ["Image ID", "other", "path", "id"], [[1], ["a.png"], [2], [3]]
    assert roles.NAME.find(headings) == 2 and roles.NAME.find(["other"]) is None
    role = roles.NAME._replace(is_cell=lambda column: str(column[0]).endswith(".png"))
    assert role.find(headings, None, cells) == 1  # cells that fit count more than a heading
    assert role.find(headings, None, [["a.png"], ["b.png"], [2], [3]]) == 0  # both more than cells
    assert role.find(headings, [1, 3], [[0], [1], [2], [3]]) == 3


def test_columns_that_belong_together_are_of_one_kind():
    assert roles.find_together(roles.COLORS, ["R", "g", "b", "red", "green"]) == [0, 1, 2]
    assert roles.find_together(roles.COLORS, ["r", "green", "b"]) == []


@pytest.mark.parametrize(
    ("heading", "word"), [("Image ID", "imageid"), ("img-path ", "imgpath"), ("Größe", "größe"), ("+", "")]
)
def test_headings_are_compared_without_case_and_signs(heading, word):
    assert roles.simplify_heading(heading) == word
