"""Images: two tasks and what they share.

- ``classification``, ``detection``: the tasks
- ``data``: datasets; ``transforms``: of images; ``models``: networks; ``settings``: keys of both tasks
- ``prepare``: ``prepare images``
- ``run_lengths``: masks as COCO's files hold them
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "Classification": "classification.task",
    "Classifier": "models.classifier",
    "Detection": "detection.task",
    "DetectionCriterion": "detection.detector",
    "DetectionDataset": "detection.data.detection_dataset",
    "Detector": "detection.detector",
    "ImageDataset": "data.image_dataset",
    "ImageSegmentation": "segmentation.task",
    "SegmentationDataset": "segmentation.data.segmentation_dataset",
    "Segmenter": "models.segmenter",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
