"""Pictures with boxes: datasets, transforms and batches. Plain objects that do not use Paddle.

- ``detection_dataset``: what every dataset offers (``DetectionDataset``) and what is annotated in a picture
  (``Annotations``).
- ``synthetic_shapes``: drawn pictures that come with the package.
- ``coco``: COCO's files and whatever is laid out like them; ``voc``, ``yolo``: folders of pictures with one file of
  annotations for each.
- ``indexed_pictures``: what these datasets share, pictures and boxes in memory-mapped files.
- ``transforms``: picture, boxes and masks resized, cropped and mirrored together.
- ``samples``: from the keys to the samples of a split, as a loader process reads them, and the arrays of a batch.
"""
