"""Scenes on disk and in memory, and conversion of a scene to a sample.

- ``scene``, ``scene_fields``, ``scene_store``, ``scenes``: a scene, its creation from what people have, its file,
  datasets of prepared scenes; ``rooms``: synthetic scenes
- ``augment``: training augmentation; ``voxels``: quantization; ``samples``: the whole pipeline
- ``ply``, ``images``, ``scannet_classes``: files and colors for showing predictions
"""
