"""``evaluate landmarks``: positions of other programs, in any of the formats and either coordinate system."""

import csv
import json

import numpy as np
import pytest
from support.files.volume_files import write_volume

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.tasks.prediction import PredictionRecord
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.tables import read_table
from paddlevit_dist.volumes import commands as volume_commands
from paddlevit_dist.volumes.geometry import VolumeGeometry
from paddlevit_dist.volumes.landmarks.prediction import LandmarkWriter
from paddlevit_dist.volumes.landmarks.results import LandmarkGroundTruth, LandmarkPrediction
from paddlevit_dist.volumes.landmarks.scored import read_landmarks, score
from paddlevit_dist.volumes.slicer_files import LandmarkPoint, format_fcsv, format_markups

NAMES = ["nose", "chin", "ear"]
RNG = np.random.default_rng(0)
TRUTH = {f"case{number}": RNG.uniform(-90, 90, (3, 3)) for number in range(6)}  # RAS
STEPS = RNG.normal(0, 1.5, (6, 3, 3))
FOUND = {case: places + step for (case, places), step in zip(TRUTH.items(), STEPS)}
ERRORS = np.sqrt((STEPS**2).sum(axis=2))


def write(folder, places, form):
    """RAS positions as files of a form: "fcsv LPS", "mrk.json RAS", "csv LPS" and so on."""
    kind, world = form.split()
    folder.mkdir(exist_ok=True)
    for case, own in places.items():
        own = own * (-1, -1, 1) if world == "LPS" else own
        points = [LandmarkPoint(name, tuple(f"{value:.10f}" for value in place), "") for name, place in zip(NAMES, own)]
        if kind == "fcsv":
            text = format_fcsv(points, world.lower())
        elif kind == "mrk.json":
            text = format_markups(points, world.lower())
        elif kind == "json":
            text = json.dumps({name: place.tolist() for name, place in zip(NAMES, own)})
        else:
            text = "name,x,y,z\n" + "".join(f"{p.name},{','.join(p.position)}\n" for p in points)
        (folder / f"{case}.{kind}").write_text(text)


def evaluate(capsys, *words):
    volume_commands.run_landmarks([*map(str, words), "-json"])
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


@pytest.mark.parametrize(
    ("truth", "found"),
    [
        ("fcsv RAS", "mrk.json LPS"),
        ("mrk.json LPS", "fcsv LPS"),
        ("fcsv LPS", "mrk.json RAS"),
        ("mrk.json RAS", "csv LPS"),
        ("fcsv RAS", "json RAS"),
        ("json LPS", "fcsv RAS"),
        ("csv LPS", "json LPS"),
    ],
)
def test_errors_are_distances_in_whatever_coordinates_files_are(tmp_path, capsys, truth, found):
    write(tmp_path / "truth", TRUTH, truth)
    write(tmp_path / "found", FOUND, found)
    unsaid = {form.split()[1] for form in (truth, found) if form.split()[0] in ("csv", "json")}
    said, _ = evaluate(
        capsys, tmp_path / "truth", tmp_path / "found", *(f"-coordinate_system={one.lower()}" for one in unsaid)
    )
    assert said["scores"]["mre_mm"] == pytest.approx(ERRORS.mean(), abs=1e-6)
    assert said["scores"]["sd_mm"] == pytest.approx(ERRORS.std(), abs=1e-6)
    assert said["scores"]["sdr_2mm"] == pytest.approx(100 * (ERRORS <= 2).mean())
    assert said["scores"]["chin mre_mm"] == pytest.approx(ERRORS[:, 1].mean(), abs=1e-6)
    assert said["samples"] == 6 and said["intervals"]["mre_mm"]["low"] < ERRORS.mean()


