"""Semantic segmentation of point clouds: ``task``, ``settings``, ``input``, ``metrics`` (and losses)."""
