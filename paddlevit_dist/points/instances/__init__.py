"""Instances in point clouds with PointGroup (L. Jiang et al., CVPR 2020).

- ``task``, ``settings``, ``input``: the task, its keys, its steps from scene to sample; ``instance_table``, ``batches``
- ``pointgroup``: the network; ``grouping``: clusters; ``proposals``: which of them count; ``losses``
- ``metrics``: average precision; ``writer``: predictions as files
"""
