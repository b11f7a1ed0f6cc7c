"""Mask R-CNN: one network proposes boxes, another classifies, refines and masks them (He et al., ICCV 2017).

- ``network``: the model on a pyramid; ``region_proposals``, ``region_heads``: its parts
- ``criterion``: targets and losses; ``rules``: settings of all of these
"""
