"""Segmentation of volumes: a class for each voxel.

- ``task``, ``training``, ``evaluation``, ``prediction``: the task; ``settings``: its keys
- ``dataset``: what a dataset is, and where labels are kept; ``nnunet``, ``phantoms``: datasets
- ``samples``: training crops and whole volumes; ``metrics``: scores; ``figures``: of a report
"""
