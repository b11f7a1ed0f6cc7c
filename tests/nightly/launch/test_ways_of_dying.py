"""However a rank ends amid its work, the run ends soon and says so last."""

import pytest
from integration.launch.dying import WAYS, require_end


@pytest.mark.parametrize("how", WAYS)
def test_the_run_ends_soon_with_the_root_cause_last(how, tmp_path):
    require_end(how, tmp_path)
