"""Scenes on disk and in memory, and the way from a scene to a sample: augmentation, voxels."""
