"""Pictures with label maps. Plain objects that do not use Paddle.

- ``segmentation_dataset``: what every dataset offers (``SegmentationDataset``).
"""
