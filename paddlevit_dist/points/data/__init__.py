"""Scenes on disk and in memory, and turning a scene into a sample.

- ``scene``, ``scene_store``, ``scenes``: one scene, its file, datasets of prepared scenes; ``rooms``: synthetic ones
- ``augment``: training augmentation; ``voxels``: quantization; ``samples``: the whole pipeline
- ``ply``, ``images``, ``scannet_classes``: files and colors for showing predictions
"""
