"""Three processes, of which the second has no object at all, learn what one process learns."""

import numpy as np
from integration.images.detection.test_detector_ranks import CRITERIA, MODULE, OBJECTS, update_by_losses
from support.processes import run_together


def test_processes_change_the_weights_as_one_does():
    calls = {kind: (f"{MODULE}:update_by_losses", (kind, OBJECTS)) for kind in CRITERIA}
    for kind, ranks in run_together(calls, processes=3, timeout=600).items():
        alone = update_by_losses(kind, OBJECTS)
        for found in ranks:
            assert set(found) == set(alone)
            for name, change in found.items():
                largest = abs(alone[name]).max()
                np.testing.assert_allclose(change, alone[name], rtol=0, atol=2e-6 * largest, err_msg=name)
                assert largest > 0, name
