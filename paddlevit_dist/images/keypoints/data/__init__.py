"""Images with keypoints: datasets, independent of Paddle.

- ``keypoint_dataset``: the interface of every dataset (``KeypointDataset``).
"""
