"""Images with label maps, as plain objects that do not use Paddle.

- ``segmentation_dataset``: the base class ``SegmentationDataset``, and how often its classes occur.
- ``label_maps``: images in any layout of ``images.data.map_layouts``.
"""

from ....runtime.lazy_names import lazy_names

_NAMES = {
    "LabelMaps": "label_maps",
    "SegmentationDataset": "segmentation_dataset",
    "SegmentationShapes": "segmentation_dataset",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
