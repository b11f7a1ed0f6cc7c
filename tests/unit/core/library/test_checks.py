"""What meters say of outputs and targets that do not have their form."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.library import checks


def refuse(message, check, *arguments, **options):
    with pytest.raises(UserError, match=f"^{message}$"):
        check(*arguments, **options)


def test_messages_begin_with_their_subject():
    with pytest.raises(UserError, match="^meter: bad$"), checks.prefix_errors("meter"):
        checks.require(False, "bad")
    with pytest.raises(KeyError), checks.prefix_errors("meter"):
        raise KeyError("another error")
    with checks.prefix_errors("meter"):
        checks.require(True, "bad")


def test_pixels_have_at_most_255_classes():
    checks.require_few(["a"] * 255)
    refuse("256 classes: expected at most 255", checks.require_few, ["a"] * 256)


def test_a_missing_part_is_named():
    checks.require_parts({"boxes": 1, "scores": 2, "more": 3}, "output", ["boxes", "scores"])
    message = r"the output has to be a dictionary with boxes, scores, labels: "
    refuse(
        f"{message}labels missing",
        checks.require_parts,
        {"boxes": 1, "scores": 2},
        "output",
        ["boxes", "scores", "labels"],
    )
    refuse(
        f"{message}boxes, scores, labels missing", checks.require_parts, [1], "output", ["boxes", "scores", "labels"]
    )


def test_classes_are_integers_in_their_range_or_no_label():
    checks.require_classes(np.array([0, 6, 255, -1]), 7, "targets", [255, -1])
    checks.require_classes(np.zeros(0), 7, "targets")
    refuse(
        "targets: class 7 of 7: expected 0 to 6, or 255 for no label",
        *(checks.require_classes, np.array([0, 255, 7]), 7, "targets", [255]),
    )
    refuse("outputs: class -2 of 7: expected 0 to 6", checks.require_classes, np.array([3, -2]), 7, "outputs")
    refuse(
        "outputs: float64: expected class numbers, of an integer type",
        *(checks.require_classes, np.array([3.0]), 7, "outputs"),
    )


def test_labels_of_two_sides_have_one_shape():
    predicted, true = checks.check_label_pair([[0, 1]], paddle.to_tensor([[2, 255]]), ("rows", "columns"), 3, [255])
    assert predicted.tolist() == [[0, 1]] and true.tolist() == [[2, 255]]
    shapes = r"outputs of shape \(2,\) and targets of shape \(3,\): expected classes \(rows\) for both"
    refuse(shapes, checks.check_label_pair, [0, 1], [0, 1, 2], ("rows",), 3, [])
    refuse(".*expected classes .*", checks.check_label_pair, [0, 1], [0, 1], ("rows", "columns"), 3, [])
    refuse("outputs: class 255 .*", checks.check_label_pair, [0, 255], [0, 1], ("rows",), 3, [255])
    refuse("targets: class 3 .*", checks.check_label_pair, [0, 1], [0, 3], ("rows",), 3, [255])


def test_boxes_are_rows_of_four():
    assert checks.check_corners([]).shape == (0, 4) and checks.check_corners([1, 2, 3, 4]).tolist() == [[1, 2, 3, 4]]
    assert checks.check_corners(np.ones((3, 4))).shape == (3, 4)
    for values in (np.ones((3, 5)), np.ones(8), np.ones((1, 3, 4))):
        with pytest.raises(UserError, match=r"boxes of shape .*: expected \(n, 4\)"):
            checks.check_corners(values)


def test_tensors_become_arrays_of_their_values():
    values = paddle.to_tensor([0.5, -2.0])
    assert checks.host(values.astype("bfloat16")).tolist() == checks.host(values).tolist() == [0.5, -2.0]
    assert checks.host([1, 2]).tolist() == [1, 2]
