"""Semantic segmentation of point clouds: ``task``, ``settings``, ``metrics``; ``fragments``: scenes seen in parts."""
