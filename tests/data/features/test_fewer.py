"""Few samples of each class, and classes that a modality never trains on."""

import numpy as np
import pytest

from fedaction.data.features.clients import clients_from_features
from fedaction.data.features.fewer import Fewer
from fedaction.federation.settings import RecipeError
from fedaction.runs.recipe import parse_recipe
from fedaction.stage.modalities import stage_features
from tests.data.features.test_feature_clients import SETS


def make_clients(fewer, seed=0):
    return clients_from_features(SETS, deal="all", hold_out=2, fewer=fewer, scale="none", seed=seed)


def test_few_samples_of_each_class_are_the_seeds_and_tests_stay():
    everything, few, same, other = (
        make_clients(Fewer(), 0),
        *(make_clients(Fewer(shots=1), seed) for seed in (0, 0, 1)),
    )
    moved = 0
    for whole, one, again, changed in zip(everything, few, same, other, strict=True):
        assert np.bincount(one.train.y, minlength=len(one.info.classes)).max() == 1
        assert {*one.train.y.tolist()} == {*whole.train.y.tolist()} and one.info.samples == len(one.train)
        assert one.train.x.equal(again.train.x) and one.test.x.equal(whole.test.x)
        rows = {tuple(row) for row in whole.train.x.tolist()}
        assert all(tuple(row) in rows for row in one.train.x.tolist())
        moved += not one.train.x.equal(changed.train.x)
    assert moved


def test_missing_classes_are_never_trained_on_and_alone_tested():
    clients = make_clients(Fewer(missing={"inertial": 1}))
    absent = {label for client in clients if client.info.group == "inertial" for label in client.test.y.tolist()}
    assert len(absent) == 1
    for client in clients:
        assert len(client.info.classes) == len(clients[0].info.classes)
        trained, tested = set(client.train.y.tolist()), set(client.test.y.tolist())
        if client.info.group == "inertial":
            assert tested == absent and not trained & absent
        else:
            assert absent <= trained and len(tested) > 1


def test_rare_classes_keep_so_many_samples_at_each_client_and_are_alone_tested():
    missing, rare, again, whole = (
        make_clients(fewer)
        for fewer in (Fewer(missing={"inertial": 1}), *[Fewer(missing={"inertial": 1}, rare=1)] * 2, Fewer())
    )
    for never, rarely, same, everything in zip(missing, rare, again, whole, strict=True):
        assert rarely.train.x.equal(same.train.x) and rarely.test.y.equal(never.test.y)
        if never.info.group != "inertial":
            assert rarely.train.x.equal(everything.train.x)
            continue
        (scarce,) = set(never.test.y.tolist())
        had, kept = (np.bincount(c.train.y, minlength=len(c.info.classes)) for c in (everything, rarely))
        assert kept[scarce] == 1 < had[scarce] and rarely.info.samples == len(rarely.train)
        assert [*np.delete(kept, scarce)] == [*np.delete(had, scarce)]


@pytest.mark.parametrize(("missing", "said"), [({"audio": 1}, "'audio'"), ({"inertial": 9}, "9 classes are to be")])
def test_what_cannot_be_missing_is_refused(missing, said):
    with pytest.raises(ValueError, match=said):
        make_clients(Fewer(missing=missing))


def test_recipe_keys_of_both_sources(tmp_path):
    values = {"stage_clients": 1, "stage_train": 12, "stage_test": 12, "stage_actions": 3, "feature_width": 48}
    keys = {"feature_shots": 2, "feature_missing": ["audio:1"], "feature_cache": str(tmp_path)}
    recipe = {
        **{"method": "fdarn", "data": "stage_features", "stage_modalities": ["audio", "inertial"]},
        **{"backbone": "perceptron", "classifier": "shared"},
    }
    audio, inertial = parse_recipe({**recipe, **values, **keys}).source.load(0)
    assert len(set(audio.test.y.tolist())) == 1 and len(audio.train) == 4 and len(inertial.train) == 6
    with pytest.raises(RecipeError, match='write it as "inertial:9"'):
        parse_recipe({**recipe, **values, "feature_missing": ["audio"]})
    (audio,) = parse_recipe(
        {**recipe, **values, **keys, "feature_rare": 1, "stage_modalities": ["audio"]}
    ).source.load(0)
    assert np.bincount(audio.train.y).tolist().count(1) == 1 and len(audio.train) == 5
    with pytest.raises(RecipeError, match="feature_rare is of the classes in feature_missing, which names none"):
        parse_recipe({**recipe, **values, "feature_rare": 1})
    with pytest.raises(ValueError, match="left with 1 training and 0 test samples"):
        stage_features(
            modalities=["audio"],
            clients=1,
            train=2,
            test=1,
            actions=3,
            fewer=Fewer(missing={"audio": 1}),
            cache=tmp_path,
        )
