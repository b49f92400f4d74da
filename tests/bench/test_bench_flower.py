"""Benchmarks between real processes run, and say what they are for. Seconds are not asserted: machines are busy."""

import json

import pytest
from typer.testing import CliRunner

pytest.importorskip("flwr", reason="Flower is an extra: pip install 'fedaction[flower]'")

from fedaction.cli import app

pytestmark = pytest.mark.slow


def test_a_round_costs_less_than_that_of_a_plain_flower_app():
    done = CliRunner().invoke(app, ["bench", "flower", "--rounds", "2", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert {name: len(seconds) for name, seconds in result["rounds"].items()} == dict.fromkeys(
        ("plain", "fedaction", "asynchronous"), 3
    )
    assert 0 < result["fedaction"] / result["plain"] < 1  # in the same run, on the same machine
    assert result["ratio"] == pytest.approx(result["plain"] / result["fedaction"]) and result["tested"] > 0


def test_load_of_two_sites_is_counted_and_nothing_is_lost():
    done = CliRunner().invoke(app, ["bench", "load", "--real", "2", "--rounds", "1", "--json"])
    assert done.exit_code == 0, done.output
    (line,) = json.loads(done.stdout)
    assert (line["sites"], line["rayed"], line["lost"]) == (2, False, 0)
    counted = ("round", "memory", "busy", "bytes", "link_memory", "link_busy", "site_memory")
    assert all(line[name] > 0 for name in counted)


def test_load_that_is_simulated_is_counted_the_same():
    pytest.importorskip("ray", reason="Flower's simulation needs Ray: pip install 'flwr[simulation]'")
    done = CliRunner().invoke(app, ["bench", "load", "--real", "", "--simulated", "2", "--rounds", "1", "--json"])
    assert done.exit_code == 0, done.output
    (line,) = json.loads(done.stdout)
    assert (line["sites"], line["rayed"], line["lost"]) == (2, True, 0)
    assert line["link_memory"] is line["link_busy"] is line["site_memory"] is None  # there is no SuperLink
