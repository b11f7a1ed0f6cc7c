"""Transforms from an image to a network's input array; all randomness comes from the sample's generator.

- ``crops``: complete transforms of training and evaluation: sizes, crops, flips
- ``policies``, ``policy_tables``, ``operations``: RandAugment, AutoAugment, color jitter and their building blocks
- ``on_device``: normalization, random erasing, mixup and cutmix of whole batches
- ``decoding_opencv``: DATA.DECODER fast
"""
