"""Three processes, of which the second has no object at all, learn what one process learns."""

import numpy as np
from support.processes import run_together
from support.trainings import detector_updates


def test_processes_change_the_weights_as_one_does():
    objects, target = detector_updates.OBJECTS, "support.trainings.detector_updates:update_by_losses"
    calls = {kind: (target, (kind, objects)) for kind in detector_updates.CRITERIA}
    for kind, ranks in run_together(calls, processes=3, timeout=600).items():
        alone = detector_updates.update_by_losses(kind, objects)
        for found in ranks:
            assert set(found) == set(alone)
            for name, change in found.items():
                largest = abs(alone[name]).max()
                np.testing.assert_allclose(change, alone[name], rtol=0, atol=2e-6 * largest, err_msg=name)
                assert largest > 0, name
