"""What a volume may be, by what its header announces: known before memory is taken for it."""

from __future__ import annotations

import math
from typing import Sequence

from ..errors import UserError

MAX_VOXELS = 1 << 30  # 1,024 along each axis
PACKED, PLAIN = 1032, 1  # bytes that a byte of a file can stand for: deflated (the format's own bound), and as it is
TEXT = 8  # "0 " may be a float64 of 8 bytes


def check_voxels(file: str, shape: Sequence[int], max_voxels: int, why: str = "") -> None:
    """Refuse a shape with an axis without voxels, or with too many voxels.

    Args:
        why: how it came to that shape, for the message.
    Raises:
        UserError: names the file, its shape and the key that allows more.
    """
    shown = " x ".join(f"{length:,}" for length in shape)
    if any(length < 1 for length in shape):
        raise UserError(f"{file}: its header announces {shown} voxels, so none at all; write the file again")
    if math.prod(map(int, shape)) > max_voxels:
        raise UserError(
            f"{file} has {shown} voxels{why}, above the limit of {max_voxels:,} in all; raise VOLUMES.MAX_VOXELS if "
            "that is meant"
        )


def check_fits(file: str, announced: int, held: int, gain: int) -> None:
    """Refuse a header that announces more bytes of voxels than there can be.

    Args:
        announced: bytes of the voxels in memory, as the header has them.
        held: bytes of the files.
        gain: the most that one of their bytes can become.
    Raises:
        UserError: names the file and both numbers.
    """
    if announced > gain * held:
        raise UserError(
            f"{file} cannot be read as a volume: probably there are fewer voxels than its header says ({announced:,} "
            f"bytes, more than {held:,} bytes can hold); is it complete? Copy it again"
        )
