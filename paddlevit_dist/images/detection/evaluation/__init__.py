"""COCO's scores of detections, from numpy arrays: nothing here imports Paddle, or the data.

- ``matching``: compares the detections of one picture with its annotations
- ``accumulation``: what is kept of pictures, joined over ranks, as precision, recall and the twelve numbers
- ``resampling``: the same for pictures that are drawn several times; ``pictures``: each picture for itself
- ``scored_files``: COCO's JSON, and one file scored against the other
"""
