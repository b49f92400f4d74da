"""Every method between sites: the simulated run, to the last bit. Without a network; `test_real.py` has one."""

import pytest

from fedaction.federation.progress import Quiet
from fedaction.methods import METHODS
from fedaction.runs.remote import Roll, carry_out, open_run
from fedaction.runs.single import SingleRun
from fedaction.runs.sites import check_real
from tests.engines.flower.places import (
    HousePost,
    make_feature_recipe,
    make_features,
    make_recipe,
    make_sites,
    make_stores,
    make_video_recipe,
    make_videos,
    simulated,
)
from tests.engines.flower.test_contract import compare

SKELETONS = ("fsar", "fedavg", "fedprox", "fedbn", "fedagm", "moon", "fedema", "local")
VECTORS = ("fdarn", "pfedme", "perfedavg", "lgfedavg", "fedrep", "metahar", "fedavg_within", "fedavg_pair")
VIDEOS = ("fedvssl", "fedu")
IN_REAL_TIME = ("edge", "fedbuff")  # which come to what their own sites' pace makes: test_live.py
POOLED = ("central", "centralvssl")


def test_there_is_no_other_method():
    assert {*SKELETONS, *VECTORS, *VIDEOS, *IN_REAL_TIME, *POOLED} == {*METHODS}


@pytest.mark.slow
@pytest.mark.parametrize("method", [*SKELETONS, *VECTORS, *VIDEOS])
def test_a_run_over_messages_is_the_simulated_run(method, tmp_path):
    if method in SKELETONS:
        paths = make_stores(tmp_path)
        recipe = make_recipe(paths, method, rounds=2)
    elif method in VECTORS:
        paths = make_features(tmp_path, (9, 9))  # most of them share the first layer
        network = {} if method == "fdarn" else {"backbone": "perceptron"}
        recipe = make_feature_recipe(paths, method, rounds=2, **network)
    else:
        paths = make_videos(tmp_path)
        recipe = make_video_recipe(paths, method)
    SingleRun(recipe, simulated(recipe), tmp_path / "simulated", Quiet()).execute()
    open_run(recipe, tmp_path / "real", Roll(count=len(paths)))
    carry_out(HousePost(make_sites(paths, tmp_path / "sites")), tmp_path / "real")
    if method == "local":  # where nothing is shared
        texts = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("simulated", "real")]
        assert texts[0] == texts[1] and "accuracy" in texts[0]
    else:
        compare(tmp_path / "simulated", tmp_path / "real")


@pytest.mark.parametrize("method", POOLED)
def test_what_needs_everybodys_samples_in_one_place_is_refused(method, tmp_path):
    paths = {"hall": tmp_path}
    recipe = make_recipe(paths, method) if method == "central" else make_video_recipe(paths, method)
    with pytest.raises(ValueError, match="in one place, which no site can agree to"):
        check_real(recipe)
