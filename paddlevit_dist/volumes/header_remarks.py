"""What nibabel and SimpleITK assume or replace without a word, as remarks for the log."""

import math
import re
from typing import Any

TWO_NIFTI_PLACES = (
    "sform and qform in the header disagree: the sform is used, but other programs may use the "
    "qform; correct the header"
)
_NO_NIFTI_PLACE = (
    "no orientation in the header (sform_code and qform_code are 0): assuming x to the left, y to the front, z "
    "up and the middle at 0; check left and right"
)
_NO_ITK_PLACE = (
    "no orientation in the header ({}): assuming LPS, x to the left, y to the back, z up; check left and right"
)
_UNUSED_FUNCTION = "ElementToIntensityFunction in the header is not applied: voxels are read as they are stored"
_ANATOMICAL = re.compile(rb"^space:[ \t]*((left|right)-(anterior|posterior)-superior|[LR][AP]S)\s*$", re.I | re.M)
_DIRECTIONS = re.compile(rb"^space directions:(.*?\([^()]*\)){3}", re.I | re.M)
_MATRIX = re.compile(rb"^(TransformMatrix|Orientation|Rotation)[ \t]*=", re.I | re.M)
_FUNCTION = re.compile(
    rb"^ElementToIntensityFunction(Slope[ \t]*=[ \t]*(?!\s|1(\.0*)?\s)|Offset[ \t]*=[ \t]*(?!\s|0(\.0*)?\s))",
    re.I | re.M,
)


def of_nifti(header: Any, beginning: bytes) -> list[str]:
    """Return remarks on a NIfTI file: ``header`` as nibabel corrected it, ``beginning`` the header's bytes."""
    remarks = []
    stored = type(header)(beginning, check=False)
    for problem in filter(None, header.diagnose_binaryblock(beginning).split("\n")):
        remarks.append(f"the header is not valid ({problem}), nibabel corrects it: check spacing and orientation")
    if not header["sform_code"] and not header["qform_code"]:
        remarks.append(_NO_NIFTI_PLACE)
    if math.isinf(stored["scl_slope"]):
        remarks.append("scl_slope in the header is infinite: voxels are read as they are stored")
    return remarks


def of_itk(is_nrrd: bool, header: bytes) -> list[str]:
    """Return remarks on the lines of an NRRD or MetaImage header."""
    if is_nrrd and not _ANATOMICAL.search(header):
        return [_NO_ITK_PLACE.format("no line 'space:' with directions of the body")]
    if is_nrrd and not _DIRECTIONS.search(header):
        return [_NO_ITK_PLACE.format("no 'space directions:' of all axes")]
    if is_nrrd:
        return []
    place = [] if _MATRIX.search(header) else [_NO_ITK_PLACE.format("no TransformMatrix")]
    return [*place, *[_UNUSED_FUNCTION] * bool(_FUNCTION.search(header))]
