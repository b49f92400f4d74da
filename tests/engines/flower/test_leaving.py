"""What a site's log says of what leaves it, against what leaves it."""

import re

import pytest

from fedaction.engines.flower.envelope import open_envelope
from fedaction.engines.flower.site import REPORTS
from fedaction.engines.messages import MOST_BYTES
from fedaction.evaluation.site import Question
from fedaction.federation.tree import tree_bytes
from tests.engines.flower.places import make_stores
from tests.engines.flower.test_contract import House


def amounts(said, start):
    """The bytes that lines which begin so speak of."""
    lines = [line for line in said if line.startswith(start)]
    return [int(word.replace(",", "")) for line in lines for word in re.findall(r"([\d,]+) bytes", line)]


@pytest.mark.parametrize("reports", [tuple(REPORTS), ("metrics",), ()])
def test_bytes_that_leave_are_said_before_the_first_round_and_are_those_that_do(tmp_path, reports):
    said = []
    house = House(make_stores(tmp_path), tmp_path / "sites", reports=reports, log=said.append)
    (update,) = house.train("gym")
    (job,) = [house.job("gym")]
    [*house.engine.evaluate([job])]
    [*house.engine.evaluate([job], Question(("confusion", "topology")))]
    sizes = [len(open_envelope(a, MOST_BYTES).parts[0]) for _, kind, _, a in house.post.seen if kind == "evaluate"]

    first = next(place for place, line in enumerate(said) if line.startswith("round "))
    assert said[first].startswith("round 1 of 3: training") and "round 1 of 3: trained" in said[first + 1]
    begun = next(place for place, line in enumerate(said) if line.startswith("fsar with 3 sites, 3 rounds"))
    said = said[begun:first]
    assert amounts(said, "leaves this site in each round")[0] == tree_bytes(update.tree)
    frozen = house.method.plan(house.method.clients["gym"]).frozen_bytes
    assert amounts(said, "comes here") == [frozen, tree_bytes(job.payload)]
    kept = house.sites[102]._run.store.read(1)
    assert amounts(said, "stays here") == [tree_bytes(kept)]
    assert ("numbers of training" in " ".join(said)) == ("training" in reports)
    after = [*amounts(said, "leaves it after each test"), *amounts(said, "leaves it after the last round")]
    if not reports:
        assert "that it was done" in said[-3] and max(sizes) < 250
    for size, told in zip(sizes, after, strict=False):
        assert 0.7 * size < told < 2 * size + 100, (size, told, said)


def test_the_time_left_is_said_once_it_is_known(tmp_path):
    said = []
    house = House(make_stores(tmp_path), tmp_path / "sites", log=said.append)
    job = house.job("gym")
    [*house.engine.train([job])]
    [*house.engine.train([house.job("gym", round=2)])]
    (line,) = [line for line in said if "round 2 of 3: trained" in line]
    assert re.search(r"about \d+ s left$", line)
