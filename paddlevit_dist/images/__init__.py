"""Images: two tasks and what they share.

- ``classification``, ``detection``: the tasks
- ``data``: datasets; ``transforms``: of images; ``models``: networks; ``settings``: keys of both tasks
- ``prepare``: ``prepare images``
- ``run_lengths``: masks as COCO's files hold them
"""
