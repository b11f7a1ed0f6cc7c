"""Mask R-CNN: boxes proposed by one network are classified, moved and masked by another (He et al., ICCV 2017).

- ``network``: the model; ``pyramid``, ``region_proposals``, ``region_heads``: its parts
- ``matching``, ``pooling``: what the parts are made of; ``criterion``: what it learns
- ``variants``, ``key_names``: its names, and the numbers that training and evaluation go by, as torchvision has them
"""
