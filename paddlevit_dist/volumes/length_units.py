"""Units of length that headers of volumes declare and their libraries ignore."""

import re
from collections.abc import Sequence

import numpy as np

from ..core.runtime.errors import UserError

_NIFTI_UNITS = ("", "meters", "mm", "microns")  # by the code in xyzt_units
_ITK_UNITS = re.compile(rb"^(?:(space units|units)[ \t]*:(?!=)|(DistanceUnits)[ \t]*=)([^\r\n]*)", re.I | re.M)
_ENDS, _STEPS = (
    re.compile(rb"^(" + names + rb")[ \t]*:(?!=)", re.I | re.M)
    for names in (b"axis ?maxs", b"spacings|space directions")
)
_LIKELY_MM = 0.02, 50.0  # steps below and above are probably in meters or in micrometers
_PREFIXES = (("", "", 1000.0), ("centi", "c", 10.0), ("milli", "m", 1.0), ("micro", "u", 0.001), ("nano", "n", 1e-6))
_MILLIMETERS = {
    name: factor for long, short, factor in _PREFIXES for name in (f"{short}m", f"{long}meter", f"{long}metre")
} | {"micron": 0.001}


def convert_nifti(file: str, affine: np.ndarray, xyzt_units: int) -> tuple[np.ndarray, list[str]]:
    """Return the affine (4, 4) of a NIfTI file in millimeters, with remarks; UserError for an unknown unit."""
    unit = xyzt_units & 7
    if unit >= len(_NIFTI_UNITS):
        raise UserError(f"{file}: xyzt_units has the unknown unit of length {unit}; write 2 (mm) to the header")
    return _to_millimeters(file, affine, "xyzt_units", [_NIFTI_UNITS[unit]])


def convert_itk(file: str, affine: np.ndarray, header: bytes) -> tuple[np.ndarray, list[str]]:
    """Return the affine (4, 4) of a MetaImage or NRRD file in millimeters, with remarks, by the lines of its header.

    UserError for an unknown unit, and for lengths that SimpleITK does not read.
    """
    if _ENDS.search(header) and not _STEPS.search(header):
        raise UserError(
            f"{file}: the header has axis mins and axis maxs, but no spacings and no space directions, so its lengths "
            "are not read; add the line 'spacings:' to it"
        )
    return _to_millimeters(file, affine, *_find_itk_units(header))


def _to_millimeters(file: str, affine: np.ndarray, field: str, units: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Return an affine (4, 4) in millimeters, with a remark if the units in a field of the header are others.

    Without units, lengths are millimeters. UserError for units that differ, or are not known.
    """
    named = sorted({unit.strip('"? \t') for unit in units} - {""})
    spelled = [unit.lower().replace("\xb5", "u").replace("\u03bc", "u").rstrip("s") for unit in named]
    factors = {_MILLIMETERS.get(unit) for unit in spelled} or {1.0}
    factor = factors.pop()
    if factors or factor is None:
        raise UserError(
            f"{file}: the header has lengths in {' and '.join(named)} ({field}), expected one unit, such as mm "
            "or um; correct the header"
        )
    steps = np.linalg.norm(affine[:3, :3], axis=0)
    if not named and (steps.max() < _LIKELY_MM[0] or steps.min() > _LIKELY_MM[1]):
        guess = "meters" if steps.max() < _LIKELY_MM[0] else "micrometers"
        return affine, [
            f"no unit of length in the header: steps of {steps.max():.3g} are read as millimeters; correct it "
            f"if they are {guess}"
        ]
    remark = f"lengths in the header are in {', '.join(named)} ({field}): converted to millimeters"
    return np.diag([factor] * 3 + [1.0]) @ affine, [remark] * (factor != 1.0)


def _find_itk_units(header: bytes) -> tuple[str, list[str]]:
    """Return the field of a MetaImage or NRRD header that has units of length, which SimpleITK ignores, and these."""
    fields = [(row[1] or row[2], row[3]) for row in _ITK_UNITS.finditer(header)]
    texts = [value.decode("utf-8", "replace") for _, value in fields]
    name = fields[0][0].decode() if fields else ""
    return name, [unit for text in texts for unit in re.findall(r'"[^"]*"', text)[:3] or [text]]  # a fourth is time's
