"""Image tasks and the code they share.

- ``classification``, ``detection``, ``segmentation``, ``panoptic``: the tasks
- ``data``: datasets; ``transforms``: image transforms; ``models``: networks; ``settings``: keys that the tasks share
- ``mask_queries``: what all networks share whose queries have masks
- ``prepare``: the command ``prepare images``
- ``backbone_task``, ``backbone_aspects``, ``backbone_prediction``: what detection and segmentation share
- ``run_lengths``: masks in the formats of COCO's files; ``configured_options``: what keys of MODEL set
"""

from ..core.runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
