"""DETR: objects as a set that a transformer predicts at once (Carion et al., ECCV 2020).

- ``network``: the model; ``transformer``, ``position``: its parts; ``variants``, ``key_names``: its names
- ``criterion``: the matching of queries with objects, and the losses
"""
