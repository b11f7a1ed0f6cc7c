"""Keypoints of objects in images: the points of a person, a hand, an animal or a machine part.

- ``keypoint_set``: names, mirrored pairs, sigmas and skeleton of a category's points.
- ``data``: datasets of images with keypoints.
- ``detected_keypoints``: a network's objects with keypoints in one image.
"""
