"""Sources: what a recipe's data keys make of clients."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaction.data.client import ClientData
from fedaction.data.features import built_in, extract, from_public, save_features
from fedaction.data.layout import FLORENCE_15
from fedaction.data.preprocess import centre
from fedaction.data.public.cache import prepare_public
from fedaction.data.public.readers import READERS
from fedaction.data.sources import FeatureSource, PublicSource, StageFeatureSource, StageSource, StoreSource
from fedaction.data.store import clients_from_store
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.settings import RecipeError
from fedaction.runs.recipe import load_recipe, parse_recipe
from tests.conftest import recordings


def florence_like(root: Path) -> Path:
    """A folder with one dataset in it: random numbers in Florence 3D's format, three actions by ten people."""
    folder = root / "florence3d"
    folder.mkdir(parents=True)
    number = 0
    for action in (1, 4, 9):
        for person in range(1, 11):
            number += 1
            rows = numpy_generator(number, "florence").normal(size=(9 * 15, 3)) * 300 + (0, 0, 2500)
            np.savetxt(folder / f"a{action:02d}_s{person}_id{number}.txt", rows)
    return root


def assert_equal(one: list[ClientData], other: list[ClientData]) -> None:
    assert [client.info for client in one] == [client.info for client in other]
    for a, b in zip(one, other, strict=True):
        for side in ("train", "test"):
            first, second = getattr(a, side), getattr(b, side)
            assert torch.equal(first.x, second.x) and torch.equal(first.y, second.y)
            assert first.subjects == second.subjects


def test_public_datasets_become_one_client_each(tmp_path: Path) -> None:
    source = PublicSource(
        public_sets=("florence3d",),
        public_root=str(florence_like(tmp_path / "data")),
        public_cache=str(tmp_path / "cache"),
        frames=12,
    )
    (client,) = source.load(seed=0)
    assert client.info.id == "florence3d" and client.info.layout == FLORENCE_15
    assert client.info.classes == ("wave", "clap", "bow")  # those that it has samples of
    assert client.info.shape == (1, 12, 15, 3) and len(client.train) == len(client.test) == client.info.samples == 15
    assert set(client.train.subjects) == {f"s{n:02d}" for n in range(1, 6)}
    assert set(client.test.subjects) == {f"s{n:02d}" for n in range(6, 11)}
    assert_equal([client], source.load(seed=1))  # nothing is drawn


def test_the_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = florence_like(tmp_path / "data")
    cache = str(tmp_path / "cache")
    monkeypatch.delenv("FEDACTION_DATA", raising=False)
    source = PublicSource(public_sets=("florence3d",), public_cache=cache, frames=8)
    with pytest.raises(ValueError, match="florence3d in the recipe key public_root or in the environment variable"):
        source.load(0)
    monkeypatch.setenv("FEDACTION_DATA", str(root))
    from_environment = source.load(0)
    monkeypatch.setenv("FEDACTION_DATA", str(tmp_path / "elsewhere"))
    named = PublicSource(public_sets=("florence3d",), public_root=str(root), public_cache=cache, frames=8)
    assert_equal(from_environment, named.load(0))
    with pytest.raises(NotADirectoryError, match="elsewhere"):
        source.load(0)


