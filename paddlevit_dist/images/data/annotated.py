"""Copies of pictures with what is predicted of them."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Callable, List, Optional, Sequence

from PIL import Image

from ...contracts.prediction import InputSamples, output_names
from ...files import atomic_file
from .inputs import GivenPictures, PictureInputs

PICTURES = "pictures"  # folder
_QUALITY = 92  # of JPEG


def stems(names: Sequence[str]) -> List[str]:
    """What inputs are called, without their folder and suffix."""
    return [os.path.splitext(os.path.basename(name))[0] for name in names]


class AnnotatedPictures:
    """Writes ``pictures/NAME.jpg`` for inputs.

    Args:
        folder: of the prediction, exists.
    """

    def __init__(self, folder: Path, samples: InputSamples) -> None:
        self._folder, self._samples = folder, samples
        self._names: Optional[List[str]] = None

    def write(self, index: int, draw: Callable[[Image.Image], Image.Image]) -> Optional[str]:
        """Write what ``draw`` makes of picture ``index``, as it is stored; returns the file in the folder. None: the
        samples are a program's own, which need not be pictures."""
        if not isinstance(self._samples, (PictureInputs, GivenPictures)):
            return None
        if self._names is None:
            self._names = output_names(stems(self._samples.names))
        content = io.BytesIO()
        draw(self._samples.picture(index)).save(content, "JPEG", quality=_QUALITY, subsampling=0)
        (self._folder / PICTURES).mkdir(exist_ok=True)
        name = f"{PICTURES}/{self._names[index]}.jpg"
        with atomic_file(self._folder / name) as file:
            file.write(content.getvalue())
        return name
