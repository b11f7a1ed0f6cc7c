"""From an image to a network's input array; all randomness comes from the sample's generator.

- ``crops``: sizes, crops, flips: the transforms as a whole, of training and evaluation
- ``policies``, ``policy_tables``, ``operations``: RandAugment, AutoAugment, color jitter and their building blocks
- ``on_device``: normalization, random erasing, mixup and cutmix of whole batches
- ``decoding_opencv``: DATA.DECODER fast
"""
