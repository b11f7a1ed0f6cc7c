"""Mask R-CNN: boxes proposed by one network are classified, moved and masked by another (He et al., ICCV 2017).

- ``network``: the model; ``pyramid``, ``region_proposals``, ``region_heads``: its parts; ``variants``, ``key_names``
- ``rules``: the numbers that training and evaluation go by, as torchvision has them
- ``anchors``, ``boxes``, ``matching``, ``sampling``, ``suppression``, ``pooling``: what the parts are made of
- ``criterion``: the losses; ``pasting``: from small masks to those of a picture
"""
