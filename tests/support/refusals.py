"""What a call says that refuses what it is given."""

from collections.abc import Callable
from typing import Any

import pytest

from paddlevit_dist import UserError


def refusal_of(call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
    """The message of the UserError with which a call must end: one line."""
    with pytest.raises(UserError) as error:
        call(*arguments, **options)
    message = str(error.value)
    assert "\n" not in message, message
    return message