def test_stores_of_public_datasets_give_the_same_clients(tmp_path: Path) -> None:
    root = florence_like(tmp_path / "data")
    public = PublicSource(
        public_sets=("florence3d",),
        public_root=str(root),
        public_cache=str(tmp_path / "cache"),
        frames=12,
        align=False,
    )
    made = prepare_public(READERS["florence3d"], root / "florence3d", cache=tmp_path / "cache")
    shutil.copytree(made, tmp_path / "stores" / "florence3d")
    store = StoreSource(
        store_paths=(str(tmp_path / "stores" / "florence3d"),), store_protocol="cross_subject", frames=12, align=False
    )
    assert_equal(public.load(0), store.load(5))
    aligned = store.model_copy(update={"align": True})
    assert_equal(aligned.load(0), clients_from_store(aligned.store_paths, protocol="cross_subject", frames=12))
    missing = StoreSource(store_paths=store.store_paths, store_protocol="cross_view")
    with pytest.raises(ValueError, match="no split called 'cross_view'; it has cross_subject"):
        missing.load(0)
    twice = store.model_copy(update={"store_paths": (*store.store_paths, *store.store_paths)})
    with pytest.raises(ValueError, match="more than one store is called 'florence3d'"):
        twice.load(0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "public_sets: Field required"),
        ({"public_sets": []}, "public_sets"),
        ({"public_sets": ["florence"]}, "no reader is called 'florence'; there are .*florence3d"),
        ({"public_sets": ["kard", "kard"]}, "'kard' is named twice"),
        ({"public_sets": ["kard"], "public_split": "random"}, "public_split"),
        ({"public_sets": ["kard"], "store_paths": ["a"]}, "store_paths"),
    ],
)
def test_what_a_recipe_may_not_say_of_public_datasets(values: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe({"method": "fedavg", "data": "public", **values})


def test_a_split_that_a_dataset_lacks_is_refused_before_it_is_read(tmp_path: Path) -> None:
    source = PublicSource(public_sets=("kard",), public_root=str(tmp_path), public_split="cross_view")
    with pytest.raises(ValueError, match="kard has no split cross_view; it has cross_subject"):
        source.load(0)


def test_align_is_a_key_of_every_source(tmp_path: Path) -> None:
    keys = {"stage_clients": 1, "stage_train": (3,), "stage_test": 2, "frames": 8}
    (turned,), (plain,) = StageSource(**keys).load(0), StageSource(**keys, align=False).load(0)  # type: ignore[arg-type]
    layout = plain.info.layout
    assert layout is not None and not torch.allclose(turned.train.x, plain.train.x, atol=0.01)
    assert torch.equal(centre(plain.train.x, layout), plain.train.x)
    assert torch.allclose(turned.train.x[..., 1], plain.train.x[..., 1], atol=1e-5)  # turned about the vertical
    across = (
        turned.train.x[..., layout.index("right_shoulder"), :] - turned.train.x[..., layout.index("left_shoulder"), :]
    )
    assert across[..., 2].abs().median() < 0.01
    root, cache = str(florence_like(tmp_path / "data")), str(tmp_path / "cache")
    both = [
        PublicSource(public_sets=("florence3d",), public_root=root, public_cache=cache, frames=8, align=align).load(
            0
        )[0]
        for align in (True, False)
    ]
    assert not torch.allclose(both[0].train.x, both[1].train.x, atol=0.1)


def test_the_recipe_for_real_recordings_on_its_smallest_datasets(tmp_path: Path) -> None:
    root = recordings("florence3d").parent
    recordings("msr_action3d")
    recipe = load_recipe("fsar/real", [f"public_root={root}", f"public_cache={tmp_path}"])
    assert isinstance(recipe.source, PublicSource) and len(recipe.source.public_sets) == 5
    source = recipe.source.model_copy(update={"public_sets": ("florence3d", "msr_action3d")})
    florence, msr = source.load(0)
    assert (len(florence.train), len(florence.test)) == (107, 108) and (len(msr.train), len(msr.test)) == (284, 273)
    assert not set(msr.train.subjects) & set(msr.test.subjects)
    assert florence.info.shape == (1, 50, 15, 3) and msr.info.shape == (1, 50, 20, 3)
    assert all(torch.isfinite(side.x).all() for client in (florence, msr) for side in (client.train, client.test))


def test_features_of_public_datasets_and_of_stores_give_the_same_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = florence_like(tmp_path / "data")
    monkeypatch.delenv("FEDACTION_DATA", raising=False)
    keys = {"test_share": 0.34, "frames": 12}
    public = FeatureSource(feature_paths=("public:florence3d",), feature_cache=str(tmp_path / "cache"), **keys)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"florence3d lies is not known.*feature_root or in the environment"):
        public.load(0)
    monkeypatch.setenv("FEDACTION_DATA", str(root))
    clients = public.load(0)
    assert [client.info.id for client in clients] == [f"skeleton-s{n:02d}" for n in range(1, 11)]
    info = clients[0].info
    assert info.group == "skeleton" and info.shape == (1024,) and info.layout is None and info.samples == 2
    recordings = from_public("florence3d", root / "florence3d", cache=tmp_path / "cache")
    save_features(extract(recordings, built_in("skeleton", frames=12)), tmp_path / "mine")
    assert_equal(clients, FeatureSource(feature_paths=(str(tmp_path / "mine"),), **keys).load(0))  # type: ignore[arg-type]
    assert any(
        not torch.equal(a.test.y, b.test.y) for a, b in zip(clients, public.load(1), strict=True)
    )  # the split is the seed's
    assert FeatureSource.per_seed and not PublicSource.per_seed


