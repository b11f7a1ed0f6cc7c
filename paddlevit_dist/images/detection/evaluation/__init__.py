"""COCO's detection scores, computed from numpy arrays without importing Paddle or the datasets.

- ``matching``: matches the detections of one image with its annotations
- ``match_tables``: joins the matches of images
- ``curves``: computes COCO's twelve numbers, also of weighted samples
- ``operating_points``: precision and score thresholds of each class; ``images``: per-image results
- ``scored_files``: reads COCO's JSON files and scores results against annotations
"""

__all__: list[str] = []  # CocoAP and evaluate detections compute these scores
