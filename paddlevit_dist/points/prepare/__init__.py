"""Implementation of ``prepare scenes``, ``scannet``, ``ply`` and ``pth``: ``formats`` lists the formats of scenes, each
with a reader, whose base is in ``listing``: of PointGroup and Pointcept there, ``scannet``, ``s3dis``,
``semantic_kitti``, and ``tables`` for files of columns (PLY, ``las``, ``pcd``, ``text_tables``,
``numpy_tables``); ``store`` writes them.

``listing`` finds scenes and splits; ``coordinates`` centers scenes and checks for stray points and wrong units.
"""

__all__: list[str] = []  # the commands prepare scenes, scannet, ply and pth
