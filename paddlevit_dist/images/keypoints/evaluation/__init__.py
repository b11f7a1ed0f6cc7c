"""Scores of keypoints, computed from numpy arrays without Paddle, except ``metrics``.

- ``matching``: matches objects by OKS, all images at once, and measures the errors of their points
- ``score_kind``: COCO's ten numbers, also of weighted samples
- ``point_scores``: PCK and mean radial error of one object an image
- ``metrics``: collects both over the processes of a run
- ``result_files``: reads files in COCO's formats
"""
