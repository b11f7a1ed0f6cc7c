"""Makes a process of a CPU queue its optimizer steps as a GPU does, so that the host knows an update one update late. A
module that ``-import`` names."""

from paddlevit_dist.engine import step
from paddlevit_dist.registry.features import _FUNCTIONS, find_function

step.is_on_gpu = lambda: True
# Lists of tensors, which a GPU's step is made of, in place of the CPU's loops.
assert find_function("gradients") is not None  # it fails if renamed
_FUNCTIONS["gradients"] = lambda parameters: None
