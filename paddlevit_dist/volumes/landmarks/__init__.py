"""Landmark detection in volumes, from the peaks of heatmaps.

- ``task``: the task; ``dataset``: volumes with landmark files; ``mirroring``: left and right landmarks
- ``heatmaps``: targets, and the positions of peaks; ``losses``; ``metrics``: scores
- ``results``: predicted and true landmarks; ``scored``: scores of existing results
- ``prediction`` (with output files), ``figures``, ``export``, ``checks``: aspects of the task
"""
