"""`fedaction bench scale`, at sizes of four and eight."""

import json

import pytest
from typer.testing import CliRunner

from fedaction.bench import scale
from fedaction.cli.bench import bench_app


@pytest.fixture(scope="module")
def result():
    """In this process: starting others takes longer than all that they do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scale, "_measure_apart", scale.measure)
        return scale.bench_scale([4, 8], [4], [3])


@pytest.mark.slow
def test_a_process_of_its_own_measures_the_same_run(result):
    (apart,) = scale.bench_scale([4], [], [])["clients"]["points"]
    here = result["clients"]["points"][0]
    assert apart.keys() == here.keys() and apart["memory"] < 4e9
    assert all(apart[key] == here[key] for key in ("clients", "width", "rounds", "parameters", "checkpoint"))


def test_every_point_is_a_run_of_its_own(result):
    few, many = result["clients"]["points"]
    assert (few["clients"], many["clients"]) == (4, 8) and few["parameters"] == many["parameters"] > 0
    for point in (few, many, *result["rounds"]["points"]):
        assert 0 < point["round"] < point["whole"] and 0 < point["setup"] < point["whole"]
        assert 50e6 < point["memory"] < 20e9 and point["checkpoint"] > 4 * point["parameters"]
    assert result["rounds"]["points"][0]["rounds"] == 3
    slopes = result["clients"]["slopes"]
    assert slopes.keys() == scale.COSTS.keys() and 0 < slopes["checkpoint"] < 1.5
    assert result["parameters"]["slopes"]["round"] is None
    assert result["environment"]["packages"]["torch"] and result["at_once"] == 100 and len(result["date"]) == 10


def test_a_slope_is_an_exponent():
    assert scale.slope_of([(x, 3 * x**2) for x in (1, 10, 1000)]) == pytest.approx(2)
    assert scale.slope_of([(5, 1.0), (5, 2.0)]) is None and scale.slope_of([]) is None


def test_numbers_and_pictures_are_written(result, tmp_path):
    paths = scale.write_scale(result, tmp_path / "new")
    assert [path.name for path in paths] == ["scale.json", "scale-clients.svg"]
    assert json.loads(paths[0].read_text()) == result
    picture = paths[1].read_text()
    assert "simulated clients" in picture and "slope" in picture and result["date"] in picture
    assert paths[1].read_bytes() == scale.draw_sweep(result, "clients")


def test_the_command_prints_slopes_and_refuses_what_is_no_list(result, tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "bench_scale", lambda *_: result)
    said = CliRunner().invoke(bench_app, ["scale", "--out", str(tmp_path / "out")], env={"COLUMNS": "200"})
    assert said.exit_code == 0, said.output
    assert "seconds of a round" in said.stdout and "slope" in said.stdout and "scale.json" in said.stdout
    assert json.loads(CliRunner().invoke(bench_app, ["scale", "--json"]).stdout) == result
    wrong = CliRunner().invoke(bench_app, ["scale", "--clients", "ten"])
    assert (
        wrong.exit_code == 2
        and "--clients takes whole numbers above 0 with commas between, such as 2,4; got 'ten'" in wrong.stderr
    )


def test_a_run_that_fails_is_said(monkeypatch):
    monkeypatch.setattr(scale.sys, "executable", "false")
    with pytest.raises(ValueError, match=r"a run of Point\(clients=4"):
        scale.bench_scale([4], [], [])