def test_the_first_line_counts_volumes_and_the_landmarks_that_the_truth_has(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "json RAS")
    write(tmp_path / "found", FOUND, "fcsv RAS")
    short = {name: TRUTH["case0"][row].tolist() for row, name in enumerate(NAMES[:2])}
    (tmp_path / "truth" / "case0.json").write_text(json.dumps(short))
    volume_commands.run_landmarks([str(tmp_path / "truth"), str(tmp_path / "found"), "-coordinate_system=ras"])
    assert capsys.readouterr().out.startswith("6 volumes with 17 landmarks: ")


def test_the_tables_of_an_evaluation_are_no_volumes(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "fcsv RAS")
    write(tmp_path / "found", {**FOUND, "other": FOUND["case0"]}, "fcsv RAS")
    for name in ("landmarks.csv", "per_landmark.csv"):
        (tmp_path / "found" / name).write_text("landmark,mre_mm\n")
    _, told = evaluate(capsys, tmp_path / "truth", tmp_path / "found")
    assert f"{tmp_path / 'found'}: 1 volume is not in {tmp_path / 'truth'} and is ignored, for example other" in told


def test_landmarks_that_the_truth_does_not_name_are_told_and_ignored(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "fcsv RAS")
    lines = table(FOUND, "RAS").splitlines()
    (tmp_path / "found.csv").write_text("\n".join([*lines, "case4,tail,1,2,3,0.5,RAS", "case1,brow,0,0,0,0.5,RAS"]))
    said, told = evaluate(capsys, tmp_path / "truth", tmp_path / "found.csv")
    assert f"note: {tmp_path / 'found.csv'}: ignored landmarks that are not in the truth: brow, tail\n" in told
    assert said["scores"]["mre_mm"] == pytest.approx(ERRORS.mean(), abs=1e-6)


def test_coordinates_that_nobody_says(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "fcsv LPS")
    write(tmp_path / "found", FOUND, "csv LPS")
    with pytest.raises(UserError, match=r"case0.csv does not specify LPS or RAS.*add -coordinate_system"):
        evaluate(capsys, tmp_path / "truth", tmp_path / "found")
    write(tmp_path / "both", TRUTH, "json LPS")
    said, _ = evaluate(capsys, tmp_path / "both", tmp_path / "found")
    assert said["scores"]["mre_mm"] == pytest.approx(ERRORS.mean(), abs=1e-6)
    assert "both sides are assumed to be the same" in said["protocol"][0]


def table(places, world=""):
    rows = ["case,landmark,x_mm,y_mm,z_mm,confidence,world"]
    for case, own in places.items():
        own = own * (-1, -1, 1) if world == "LPS" else own
        rows += [f"{case},{name},{','.join(map(repr, place))},0.9,{world}" for name, place in zip(NAMES, own.tolist())]
    return "\n".join(rows) + "\n"


