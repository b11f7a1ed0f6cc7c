"""Semantic segmentation of point clouds: the task, its losses, metrics and exports."""
