"""RF-DETR: DINOv2 with windowed attention, and LW-DETR's decoder.

- ``network``: the model; ``projector``: from the backbone's maps to one; ``key_names``: the authors' names
- ``criterion``: the losses
"""