def test_names_that_look_like_formulas_are_text_in_a_spreadsheet_and_are_read_back(tmp_path, capsys):
    names, places = ["=1+1", "@sum"], np.array([[4.0, 2.0, 3.0], [5.0, 1.0, 2.0]])
    geometry = VolumeGeometry((8, 8, 8), np.diag([-1.0, -1.0, 1.0, 1.0]))  # positions below 0 stay numbers
    writer = LandmarkWriter(tmp_path, names, [("+case", "ras")])
    found = LandmarkPrediction(0, geometry, places, np.ones(2), np.zeros((8, 8, 8), np.float32))
    kept = writer.summarize(0, found, LandmarkGroundTruth(np.array([1.0, 2.0]), places))
    writer.finish([PredictionRecord(0, [], summary=kept)])
    with open(tmp_path / "landmarks.csv", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["case"], row["landmark"]) for row in rows] == [("'+case", "'=1+1"), ("'+case", "'@sum")]
    assert [float(row["x_mm"]) for row in rows] == [-3.0, -2.0]
    summary = (tmp_path / "per_landmark.csv").read_bytes().decode().split("\n")
    assert [line.split(",")[0] for line in summary] == ["landmark", "'=1+1", "'@sum", "all", ""]
    assert not any("\r" in line for line in summary)
    (tmp_path / "truth").mkdir()
    truth = {name: place.tolist() for name, place in zip(names, geometry.world(places))}
    (tmp_path / "truth" / "+case.json").write_text(json.dumps(truth))
    said, _ = evaluate(capsys, tmp_path / "truth", tmp_path / "landmarks.csv", "-coordinate_system=ras")
    assert said["samples"] == 1 and said["scores"]["=1+1 mre_mm"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("truth", "found", "system", "said"),
    [
        ("fcsv RAS", "csv LPS", "lps", "files without a coordinate system are read as LPS"),
        ("csv RAS", "fcsv LPS", "ras", "files without a coordinate system are read as RAS"),
        ("csv LPS", "csv LPS", "ras", "files without a coordinate system are read as RAS"),
        ("csv LPS", "json LPS", None, "files do not specify LPS or RAS: both sides are assumed to be the same"),
        ("fcsv LPS", "mrk.json RAS", "lps", "coordinate systems from the files"),
    ],
)
def test_what_is_taken_for_granted_about_coordinates_is_told(tmp_path, truth, found, system, said):
    write(tmp_path / "truth", TRUTH, truth)
    write(tmp_path / "found", FOUND, found)
    report = score(str(tmp_path / "found"), read_landmarks(str(tmp_path / "truth")), "t", coordinate_system=system)
    assert report.protocol[0] == f"mre_mm: mean distance in millimeters over all landmarks and volumes; {said}"
    np.testing.assert_allclose(report.arrays["sums"][..., 1], ERRORS, atol=1e-6)


@pytest.mark.parametrize("world", ["LPS", "RAS", ""])
def test_one_table_of_all_volumes(tmp_path, capsys, world):
    write(tmp_path / "truth", TRUTH, "mrk.json LPS")
    (tmp_path / "landmarks.csv").write_text(table(FOUND, world))
    words = [] if world else ["-coordinate_system=ras"]
    said, _ = evaluate(capsys, tmp_path / "truth", tmp_path / "landmarks.csv", *words)
    assert said["scores"]["mre_mm"] == pytest.approx(ERRORS.mean(), abs=1e-6)
    turned, _ = evaluate(capsys, tmp_path / "landmarks.csv", tmp_path / "truth", *words)
    assert turned["scores"] == pytest.approx(said["scores"])


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("case,landmark", "volume,landmark", "line 1: no column case, or two; expected case,landmark,x,y,z"),
        ("case0,chin", "case0,nose", "line 3: landmark 'nose' appears twice in volume case0"),
        ("0.9,RAS", "0.9,XYZ", "line 2: world is 'xyz', expected LPS or RAS"),
        ("0.9,RAS", "0.9,", "line 3: only some rows have a world"),
        (
            "case0,nose,",
            "case0,nose,1,",
            "line 2: more values than the header has columns; write decimals with a point",
        ),
        (
            "case,landmark",
            f"case,{'a' * 131_073},landmark",
            "landmarks.csv is not a table: field larger than field limit",
        ),
        ("case0,chin", f"case0,{'a' * 131_073}", "landmarks.csv is not a table: field larger than field limit"),
        ("case0,chin", "case0,Chin", "has no position of chin, but .* has one; its landmarks are nose, Chin, ear"),
        ("case0,nose,", "case0,nose,a", "line 2: x of landmark 'nose' is .*, expected a number"),
    ],
)
def test_tables_that_are_none_of_landmarks(tmp_path, capsys, old, new, complaint):
    write(tmp_path / "truth", TRUTH, "fcsv RAS")
    (tmp_path / "landmarks.csv").write_text(table(FOUND, "RAS").replace(old, new, 1))
    with pytest.raises(UserError, match=complaint):
        evaluate(capsys, tmp_path / "truth", tmp_path / "landmarks.csv")


