"""Implementation of ``prepare scenes``, ``scannet``, ``ply`` and ``pth``.

- ``formats``: the formats of scenes, each with a reader; readers of PointGroup's and Pointcept's files
- ``listing``: base class of readers, which finds scenes and splits
- ``scannet``, ``s3dis``, ``semantic_kitti``, ``nuscenes``: readers of these datasets
- ``tables``: reader of files with columns (PLY, ``las``, ``pcd``, ``text_tables``, ``numpy_tables``); ``channels``
- ``coordinates``: centers scenes and checks for stray points and wrong units; ``store`` writes scenes
"""

__all__: list[str] = []  # the commands prepare scenes, scannet, ply and pth
