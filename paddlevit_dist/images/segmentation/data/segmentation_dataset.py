"""What a dataset of pictures with label maps is: the picture, and the class of each of its pixels as stored."""

import numpy as np
from PIL import Image

from ...data.image_dataset import ImageDataset

IGNORED = 255  # of a pixel without a class; so a dataset has at most 255 classes


class SegmentationDataset(ImageDataset):
    """Pictures with label maps: ``read(index)`` returns ``(RGB picture, labels)``.

    ``class_names``, ``num_classes`` and ``palette`` are known without reading a label map.
    """

    holds = "pictures with label maps"
    num_classes: int
    #: uint8 (classes, 3), the published colour of each class in RGB; None: ``contracts.figures.class_colours``
    palette: np.ndarray | None = None

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:  # type: ignore[override] # a label for each pixel
        """Picture ``index`` in mode "RGB", and ``labels_of(index)``, of its height and width.

        Raises:
            UserError: one of the two cannot be read, they differ in size, or a label is not known.
        """
        raise NotImplementedError

    def labels_of(self, index: int) -> np.ndarray:
        """uint8 (height, width), the class of each pixel or ``IGNORED``, without decoding the picture.

        Raises:
            UserError: the label map cannot be read, or has a label that is not known; names file, row and column.
        """
        raise NotImplementedError