def test_one_coordinate_system_taken_for_the_other_is_told(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "fcsv LPS")
    write(tmp_path / "found", FOUND, "csv LPS")
    _, told = evaluate(capsys, tmp_path / "truth", tmp_path / "found", "-coordinate_system=ras")
    assert f"with x and y negated the mean error would be {ERRORS.mean():.4g} mm: is LPS read as RAS?" in told
    _, told = evaluate(capsys, tmp_path / "truth", tmp_path / "found", "-coordinate_system=lps")
    assert told.startswith("note: the interval is rough: 6 volumes") and told.count("\n") == 1


@pytest.mark.parametrize(("share", "question"), [(1000, "are they meters?"), (10, "are they centimeters?")])
def test_another_unit_is_told(tmp_path, capsys, share, question):
    write(tmp_path / "truth", TRUTH, "fcsv LPS")
    rows = table({case: places / share for case, places in FOUND.items()}, "RAS").splitlines()
    (tmp_path / "landmarks.csv").write_text("\n".join([*rows[:4], ",,,,,,", *rows[4:]]))
    _, told = evaluate(capsys, tmp_path / "truth", tmp_path / "landmarks.csv")
    assert (
        f"the mean error would be {ERRORS.mean():.4g} mm: {question}" in told and told.count("note: ") == 2
    )  # and a rough interval


def test_landmarks_of_a_data_set_compare_with_one_another(tmp_path, capsys):
    heads = resolve("dataset", "synthetic_landmarks").open(settings.load(["-cfg=landmark_unet3d"]).values, "val", None)
    for scale in (1, 2):
        (tmp_path / f"by_{scale}").mkdir()
        for index in range(len(heads)):
            moved = [
                LandmarkPoint(name, (*map(str, place + (scale, 0, 0)),), "")
                for name, place in zip(heads.names, heads.world(index))
            ]
            text = format_fcsv([one for one in moved if "nan" not in one.position], "ras")
            (tmp_path / f"by_{scale}" / f"{heads.case(index)}.fcsv").write_text(text)
        said, _ = evaluate(
            capsys, tmp_path / f"by_{scale}", "-cfg=landmark_unet3d", f"-output={tmp_path / f'out_{scale}'}"
        )
        assert said["scores"]["mre_mm"] == pytest.approx(scale, abs=1e-9)
    tables = [read_table(str(tmp_path / f"out_{scale}")) for scale in (1, 2)]
    row = compare_tables(*tables)
    assert row["difference"]["value"] == pytest.approx(1) and not row["more_is_better"]
    assert tables[0].names == [heads.identity(index) for index in range(len(heads))]


def test_what_is_missing_is_refused_and_what_is_more_is_told(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "fcsv RAS")
    write(tmp_path / "found", {**FOUND, "other": FOUND["case0"]}, "mrk.json LPS")
    _, told = evaluate(capsys, tmp_path / "truth", tmp_path / "found")
    assert "1 volume is not in" in told and "for example other" in told
    (tmp_path / "found" / "case3.mrk.json").write_text(
        format_markups([LandmarkPoint("nose", ("0", "0", "0"), "")], "ras")
    )
    with pytest.raises(UserError, match=r"case3.mrk.json has no position of chin, but .*case3.fcsv has"):
        evaluate(capsys, tmp_path / "truth", tmp_path / "found")
    (tmp_path / "found" / "case3.mrk.json").unlink()
    with pytest.raises(UserError, match="1 of 6 volumes of .* have no landmarks, for example case3"):
        evaluate(capsys, tmp_path / "truth", tmp_path / "found")
    for folder, complaint in (("none", "none is not a folder"), ("", "have no landmarks")):
        with pytest.raises(UserError, match=complaint):
            evaluate(capsys, tmp_path / "truth", tmp_path / folder)


def test_voxels_are_no_millimeters(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "fcsv RAS")
    write(tmp_path / "found", FOUND, "fcsv LPS")
    file = tmp_path / "found" / "case0.fcsv"
    file.write_text(file.read_text().replace("= LPS", "= IJK"))
    with pytest.raises(UserError, match=r"case0.fcsv: landmarks are in voxels \(IJK\)"):
        evaluate(capsys, tmp_path / "truth", tmp_path / "found")


