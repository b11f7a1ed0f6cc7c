"""Images with label maps, as plain objects that do not use Paddle.

- ``segmentation_dataset``: the base class ``SegmentationDataset``, and how often its classes occur.
- ``label_maps``: images in any layout of ``images.data.map_layouts``.
"""
