"""Images with boxes: datasets, transforms and batches. Plain objects that do not use Paddle.

- ``detection_dataset``: what every dataset offers (``DetectionDataset``) and what is annotated in an image
  (``ImageAnnotations``).
- ``synthetic_shapes``: drawn images that come with the package.
- ``coco``: COCO's files and whatever is laid out like them; ``voc``, ``yolo``: folders of images with one file of
  annotations for each.
- ``indexed_images``: what these datasets share, images and boxes in memory-mapped files.
- ``transforms``: image, boxes and masks resized, cropped and mirrored together.
- ``samples``: from the keys to the samples of a split, as a loader process reads them, and the arrays of a batch.
"""

from ....runtime.lazy_names import lazy_names

_NAMES = {
    "Coco": "coco",
    "DetectionDataset": "detection_dataset",
    "ImageAnnotations": "detection_dataset",
    "SyntheticShapes": "synthetic_shapes",
    "Voc": "voc",
    "Yolo": "yolo",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
