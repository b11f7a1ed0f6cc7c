"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .event_logs import TensorBoardLog, VisualDlLog
from .services import MlflowLog, WandbLog

__all__ = [
    "MlflowLog",
    "TensorBoardLog",
    "VisualDlLog",
    "WandbLog",
]
