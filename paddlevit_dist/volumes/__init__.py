"""Volumes: 3D landmarks in medical images from the peaks of heatmaps, and a class for each voxel.

- ``landmarks``, ``segmentation``: the two tasks; ``settings``: keys of both; ``unet3d``: the network;
  ``planning``: its plan for a dataset
- ``dataset``, ``phantoms``: volumes with landmarks; ``volume_fields``: creation from what people have
- ``reading``, ``dicom``, ``landmark_files``, ``slicer_files``, ``geometry``, ``store``: files and voxel geometry
- ``samples``, ``intensities``, ``nonzero``: training crops; ``sliding_window``: whole volumes
- ``inputs``: input of ``predict``; ``images``: rendered slices; ``export``: descriptions of exported networks
"""

from ..core.runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
