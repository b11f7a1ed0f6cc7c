"""DETERMINISTIC: what of a training has no kernel on GPUs whose result is the same each time."""

from typing import Any

from ..contracts.task import Term
from ..engine.watchers import Update, Watcher
from ..runtime.transfers import is_on_gpu

# Operations whose GPU kernels add numbers in the order in which threads come by (CudaAtomicAdd in Paddle's sources, 2.6
# and 3.x), with ``FLAGS_cudnn_deterministic``, too: node of the backward pass -> what a user calls it. Of the second
# ones only those sums differ to which several rows add.
_ALWAYS = {
    "NearestInterpGradNode": "interpolate",
    "LinearInterpGradNode": "interpolate",
    "BilinearInterpGradNode": "interpolate",
    "TrilinearInterpGradNode": "interpolate",
    "BicubicInterpGradNode": "interpolate",
    "RoiAlignGradNode": "roi_align",
    "RoiPoolGradNode": "roi_pool",
    "GridSampleGradNode": "grid_sample",
    "DeformableConvGradNode": "deform_conv2d",
}
_OF_SHARED_ROWS = {
    "GatherGradNode": "gather",
    "GatherNdGradNode": "indexing",
    "IndexElementwiseGetGradNode": "indexing",
    "IndexPutGradNode": "index_put",
    "ScatterNdAddGradNode": "scatter_nd_add",
    "SegmentPoolGradNode": "segment sums",
    "SendURecvGradNode": "send_u_recv",
}
_PROGRAMS = {"Dy2StGradNode", "GradNodeRunProgram", "GradNodeBase"}  # in 3.x, in 2.6, and there without its name


class Repeating(Watcher):
    """DETERMINISTIC says after the first update what of it has no kernel on a GPU that repeats."""

    def __init__(self, training: Any) -> None:
        self._record = training.record
        self._is_due = is_on_gpu()

    def update_done(self, update: Update) -> None:
        if self._is_due:
            self._record.say(line_of(update.terms[0]))
            self._is_due = False


def _nodes_of(terms: dict[str, Term]) -> set[str]:
    """Names of the nodes that the backward pass of a loss goes through, or went."""
    found: dict[int, str] = {}
    ahead = [term.sum.grad_fn for term in terms.values() if term.weight]
    while ahead:
        node = ahead.pop()
        if node is not None and node.node_ptr() not in found:
            found[node.node_ptr()] = node.name()
            ahead += node.next_functions
    return set(found.values())


def line_of(terms: dict[str, Term]) -> str:
    """What the log says of a model whose loss has these terms."""
    nodes = _nodes_of(terms)
    if nodes & _PROGRAMS:
        return "DETERMINISTIC: the passes are compiled to a program (TO_STATIC), whose operations are not looked at"
    always = sorted({name for node, name in _ALWAYS.items() if node in nodes})
    shared = sorted({name for node, name in _OF_SHARED_ROWS.items() if node in nodes})
    parts = [", ".join(always)] if always else []
    parts += [f"{', '.join(shared)} where several rows add to one"] if shared else []
    if not parts:
        return (
            "DETERMINISTIC: no operation of this model is known to lack a kernel that repeats bit for bit; whether a "
            "run on a GPU repeats was not measured"
        )
    return (
        "DETERMINISTIC: Paddle has no GPU kernel that repeats bit for bit for the gradient of "
        f"{'; of '.join(parts)}: expect other last bits in each run"
    )
