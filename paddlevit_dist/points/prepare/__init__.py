"""Implementation of ``prepare scannet``, ``ply`` and ``pth``: a reader for each (``scannet``, ``plain_ply``, ``pth``),
and writing the ``store``.

``listing`` finds scenes and splits; ``coordinates`` centres scenes and checks for stray points and wrong units.
"""
