"""Images with label maps. Plain objects that do not use Paddle.

- ``segmentation_dataset``: what every dataset offers (``SegmentationDataset``), and how often its classes occur.
- ``label_maps``: images in any layout of ``images.data.map_layouts``.
"""