def test_two_modalities_of_real_people(tmp_path: Path) -> None:
    root = recordings("utd_mhad").parent
    source = FeatureSource(
        feature_paths=("public:utd_mhad", "public:utd_inertial"), feature_root=str(root), feature_cache=str(tmp_path)
    )
    clients = source.load(0)
    assert [client.info.id for client in clients] == [
        *(f"skeleton-s0{n}" for n in (1, 3, 5, 7)),
        *(f"inertial-s0{n}" for n in (2, 4, 6, 8)),
    ]
    assert {len(client.info.classes) for client in clients} == {27}
    assert sum(len(client.train) + len(client.test) for client in clients) == 431 + 430
    assert all(len(client.test) == 27 and len(set(client.test.y.tolist())) >= 26 for client in clients)
    strangers = source.model_copy(update={"feature_deal": "all", "hold_out": 2}).load(0)
    assert len(strangers) == 12 and {*strangers[0].test.subjects} == {"s07", "s08"} == {*strangers[-1].test.subjects}
    recipe = source.model_copy(update={"hold_out": 2}).load(0)  # fdarn/utd
    assert [client.info.id for client in recipe] == [
        *(f"skeleton-s0{n}" for n in (1, 3, 5)),
        *(f"inertial-s0{n}" for n in (2, 4, 6)),
    ]
    assert all({*client.test.subjects} == {"s07", "s08"} for client in recipe)


def test_a_staged_federation_of_modalities(tmp_path: Path) -> None:
    values = {"stage_clients": 1, "stage_train": 6, "stage_test": 3, "stage_actions": 3, "feature_width": 48}
    recipe = parse_recipe(
        {
            "method": "fedavg",
            "data": "stage_features",
            "stage_modalities": ["audio", "inertial"],
            "feature_cache": str(tmp_path),
            **values,
        }
    )
    assert isinstance(recipe.source, StageFeatureSource) and recipe.source.per_seed
    clients = recipe.source.load(5)
    assert [(c.info.id, c.info.group, c.info.shape, len(c.train), len(c.test)) for c in clients] == [
        ("audio-0", "audio", (48,), 6, 3),
        ("inertial-0", "inertial", (48,), 6, 3),
    ]
    assert_equal(clients, recipe.source.load(5))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": "features"}, "feature_paths: Field required"),
        ({"data": "features", "feature_paths": []}, "feature_paths"),
        (
            {"data": "features", "feature_paths": ["public:utd"]},
            "no reader is called 'utd'; there are .*utd_inertial",
        ),
        ({"data": "features", "feature_paths": ["a"], "feature_by": "person"}, "feature_by"),
        ({"data": "stage_features", "stage_modalities": ["smell"]}, "stage_modalities"),
        ({"data": "stage_features", "stage_layouts": ["kinect_v2"]}, "there is no key 'stage_layouts'"),
    ],
)
def test_what_a_recipe_may_not_say_of_features(values: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parse_recipe({"method": "fedavg", **values})
