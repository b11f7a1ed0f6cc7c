"""Makes a process of a CPU queue its optimizer steps as a GPU does, so that the host knows an update one update late. A
module that ``-import`` names."""

from paddlevit_dist.core.engine import step

step.is_on_gpu = lambda: True
