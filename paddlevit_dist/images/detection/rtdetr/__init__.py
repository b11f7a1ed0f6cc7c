"""RT-DETR, RT-DETRv2 and D-FINE: transformers for real-time detection.

- ``network``: the model; ``variants``: its names and arguments; ``key_names``: names of other projects
- ``encoder``, ``decoder``, ``deformable``: its parts
- ``criterion``: RT-DETR's losses; ``fine_criterion``: D-FINE's; ``distributions``: its sides of boxes as distributions
"""
