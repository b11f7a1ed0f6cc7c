"""The factor that keeps gradients within float16's range."""

from __future__ import annotations

from typing import Any, Dict

_RATIOS = {"incr_ratio": 2.0, "decr_ratio": 0.5, "incr_every_n_steps": 2000, "decr_every_n_nan_or_inf": 1}


class LossScale:
    """Doubled after 2,000 finite updates in a row, halved after each that is not: the rule of ``paddle.amp.GradScaler``
    by its defaults, with its state in checkpoints.

    That class looks at all gradients itself, waits for what it finds, does nothing on a CPU, and with a new NumPy fails
    when it prints that the scale is lowered. This one is told what the update has found out anyway, and lives on the
    host.

    Attributes:
        value: what the loss is multiplied by; a power of two, so that dividing by it is exact.
    """

    def __init__(self) -> None:
        self.value = 65536.0
        self._finite_in_a_row = 0  # since the scale has changed

    def update(self, is_finite: bool) -> None:
        """Take note of an update, whether it was made or skipped."""
        self._finite_in_a_row = self._finite_in_a_row + 1 if is_finite else 0
        if not is_finite:
            self.value *= _RATIOS["decr_ratio"]
        elif self._finite_in_a_row == _RATIOS["incr_every_n_steps"]:
            self.value *= _RATIOS["incr_ratio"]
            self._finite_in_a_row = 0

    def state_dict(self) -> Dict[str, Any]:
        """Plain numbers for the checkpoint, as Paddle's class names them."""
        counts = {"incr_count": self._finite_in_a_row, "decr_count": 0}
        return {"scale": [self.value], **_RATIOS, **counts, "use_dynamic_loss_scaling": True}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        self.value, self._finite_in_a_row = float(state["scale"][0]), int(state["incr_count"])
