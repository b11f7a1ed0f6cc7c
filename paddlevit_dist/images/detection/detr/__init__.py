"""DETR: a transformer predicts objects as a set (Carion et al., ECCV 2020).

- ``network``: the model; ``transformer``: its parts
- ``criterion``: the matching of queries with objects, and the losses
"""
