"""Scenes on disk and in memory, and the way from a scene to a sample.

- ``scene``, ``scene_store``, ``scenes``: one scene, its file, the datasets of prepared ones; ``rooms``: made-up ones
- ``augment``, ``elastic``: the changes of a training scene; ``voxels``: quantising; ``samples``: all of them in order
- ``ply``, ``pictures``, ``scannet_classes``: files and colours that predictions are shown with
"""
