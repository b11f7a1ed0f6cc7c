"""The files of this process in shared memory."""

import os

from paddlevit_dist.core.data import shared_arrays


def own_files() -> list:
    return [path.name for path in shared_arrays.FOLDER.glob(f"paddlevit_dist_*_{os.getpid()}_*")]
