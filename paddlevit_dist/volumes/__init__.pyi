"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .dataset import VolumeDataset
from .geometry import VolumeGeometry
from .landmarks.heatmaps import decode, gaussian_heatmaps, radius_heatmaps
from .reading import read_volume
from .segmentation.dataset import LabelMap, LabelSource, SegmentedVolumes, make_label_map
from .segmentation.task import VolumeSegmentation
from .store import DecodedVolume
from .unet3d import UNet3D
from .volume_fields import make_landmarks, make_volume

__all__ = [
    "DecodedVolume",
    "LabelMap",
    "LabelSource",
    "SegmentedVolumes",
    "UNet3D",
    "VolumeDataset",
    "VolumeGeometry",
    "VolumeSegmentation",
    "decode",
    "gaussian_heatmaps",
    "make_label_map",
    "make_landmarks",
    "make_volume",
    "radius_heatmaps",
    "read_volume",
]
