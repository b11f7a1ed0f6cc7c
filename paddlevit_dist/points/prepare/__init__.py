"""What ``prepare scannet``, ``ply`` and ``pth`` do: readers of each kind, and the ``store`` that they write.

``listing`` finds scenes and splits; ``coordinates`` centres scenes and looks for stray points and wrong units.
"""
