"""Semantic segmentation of images: a class for every pixel, scored by one confusion matrix of all pixels.

- ``data``: images with label maps
"""
