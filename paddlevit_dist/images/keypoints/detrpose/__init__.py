"""DETRPose: a transformer that detects objects with their keypoints in one step.

- ``network``: the model; ``variants``: its names and arguments; ``key_names``: names of the authors
- ``decoder``: its decoder; ``criterion``: its losses; ``denoising``: queries from objects with noise
"""
