"""COCO's scores of detections, from numpy arrays: nothing here imports Paddle, or the data.

- ``matching``: compares the detections of one image with its annotations
- ``accumulation``: what is kept of images, joined over ranks, as precision, recall and the twelve numbers
- ``resampling``: the same for images that are drawn several times; ``images``: each image for itself
- ``scored_files``: COCO's JSON, and one file scored against the other
"""

__all__: list[str] = []  # CocoAP and evaluate detections compute these scores
