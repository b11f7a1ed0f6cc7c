"""Object detection: finding boxes around objects in images, scored as COCO does.

- ``task``, ``settings``: the task and its keys
- ``data``: images with boxes; ``coco_files``: COCO's JSON
- ``detector``: what the task asks of a network, ``detections``: what it says of an image
- ``detr``, ``mask_rcnn``: the networks; ``boxes``: what they share; ``variants``, ``key_names``: their names
- ``evaluation``: COCO's matching and scores, which need no Paddle; ``metrics``: the same over the processes of a run
- ``prediction``, ``drawing``, ``figures``, ``export``: what becomes of the boxes
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "DetectedObjects": "detections",
    "Detection": "task",
    "DetectionCriterion": "detector",
    "DetectionTargets": "detector",
    "Detector": "detector",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
