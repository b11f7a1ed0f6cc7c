"""COCO's detection scores, computed from numpy arrays without importing Paddle or the datasets.

- ``matching``: matches the detections of one image with its annotations
- ``accumulation``: joins the matches of all ranks and computes precision, recall and COCO's twelve numbers
- ``resampling``: computes these numbers for bootstrap draws of the images; ``images``: per-image results
- ``scored_files``: reads COCO's JSON files and scores results against annotations
"""

__all__: list[str] = []  # CocoAP and evaluate detections compute these scores
