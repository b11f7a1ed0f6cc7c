"""Instances in point clouds with PointGroup (L. Jiang et al., CVPR 2020).

- ``task``, ``settings``, ``input``: the task, its keys, its input pipeline; ``instance_table``, ``batches``
- ``pointgroup``: the network; ``grouping``: clustering; ``proposals``: scoring and selection; ``losses``
- ``metrics``: average precision; ``writer``: predictions as files
"""
