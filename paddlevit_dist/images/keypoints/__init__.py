"""Keypoints of objects in images: the points of a person, a hand, an animal or a machine part.

- ``keypoint_set``: names, mirrored pairs, sigmas and skeleton of a category's points.
- ``data``: datasets of images with keypoints.
- ``detected_keypoints``: a network's objects with keypoints in one image.
- ``heatmaps``, ``detrpose``: the two tasks, with their networks.
- ``evaluation``, ``evaluate_command``: scores of runs, and of results of other programs.
- ``prediction``, ``drawing``, ``drawn_samples``, ``figures``: what both tasks write, draw and report.
"""
