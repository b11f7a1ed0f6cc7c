"""Volumes: 3D landmarks in medical images, found as the peaks of heatmaps, and a class for each voxel.

- ``detection``, ``settings``: the task and its keys; ``unet3d``: the network; ``heatmaps``, ``losses``, ``metrics``
- ``dataset``, ``landmarks``, ``phantoms``: datasets; ``reading``, ``dicom``, ``landmark_files``, ``slicer_files``,
  ``geometry``, ``store``: files and voxel geometry
- ``segmentation``: the task of classes
- ``samples``, ``intensities``, ``nonzero``, ``mirroring``: training crops; ``sliding_window``,
  ``decoding``: from maps to landmarks
- ``inputs``, ``predictions``: what ``predict`` reads, and what is written of landmarks; ``images``,
  ``landmark_figures``: how they look; ``export``: one function of tensors
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "Geometry": "geometry",
    "UNet3D": "unet3d",
    "decode": "decoding",
    "gaussian_heatmaps": "heatmaps",
    "radius_heatmaps": "heatmaps",
    "read_volume": "reading",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
