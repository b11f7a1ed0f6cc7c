"""Volumes: 3D landmarks in medical images, found as the peaks of heatmaps.

- ``detection``, ``settings``: the task and its keys; ``unet3d``: the network; ``heatmaps``, ``losses``, ``metrics``
- ``dataset``, ``landmarks``, ``phantoms``: datasets; ``reading``, ``dicom``, ``landmark_files``, ``slicer_files``,
  ``geometry``, ``store``: files and voxel geometry
- ``samples``, ``mirroring``: training crops; ``sliding_window``, ``decoding``, ``predictions``, ``pictures``:
  evaluation of the maps
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
