"""Semantic segmentation of point clouds.

``task``, ``settings``, ``metrics``; ``fragments``: evaluation in blocks; ``prediction``, ``figures``: aspects.
"""
