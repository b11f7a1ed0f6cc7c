"""Groups of seeds: their devices, and the words of their trainings."""

from paddlevit_dist.core.launch import devices
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.command_line import remove_keys
from paddlevit_dist.extensions.compare import seeds


def test_a_user_with_four_gpus_gets_four_trainings_of_one_at_once(machine, monkeypatch):
    machine.gpus = 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-a,1,0")
    assert seeds.assign_gpus(devices.plan_processes(1)) == ["3", "GPU-a", "1", "0"]
    machine.gpus = 2  # the third name is of no GPU, which hides those behind it
    assert seeds.assign_gpus(devices.plan_processes(1)) == ["3", "GPU-a"]
    machine.gpus = 4
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert seeds.assign_gpus(devices.plan_processes(1)) == ["0", "1", "2", "3"]
    assert seeds.assign_gpus(devices.plan_processes(2)) == seeds.assign_gpus(devices.plan_processes(-1)) == [None]
    for machine.gpus, gpus in ((2, ["0", "1"]), (1, [None]), (0, [None])):
        assert seeds.assign_gpus(devices.plan_processes(1)) == gpus


def test_the_words_of_a_training_are_those_of_the_group_without_its_own():
    words = (
        "-cfg=a.yaml --seeds 3 TRAIN.BASE_LR -1 -output=x SEED=4 -amp SAVE here --log-to none -seed 5 MODEL.RESUME auto"
    )
    kept = remove_keys(words.split(), ("SEEDS", "SEED", "SAVE", "MODEL.RESUME"))
    assert kept == "-cfg=a.yaml TRAIN.BASE_LR -1 -amp --log-to none".split()


def test_an_evaluation_ignores_how_often_its_recipe_trains(tmp_path):
    recipe = tmp_path / "twice.yaml"
    recipe.write_text("SEEDS: 2\n")
    evaluation = load([f"-cfg={recipe}", "-eval", "-pretrained=x"])
    assert load([f"-cfg={recipe}"]).values.SEEDS == 2
    assert evaluation.values.SEEDS is None and evaluation.notices == []
