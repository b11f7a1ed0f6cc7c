"""Landmarks in volumes, found as the peaks of heatmaps.

- ``task``; ``dataset``: volumes with files of landmarks; ``mirroring``: left and right
- ``heatmaps``, ``losses``: what is learned; ``decoding``: from maps to landmarks; ``metrics``: scores
- ``predictions``: what is written; ``scored``: anybody's results; ``figures``: of a report
"""
