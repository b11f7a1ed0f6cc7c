"""Panoptic segmentation of images: each pixel is in one segment of a class with instances (things) or without (stuff).

- ``data``: images with segments
- ``quality``: panoptic quality of an image; ``score_kind``, ``metrics``: scores of all
"""
