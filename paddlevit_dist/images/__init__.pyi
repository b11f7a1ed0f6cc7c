"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .classification.prediction import ImageClassPrediction
from .classification.task import Classification
from .data.image_dataset import ImageDataset
from .detection.data.detection_dataset import DetectionDataset
from .detection.data.image_annotations import ImageAnnotations, make_annotations
from .detection.detector import DetectionCriterion, Detector
from .detection.evaluation.score_kind import BoxScores
from .detection.task import Detection
from .keypoints.data.keypoint_dataset import KeypointDataset
from .keypoints.keypoint_set import KeypointSet
from .models.classifier import Classifier
from .models.segmenter import Segmenter
from .multi_label.scores import LabelScores
from .multi_label.task import MultiLabel
from .panoptic.data.panoptic_dataset import PanopticDataset
from .panoptic.data.segments import Segments, make_segments
from .panoptic.task import PanopticSegmentation
from .segmentation.data.segmentation_dataset import SegmentationDataset
from .segmentation.metrics import SegmentationMetrics
from .segmentation.task import ImageSegmentation

__all__ = [
    "BoxScores",
    "Classification",
    "Classifier",
    "Detection",
    "DetectionCriterion",
    "DetectionDataset",
    "Detector",
    "ImageAnnotations",
    "ImageClassPrediction",
    "ImageDataset",
    "ImageSegmentation",
    "KeypointDataset",
    "KeypointSet",
    "LabelScores",
    "MultiLabel",
    "PanopticDataset",
    "PanopticSegmentation",
    "SegmentationDataset",
    "SegmentationMetrics",
    "Segmenter",
    "Segments",
    "make_annotations",
    "make_segments",
]
