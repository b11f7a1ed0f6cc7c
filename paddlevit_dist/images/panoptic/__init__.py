"""Panoptic segmentation of images: each pixel is in one segment of a class with instances (things) or without (stuff).

- ``task``, ``settings``: the task and its keys; ``samples``, ``transforms``: its batches
- ``data``: images with segments
- ``guessing``: finds the layout of a folder
- ``quality``: panoptic quality of an image; ``score_kind``, ``metrics``: scores of all;
  ``scored_files``, ``evaluate_command``: of files of any program
- ``prediction``, ``drawing``, ``figures``: outputs made of segments; ``checks``: log lines and checks
"""
