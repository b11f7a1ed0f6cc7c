"""Segmentation of volumes: a class for each voxel.

- ``task``, ``settings``: the task and its keys; ``prediction``: new volumes and output files; ``export``, ``checks``
- ``fingerprint``: statistics of a dataset; ``plan_file``: keys that follow from them
- ``dataset``: base classes of datasets, cache of label maps; ``nnunet``, ``phantoms``: datasets; ``regions``: unions of
  labels; ``losses``: their losses; ``decoding``: labels of stored voxels from outputs; ``components``:
  largest components
- ``samples``: training crops and whole volumes; ``metrics``: scores; ``figures``: figures of the report
"""
