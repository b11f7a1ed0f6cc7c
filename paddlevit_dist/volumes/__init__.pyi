"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .dataset import VolumeDataset
from .geometry import VolumeGeometry
from .landmarks.heatmaps import decode, gaussian_heatmaps, radius_heatmaps
from .reading import read_volume
from .segmentation.dataset import SegmentedVolumes
from .unet3d import UNet3D

__all__ = [
    "SegmentedVolumes",
    "UNet3D",
    "VolumeDataset",
    "VolumeGeometry",
    "decode",
    "gaussian_heatmaps",
    "radius_heatmaps",
    "read_volume",
]
