"""Semantic segmentation of images: a class for every pixel, scored by one confusion matrix over all pixels.

- ``data``: images with label maps
"""
