"""Keypoints as maxima of heatmaps: each object is cropped, and the network returns one map for each point."""
