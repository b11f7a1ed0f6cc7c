"""Images with keypoints: datasets, independent of Paddle.

- ``keypoint_dataset``: the interface of every dataset (``KeypointDataset``), and parts of one.
- ``indexed_points``: base class of datasets of files, with points in memory-mapped files.
- ``augmented_objects``: a user's augmentation of one object.
- ``drawn_figures``, ``figures``: synthetic images of people and hands that come with the package.
- ``coco_keypoints``, ``coco_points``: COCO's files and similar layouts.
- ``keypoint_table``, ``point_tables``: tables of one object an image.
- ``yolo_pose``: YOLO's labels with points.
"""
