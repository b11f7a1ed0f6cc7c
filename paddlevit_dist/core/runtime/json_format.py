"""Write JSON that every reader takes: numbers that are not finite, which JSON cannot express, become null."""

import json
import math
from typing import Any


def format_json(value: Any, **options: Any) -> str:
    """Format a value as JSON; ``options`` are passed to ``json.dumps``.

    NaN and infinity become null: JSON has neither (RFC 8259, section 6), and browsers, jq and msgspec refuse the names
    that Python writes for them.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # rare, so that finite values are not searched
        return json.dumps(_replace_not_finite(value), allow_nan=False, **options)


def _replace_not_finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _replace_not_finite(part) for name, part in value.items()}
    return [_replace_not_finite(part) for part in value] if isinstance(value, (list, tuple)) else value
