"""Keypoints of objects in images."""
