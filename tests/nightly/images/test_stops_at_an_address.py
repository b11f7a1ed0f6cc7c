"""A signal while images at an address are awaited, for each wait the one of both that is not sent by day."""

import signal

import pytest
from integration.images.test_stops_at_an_address import (
    BEGINNINGS,
    COMMANDS,
    require_end_before_the_beginning,
    require_end_of_a_command,
    server,  # noqa: F401
)

OTHER = {signal.SIGINT: signal.SIGTERM, signal.SIGTERM: signal.SIGINT}


@pytest.mark.parametrize("what, number", BEGINNINGS.items())
def test_a_training_that_has_not_begun(what, number, server, tmp_path):  # noqa: F811
    require_end_before_the_beginning(what, OTHER[number], server, tmp_path)


@pytest.mark.parametrize("command, number", COMMANDS.items())
def test_other_commands(command, number, server, tmp_path):  # noqa: F811
    require_end_of_a_command(command, OTHER[number], server, tmp_path)
