"""RF-DETR: DINOv2 with windowed attention, and LW-DETR's decoder; RF-DETR Seg has masks, too.

- ``network``, ``seg_network``: the models; ``projector``: from the backbone's maps to the decoder's; ``masks``: the
  head of masks; ``key_names``: the authors' names
- ``criterion``, ``mask_criterion``: the losses
"""
