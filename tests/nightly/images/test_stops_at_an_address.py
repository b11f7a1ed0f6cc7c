"""A signal while images at an address are awaited, for each wait the one of both that is not sent by day."""

import signal

import pytest
from integration.images.test_stops_at_an_address import (
    BEGINNINGS,
    COMMANDS,
    require_end_before_the_beginning,
    require_end_of_a_command,
    require_end_of_a_wait_for_images,
    server,  # noqa: F401
)

OTHER = {signal.SIGINT: signal.SIGTERM, signal.SIGTERM: signal.SIGINT}


@pytest.mark.parametrize("what, number", [(what, OTHER[number]) for what, number in BEGINNINGS.items()])
def test_a_training_that_has_not_begun(what, number, server, tmp_path):  # noqa: F811
    require_end_before_the_beginning(what, number, server, tmp_path)


@pytest.mark.parametrize("command, number", [(command, OTHER[number]) for command, number in COMMANDS.items()])
def test_other_commands(command, number, server, tmp_path):  # noqa: F811
    require_end_of_a_command(command, number, server, tmp_path)


def test_a_training_without_loader_processes_that_waits_for_images(server, tmp_path):  # noqa: F811
    require_end_of_a_wait_for_images(0, server, tmp_path)
