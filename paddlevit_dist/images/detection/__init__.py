"""Object detection: finding boxes around objects in images, scored as COCO does.

- ``task``, ``settings``: the task and its keys
- ``data``: images with boxes; ``coco_files``: COCO's JSON
- ``detector``: interface of a network, ``model_options``: its options; ``detections``: its outputs for an image,
  ``inference``: how a batch gets them, ``windows``: and a large image
- ``detr``, ``eomt``, ``mask_rcnn``, ``rfdetr``, ``rtdetr``: the networks
- ``boxes``, ``denoising``, ``key_names``: what they share
- ``evaluation``: COCO's matching and scores, without Paddle; ``metrics``: scores over the processes of a run
- ``prediction``, ``drawing``, ``figures``, ``export``: outputs made of detections; ``records``: source of figures
- ``checks``, ``drawn_samples``: log lines, checks and images of samples
"""
