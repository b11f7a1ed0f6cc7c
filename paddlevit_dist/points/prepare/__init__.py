"""Implementation of ``prepare scenes``, ``scannet``, ``ply`` and ``pth``: ``formats`` lists the formats of scenes, each
with a reader (``scannet``, ``pth``, ``s3dis``, ``semantic_kitti``, ``pointcept``, and ``tables`` for columns, which
``table_formats`` reads); ``store`` writes them.

``listing`` finds scenes and splits; ``coordinates`` centres scenes and checks for stray points and wrong units.
"""
