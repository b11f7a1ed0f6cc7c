"""Mask R-CNN: boxes proposed by one network are classified, moved and masked by another (He et al., ICCV 2017).

- ``network``: the model on a pyramid; ``region_proposals``, ``region_heads``: its parts
- ``criterion``: what it learns
"""
