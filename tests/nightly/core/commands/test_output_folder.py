"""What a run of two processes leaves behind and prints: the tests of a run of one process, with another fixture."""

import pytest
from integration.core.commands.test_output_folder import (  # noqa: F401
    test_an_evaluation_of_the_saved_weights_ends_with_the_same_line_and_its_own_record,
    test_every_epoch_is_reported_once_with_its_evaluation,
    test_kept_are_every_nth_the_last_and_the_best_checkpoint,
    test_plain_paddle_reads_the_saved_weights,
    test_the_configuration_loads_back_to_the_same_values,
    test_the_folder_is_flat_and_holds_the_named_files,
    test_the_last_lines_are_the_last_evaluation_and_the_best,
    test_the_log_has_every_line_of_stdout_behind_its_time_and_all_of_those_that_are_shortened,
    test_the_run_record_tells_command_versions_devices_tuning_and_seed,
)


@pytest.fixture
def run(trained_by_two):
    return trained_by_two
