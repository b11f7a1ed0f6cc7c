"""Volumes: 3D landmarks in medical images from the peaks of heatmaps, and a class for each voxel.

- ``landmarks``, ``segmentation``: the two tasks; ``settings``: keys of both; ``unet3d``: the network;
  ``planning``: its plan for a dataset
- ``dataset``, ``phantoms``: volumes with landmarks
- ``reading``, ``dicom``, ``landmark_files``, ``slicer_files``, ``geometry``, ``store``: files and voxel geometry
- ``samples``, ``intensities``, ``nonzero``: training crops; ``sliding_window``: whole volumes
- ``inputs``: input of ``predict``; ``images``: rendered slices; ``export``: descriptions of exported networks
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "SegmentedVolumes": "segmentation.dataset",
    "UNet3D": "unet3d",
    "VolumeDataset": "dataset",
    "VolumeGeometry": "geometry",
    "decode": "landmarks.heatmaps",
    "gaussian_heatmaps": "landmarks.heatmaps",
    "radius_heatmaps": "landmarks.heatmaps",
    "read_volume": "reading",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
