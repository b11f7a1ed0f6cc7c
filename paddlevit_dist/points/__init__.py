"""Point clouds: ``data``, ``sparse`` (tensors, convolution, MinkUNet), and the tasks.

The tasks ``segmentation`` and ``instances`` share ``scene_task``, ``settings``, ``inputs``, ``outputs`` and
``scene_prediction`` (prediction), ``scene_checks`` and ``scene_figures``. ``shapes`` classifies whole shapes.
``prepare`` converts raw scenes to stores; ``submission`` reads predictions in ScanNet's format,
``nuscenes_submission`` writes them in nuScenes's.
"""

from ..core.runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
