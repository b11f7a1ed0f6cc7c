"""What a training of a group has for itself, noted by seed. A module that ``-import`` names."""

import os
import sys
from pathlib import Path

(seed,) = [word.partition("=")[2] for word in sys.argv if word.startswith("-seed=")] or ["group"]
given = f"{os.environ.get('CUDA_VISIBLE_DEVICES')} {len(os.sched_getaffinity(0))}"
Path("noted").mkdir(exist_ok=True)
Path("noted", seed).write_text(given, encoding="utf-8")
