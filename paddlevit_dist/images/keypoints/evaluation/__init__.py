"""Scores of keypoints: COCO's average precision by OKS, and errors of the points of one object an image."""
