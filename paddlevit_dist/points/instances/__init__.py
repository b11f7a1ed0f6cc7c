"""Instance segmentation of point clouds with PointGroup (L. Jiang et al., CVPR 2020).

- ``task``, ``settings``, ``input``: the task, its keys, its input pipeline; ``batches``: instance fields of a batch;
  ``stuff_classes``: classes without instances
- ``pointgroup``: network and losses; ``grouping``: clustering; ``proposals``: scoring and selection
- ``matching``: matches of predicted and true instances; ``panoptic``: segments; ``metrics``: the table of both;
  ``score_kind``: its scores
- ``writer``: predictions as files and figures
- ``prediction``, ``figures``: aspects of the task
"""
