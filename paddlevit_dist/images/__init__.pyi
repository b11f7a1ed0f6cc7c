"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .classification.prediction import ImageClassPrediction
from .classification.task import Classification
from .data.image_dataset import ImageDataset
from .detection.data.detection_dataset import DetectionDataset
from .detection.detector import DetectionCriterion, Detector
from .detection.task import Detection
from .models.classifier import Classifier
from .models.segmenter import Segmenter
from .segmentation.data.segmentation_dataset import SegmentationDataset
from .segmentation.metrics import SegmentationMetrics
from .segmentation.task import ImageSegmentation

__all__ = [
    "Classification",
    "Classifier",
    "Detection",
    "DetectionCriterion",
    "DetectionDataset",
    "Detector",
    "ImageClassPrediction",
    "ImageDataset",
    "ImageSegmentation",
    "SegmentationDataset",
    "SegmentationMetrics",
    "Segmenter",
]
