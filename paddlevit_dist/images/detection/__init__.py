"""Object detection: finding boxes around objects in pictures, scored as COCO does.

- ``task``, ``settings``: the task and its keys
- ``data``: pictures with boxes; ``detr``, ``mask_rcnn``: the networks; ``detector``: what the task asks of them
- ``evaluation``: COCO's matching and scores, which need no Paddle; ``metrics``: the same over the processes of a run
- ``prediction``, ``writer``, ``drawing``, ``figures``, ``export``: what becomes of the boxes
"""
