"""What nibabel and SimpleITK assume or replace without a word, as remarks for the log."""

import re
from typing import Any

import numpy as np

from .geometry import nearest_axes

TWO_NIFTI_PLACES = (
    "sform and qform in the header disagree: the sform is used, but other programs may use the "
    "qform; correct the header"
)
_NO_NIFTI_PLACE = (
    "no orientation in the header (sform_code and qform_code are 0): assuming x to the left, y to the front, z "
    "up and the middle at 0; check left and right"
)
_NO_ITK_PLACE = "no orientation in the header ({}): assuming LPS, x to the left and y to the back; check left and right"
_FLAGS = re.IGNORECASE | re.MULTILINE
_ANATOMICAL = re.compile(rb"^space:[ \t]*((left|right)-(anterior|posterior)-superior|[LR][AP]S)\s*$", _FLAGS)
_DIRECTIONS = re.compile(rb"^space directions:(.*?\([^()]*\)){3}", _FLAGS)
_MATRIX = re.compile(rb"^(TransformMatrix|Orientation|Rotation)[ \t]*=", _FLAGS)
_LETTERS = re.compile(rb"^AnatomicalOrientation[ \t]*=[ \t]*([RLAPSI]{3})\s*$", _FLAGS)
_RANGE = re.compile(rb"^old ?(min|max):", _FLAGS)
_FUNCTION = re.compile(rb"^ElementToIntensityFunction(Slope *= *(?!1(\.0*)?\s)|Offset *= *(?!0(\.0*)?\s))\S", _FLAGS)


def of_nifti(header: Any, beginning: bytes) -> list[str]:
    """Return remarks on a NIfTI file: ``header`` as nibabel corrected it, ``beginning`` the header's bytes."""
    problems = filter(None, header.diagnose_binaryblock(beginning).split("\n"))
    remarks = [f"the header is not valid ({text}), nibabel corrects it: check place and spacing" for text in problems]
    if not header["sform_code"] and not header["qform_code"]:
        remarks.append(_NO_NIFTI_PLACE)
    if abs(type(header)(beginning, check=False)["scl_slope"]) == float("inf"):
        remarks.append("scl_slope in the header is infinite: voxels keep their stored values")
    return remarks


def of_itk(is_nrrd: bool, header: bytes, affine: np.ndarray) -> list[str]:
    """Return remarks on the lines of an NRRD or MetaImage header, and its affine (4, 4) to LPS."""
    needed = [(_ANATOMICAL, "no line 'space:' with directions of the body"), (_DIRECTIONS, "no 'space directions:'")]
    needed = needed if is_nrrd else [(_MATRIX, "no TransformMatrix")]
    remarks = [_NO_ITK_PLACE.format(what) for pattern, what in needed if not pattern.search(header)][:1]
    if _FUNCTION.search(header):
        remarks.append("ElementToIntensityFunction in the header is not applied: voxels keep their stored values")
    if is_nrrd and _RANGE.search(header):
        remarks.append("old min and old max in the header are not applied: voxels keep their stored values")
    letters = None if is_nrrd else _LETTERS.search(header)
    used = _find_letters(affine)
    if letters is not None and letters[1].decode().upper() != used:
        remarks.append(
            f"AnatomicalOrientation is {letters[1].decode()}, but the axes in the header give {used}, which is used, "
            "as other programs do: check left and right"
        )
    return remarks


def _find_letters(affine: np.ndarray) -> str:
    """Return the sides of the body on which the axes x, y, z begin, as MetaImage names them: RAI for identity."""
    order, signs = nearest_axes(affine)
    letters = ["", "", ""]
    for world, sides in enumerate(("RL", "AP", "IS")):
        letters[order[world]] = sides[0 if signs[world] > 0 else 1]
    return "".join(letters)