def test_volumes_of_a_patient_are_drawn_together(tmp_path, capsys):
    write(tmp_path / "truth", TRUTH, "fcsv RAS")
    lines = table(FOUND, "LPS").splitlines()
    (tmp_path / "found.csv").write_text(
        "\n".join([f"{lines[0]},patient", *(f"{one},{int(one[4]) // 2}" for one in lines[1:])])
    )
    said, _ = evaluate(capsys, tmp_path / "truth", tmp_path / "found.csv", "-group=patient")
    assert said["groups"]["number"] == 3 and said["scores"]["mre_mm"] == pytest.approx(ERRORS.mean(), abs=1e-6)
    deviation = ERRORS.reshape(3, 6).mean(axis=1).std(ddof=1) / 3**0.5
    factor = np.exp(4.302653 * deviation / ERRORS.mean())  # Student's quantile with 2 degrees of freedom
    ends = [ERRORS.mean() / factor, ERRORS.mean() * factor]
    assert [said["intervals"]["mre_mm"][end] for end in ("low", "high")] == pytest.approx(ends, rel=1e-4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("case,landmark,x,y,z\n", "has no rows; expected case,landmark,x,y,z"),
        ("case,landmark,x,y,z\n,,,,\n\n", "has no rows; expected case,landmark,x,y,z"),
        ("case,landmark,x,z\na,nose,1,2\n", "line 1: no column y, or two; expected"),
        ("case,landmark,x,y,z,Y_mm\na,nose,1,2,3,4\n", "line 1: no column y, or two; expected"),
        ("case,landmark,x,y,z\n\na\n", "line 3: the row has no landmark; write its name"),
        ("case,landmark,x,y,z\na,nose,1,2,3\n ,chin,1,2,3\n", "line 3: the row has no case; write its name"),
        ("x,y,z,landmark,case\n1,2,3,nose\n", "line 2: the row has no case; write its name"),
        ("case,landmark,x,y,z\na,nose,1,2,3,4\n", "line 2: more values than the header has columns"),
        ("case,landmark,x,y,z\na,nose,1,2,3\na,nose,1,2,3\n", "line 3: landmark 'nose' appears twice in volume a"),
        (
            'case,landmark,x,y,z\n"a\nb","no\nse",1,2,3\n"a\nb","no\nse",1,2,3\n',
            r"line 7: landmark 'no\\nse' appears twice in volume a\\nb$",
        ),
        ("case,landmark,x,y,z,world\na,nose,1,2,3,LPS\na,chin,1,2,3,\n", "line 3: only some rows have a world in vol"),
        ("case,landmark,x,y,z,world\na,nose,1,2,3,XYZ\n", "line 2: world is 'xyz', expected LPS or RAS"),
    ],
)
def test_tables_that_are_damaged_are_refused_with_their_line(tmp_path, content, message):
    (tmp_path / "truth.csv").write_text(content)
    with pytest.raises(UserError, match=rf"truth\.csv,? ?{message}"):
        read_landmarks(str(tmp_path / "truth.csv"))


def test_a_folder_without_landmarks_and_a_truth_without_positions_are_refused(tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path} contains no landmark files; expected one for each volume"):
        read_landmarks(str(tmp_path))
    (tmp_path / "truth.csv").write_text('case, landmark, x, y, z\na, "nose, tip", , ,\n')
    truth = read_landmarks(str(tmp_path / "truth.csv"))
    assert truth[0].positions == {"nose, tip": None}
    (tmp_path / "found.csv").write_text('case,landmark,x,y,z\na,"nose, tip",1,2,3\n')
    with pytest.raises(UserError, match=r"the truth: no landmark has a position: there is nothing to compare with"):
        score(str(tmp_path / "found.csv"), truth, "the truth")


