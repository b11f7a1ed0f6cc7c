"""The builds of Paddle for GPUs, and how to install the one that a card needs."""

from ...core.launch.devices import GpuCard

_INDEX = "https://www.paddlepaddle.org.cn/packages/stable"  # Paddle's package index
# Builds of Paddle 3.3.1: the compute capabilities that they have code for, and the CUDA that the driver has to support.
_BUILDS = {
    "cu126": ((7, 0), (9, 0), (12, 0)),
    "cu118": ((6, 0), (8, 9), (11, 0)),
    "cu129": ((7, 5), (99, 0), (12, 8)),
}


def format_install(card: GpuCard | None) -> str:
    """Format the commands that install the Paddle build for a card; ``docs/guides/installation.md`` has the table."""
    remove = "python -m pip uninstall -y paddlepaddle paddlepaddle-gpu"
    if card is None:
        return f"{remove}, then install Paddle's GPU build (docs/guides/installation.md)"
    fitting = {name: cuda for name, (low, high, cuda) in _BUILDS.items() if low <= card.capability <= high}
    if not fitting:
        return "Paddle has no build for it"
    build = next((name for name, cuda in fitting.items() if card.cuda >= cuda), min(fitting, key=fitting.__getitem__))
    cuda = ".".join(map(str, fitting[build]))
    driver = "" if card.cuda >= fitting[build] else f"install an NVIDIA driver for CUDA {cuda} or newer, then "
    return f"{driver}{remove}; python -m pip install paddlepaddle-gpu==3.3.1 -i {_INDEX}/{build}/"
