"""Objects in pictures: boxes, classes and masks.

- ``detector``: what the task may ask of a network and its losses
- ``detr``: DETR
- ``evaluation``: COCO's scores, without Paddle
"""
