"""The package's command on a machine that has four GPUs as far as the parent of a group knows; its trainings do not."""

import sys

from paddlevit_dist.__main__ import main
from paddlevit_dist.core.launch import devices

devices.count_gpus = lambda: 4
sys.exit(main(sys.argv[1:]))
