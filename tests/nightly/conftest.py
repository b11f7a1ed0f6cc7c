"""The last lines of a night say how to repeat it."""

import pytest
from support.fuzz.night import SEED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"damaged files and random settings: FUZZ_SEED={SEED} make fuzz repeats them")
