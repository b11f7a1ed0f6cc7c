"""Images with boxes: datasets, transforms and batches, independent of Paddle.

- ``detection_dataset``: the interface of every dataset (``DetectionDataset``).
- ``image_annotations``: the annotations of an image (``ImageAnnotations``), made from what people have.
- ``synthetic_shapes``: synthetic images that come with the package.
- ``coco``: COCO's files and similar layouts; ``voc``, ``yolo``: folders with an annotation file for each image.
- ``indexed_images``: base class of these datasets, with images and boxes in memory-mapped files.
- ``stored_sizes``: sizes of images, as stored or after EXIF rotation.
- ``transforms``: resizes, crops and mirrors image, boxes and masks together.
- ``object_points``: keypoints of objects, moved with their image.
- ``composition``: mosaics, pasted objects and a user's augmentation of training images.
- ``split_checks``: notices on missing files and crowded images.
- ``images_part``: part of a dataset, or all in another order.
- ``samples``: builds the samples of a split from the keys, and collates batches.
"""
