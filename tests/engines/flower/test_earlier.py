"""LOCAL tensors from one run to the next: a run that begins with those of an earlier one; how long they are kept."""

import os

import pytest
import torch
from typer.testing import CliRunner

from fedaction.cli import app
from fedaction.engines.flower.earlier import NEWEST, Keeping, find_last, list_runs, prune_runs
from fedaction.engines.flower.keep import LostError, SiteStore
from fedaction.runs.remote import Roll, carry_out, open_run
from tests.engines.flower.places import HousePost, make_recipe, make_sites, make_stores


def run(paths, folder, name, keeping=None, **keys):
    """A run over messages; its token, and what its sites said."""
    said = []
    open_run(make_recipe(paths, "fsar", **{"rounds": 1, **keys}), folder / name, Roll(count=len(paths)))
    carry_out(
        HousePost(make_sites(paths, folder / "sites", log=said.append, keeping=keeping or Keeping())), folder / name
    )
    return Roll.read(folder / name).run, said


def store(folder, site, token):
    return SiteStore(folder / "sites" / site / token, site)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_run_begins_with_a_sites_own_tensors_where_its_owner_asks(tmp_path):
    paths = make_stores(tmp_path)
    paths = {name: paths[name] for name in ("clinic", "gym")}
    still = {"lr": 1e-12}  # so that what a run begins with is what it ends with
    first, said = run(paths, tmp_path, "first")
    last = store(tmp_path, "gym", first).read(1)
    assert not any("begins with" in line for line in said)

    kept, said = run(paths, tmp_path, "kept", Keeping(start=NEWEST), **still)
    assert said.count(f"begins with this site's own tensors of run {first}") == 2
    tensors = {name for name, tensor in last.items() if tensor.is_floating_point() and "running" not in name}
    begun, new = store(tmp_path, "gym", kept).read_first(), store(tmp_path, "gym", kept).read(1)
    assert same(begun, last)
    assert all(torch.allclose(new[name], last[name], atol=1e-6) for name in tensors)

    anew, _ = run(paths, tmp_path, "anew", **still)
    other = store(tmp_path, "gym", anew).read(1)
    assert not all(torch.allclose(other[name], last[name], atol=1e-6) for name in tensors)
    # Another network has other tensors: the newest that suit would be taken, but there are none.
    _, said = run(paths, tmp_path, "other", Keeping(start=NEWEST), model_width=8)
    assert sum("begins with first values" in line and "other classes or shapes" in line for line in said) == 2
    assert len(list_runs(tmp_path / "sites" / "gym")) == 4


def test_tensors_of_old_runs_go_and_networks_stay(tmp_path):
    tokens = [f"{number:032x}" for number in range(1, 6)]
    for number, token in enumerate(tokens):
        kept = SiteStore(tmp_path / token, "gym")
        kept.write(1, {"w": torch.ones(1)})
        kept.write_last("it", {"w": torch.ones(1)})
        (tmp_path / token / "start-0123.safetensors").touch()
        for path in (tmp_path / token).glob("*.kept"):
            os.utime(path, (number, number))
    (tmp_path / tokens[0] / "model.safetensors").touch()
    (tmp_path / "flower").mkdir()
    assert list_runs(tmp_path) == tokens[::-1]
    assert prune_runs(tmp_path, 2, (tokens[0], NEWEST)) == [tokens[2], tokens[1]]  # never those that are spared
    assert list_runs(tmp_path) == [tokens[4], tokens[3], tokens[0]] and not (tmp_path / tokens[1]).exists()
    assert prune_runs(tmp_path, 0, (tokens[4],)) == [tokens[3], tokens[0]]
    assert [path.name for path in (tmp_path / tokens[0]).iterdir()] == ["model.safetensors"]
    assert (tmp_path / "flower").is_dir()
    assert find_last(tmp_path, tokens[4], "", "gym", "it")[0] == find_last(tmp_path, NEWEST, "", "gym", "it")[0]
    with pytest.raises(LostError, match="another method, other classes or shapes"):
        SiteStore(tmp_path / tokens[4], "gym").read_last("another")


def test_a_site_that_is_to_begin_with_a_run_that_it_has_not_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedaction.engines.flower.launch.check_flower", lambda: None)  # whether or not it is here
    monkeypatch.chdir(tmp_path)
    data = make_stores(tmp_path)["gym"]
    words = ["join", "127.0.0.1:1", "--data", str(data), "--name", "gym", "--insecure", "--keep-from", "a" * 32]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2 and "has no run yet; or say newest" in " ".join(result.stderr.split())
