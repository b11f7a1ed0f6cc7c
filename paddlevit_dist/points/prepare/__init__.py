"""Implementation of ``prepare scenes``, ``scannet``, ``ply`` and ``pth``.

- ``formats``: the registered formats of scenes, each with a reader, and which one a file has
- ``listing``: base class of readers, which finds scenes and splits
- ``scannet``, ``s3dis``, ``pointgroup``, ``pointcept``: readers of their files
- ``scans``: laser scans with labels, for ``semantic_kitti`` and ``nuscenes``
- ``tables``: reader of files with columns (PLY, ``las``, ``pcd``, ``text_tables``, ``numpy_tables``); ``channels``
- ``coordinates``: centers scenes and checks for stray points and wrong units; ``store`` writes scenes
"""
