"""Image tasks and the code they share.

- ``classification``, ``detection``, ``segmentation``: the tasks
- ``data``: datasets; ``transforms``: image transforms; ``models``: networks; ``settings``: keys that the tasks share
- ``prepare``: the command ``prepare images``
- ``run_lengths``: masks in the formats of COCO's files
"""
