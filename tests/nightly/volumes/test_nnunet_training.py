"""A folder in nnU-Net's layout, with regions for classes, is planned, trained on, evaluated and predicted."""

from integration.volumes.test_nnunet_training import require_a_training_and_predictions
from support.files.nnunet_folders import REGIONS


def test_a_folder_of_regions_trains_and_predictions_lie_in_it(tmp_path):
    groups = {"organs": [2, 5], "liver": [5]}
    require_a_training_and_predictions(tmp_path, REGIONS, "regions organs, liver", groups)
