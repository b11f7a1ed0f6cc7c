"""Semantic segmentation of point clouds: ``task``, ``settings``, ``input``, ``losses``, ``metrics``, ``writer``."""
