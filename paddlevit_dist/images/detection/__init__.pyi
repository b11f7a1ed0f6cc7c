"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .detections import DetectedObjects
from .detector import DetectionCriterion, DetectionTargets, Detector
from .task import Detection

__all__ = [
    "DetectedObjects",
    "Detection",
    "DetectionCriterion",
    "DetectionTargets",
    "Detector",
]