@pytest.mark.parametrize("file", ["a.nii.gz", "x/a.NII.GZ", "a.Nii", "a.NRRD", "x/a"])
def test_predictions_name_the_case_by_its_file_with_any_suffix(tmp_path, file):
    (tmp_path / "predictions.csv").write_text(f"input,landmark,x,y,z,world\n{file},nose,1,2,3,RAS\n")
    assert [own.case for own in read_landmarks(str(tmp_path / "predictions.csv"))] == ["a"]


def write_mixed(folder, places, with_volumes):
    """A CSV for each volume in the convention of its format, for half of them NIfTI, for the others NRRD or DICOM."""
    for number, (case, own) in enumerate(places.items()):
        convention, suffix = (("RAS", ".nii.gz"), ("LPS", ".nrrd"), ("LPS", ""))[number % 3]
        write(folder, {case: own}, f"csv {convention}")
        if with_volumes:
            write_volume(folder / f"{case}{suffix}", np.zeros((4, 5, 6), np.int16))


@pytest.mark.parametrize("form", ["mrk.json LPS", "fcsv RAS", None])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_files_next_to_volumes_of_two_conventions_are_each_in_their_volumes(capsys, tmp_path, form, is_swapped):
    write_mixed(tmp_path / "mixed", TRUTH, with_volumes=True)
    if form is None:
        write_mixed(tmp_path / "other", FOUND, with_volumes=False)
    else:
        write(tmp_path / "other", FOUND, form)
    sides = ["mixed", "other"][:: -1 if is_swapped else 1]
    said, _ = evaluate(capsys, *(tmp_path / side for side in sides))
    assert said["scores"]["mre_mm"] == pytest.approx(ERRORS.mean(), abs=1e-6)
    told = "files without a coordinate system are read in that of their volume's format, LPS or RAS"
    assert said["protocol"][0].endswith(f"; {told}")


def test_each_side_may_be_next_to_volumes_of_its_own(capsys, tmp_path):
    write_mixed(tmp_path / "truth", TRUTH, with_volumes=True)
    write(tmp_path / "found", FOUND, "csv LPS")
    for case in FOUND:
        write_volume(tmp_path / "found" / f"{case}.mha", np.zeros((4, 5, 6), np.int16))
    said, _ = evaluate(capsys, tmp_path / "truth", tmp_path / "found")
    assert said["scores"]["mre_mm"] == pytest.approx(ERRORS.mean(), abs=1e-6)


def test_a_system_for_all_files_is_told_where_volumes_have_the_other(tmp_path):
    write_mixed(tmp_path / "truth", TRUTH, with_volumes=True)
    write(tmp_path / "found", TRUTH, "fcsv LPS")
    truth = read_landmarks(str(tmp_path / "truth"))
    notices = score(str(tmp_path / "found"), truth, "t", coordinate_system="lps").notices
    assert any("-coordinate_system=lps decides for 2 files next to volumes of the other" in each for each in notices)
    assert any("in 2 of 6 volumes, such as case0, with x and y negated" in each for each in notices)
    assert not score(str(tmp_path / "found"), truth, "t").notices


@pytest.mark.parametrize("heading", ["case,landmark,x,y,z,world", "Case, LANDMARK,X_mm,Y_MM,z_mm,World"])
def test_tables_and_files_may_have_words_in_capitals(tmp_path, heading):
    (tmp_path / "all.csv").write_text(f"{heading}\na,nose,1,2,3,ras\n")
    (found,) = read_landmarks(str(tmp_path / "all.csv"))
    assert (found.case, list(found.positions), found.is_ras) == ("a", ["nose"], True)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "b.FCSV").write_text(format_fcsv([LandmarkPoint("chin", ("4", "5", "6"), "")], "ras"))
    (tmp_path / "files" / "b.CSV").write_text("name,x,y,z\nchin,7,8,9\n")
    (found,) = read_landmarks(str(tmp_path / "files"))
    assert found.source.endswith("b.FCSV") and list(found.positions) == ["chin"]
