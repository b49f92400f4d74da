"""Recipes: what is refused and how it is explain, overrides, and that a resolved recipe is the same recipe."""

import hashlib
import itertools
import json
import tomllib
from pathlib import Path

import pytest

from fedaction.data.sources import SOURCES, StageSource, StoreSource
from fedaction.federation.recipes import PACKAGED, find_recipe, list_recipes, packaged_recipes
from fedaction.federation.settings import RecipeError, to_toml
from fedaction.guard.settings import GuardSettings
from fedaction.methods import METHODS
from fedaction.runs.recipe import DEFAULTS, Recipe, RunSettings, all_keys, load_recipe, parse_recipe
from fedaction.training.distil_recipe import load_distil_recipe
from fedaction.training.evaluate_recipe import load_evaluate_recipe


def write(folder: Path, text: str, name: str = "demo.toml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**values: object) -> str:
    with pytest.raises(RecipeError) as caught:
        parse_recipe({"method": "fsar", **values}, "demo.toml")
    return str(caught.value)


# What is refused


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("ruonds", "rounds"),  # a key of every recipe
        ("stage_client", "stage_clients"),  # of the data
        ("lamda_kd", "lambda_kd"),  # of the method
        ("learning_rate", None),  # near nothing that would help: no guess that leads astray
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_named(key, nearest):
    message = refusal(**{key: 1})
    assert message.startswith("demo.toml: ") and repr(key) in message
    if nearest:
        assert f"did you mean {nearest!r}?" in message


def test_keys_of_a_method_that_is_not_run_are_unknown():
    assert "tau" in refusal(method="fedavg", tau=0.5)
    parse_recipe({"method": "fedavg", "baselines": ["fsar"], "tau": 0.5})


def test_keys_of_another_source_are_unknown():
    assert "store_paths" in refusal(store_paths=["a"])
    assert "stage_clients" in refusal(data="store", store_paths=["a"], stage_clients=3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rounds", 0),
        ("rounds", 2.5),
        ("rounds", "many"),
        ("lr", -0.1),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("quorum", 1.5),
        ("failure_rate", 1.0),
        ("seeds", []),
        ("seeds", 3),
        ("engine", "warp"),
        ("device", "tpu"),
        ("nesterov", "perhaps"),
        ("tau", 2.0),
        ("mkd_blocks", 4),
        ("buffers", "shared"),
        ("model_units", [1, 1]),
        ("frames", 3),
        ("stage_test", 0),
        ("name", "../elsewhere"),
        ("name", ""),
        ("ats_coefficients", "fixed"),
    ],
)
def test_a_wrong_value_is_explained_with_its_key_and_what_was_given(key, value):
    message = refusal(**{key: value})
    assert f"{key}" in message.split(": ")[1] and f"got {value!r}" in message


@pytest.mark.parametrize("value", ["fedavg", 3, True])
def test_baselines_must_be_a_list(value):
    message = refusal(baselines=value)
    assert f"baselines = {value!r}" in message and "list" in message


@pytest.mark.parametrize(
    ("key", "value"), [("method", ["fsar"]), ("method", 1), ("data", ["stage"]), ("baselines", [[]])]
)
def test_names_of_methods_and_data_must_be_strings(key, value):
    assert f"{key} = " in refusal(**{key: value})


def test_unknown_methods_and_data_are_refused_with_the_choices():
    message = refusal(method="fsra")
    assert "method = 'fsra'" in message and "did you mean 'fsar'?" in message and "fedavg" in message
    assert "baselines = 'fedavgg'" in refusal(baselines=["fedavgg"])
    assert "data = 'stag'" in refusal(data="stag")


def test_a_recipe_needs_a_method():
    with pytest.raises(RecipeError, match="'method' is missing; it may be one of fsar, fdarn, edge, fedvssl, fedavg"):
        parse_recipe({"rounds": 3})


def test_a_missing_key_of_the_data_is_named():
    message = refusal(data="store")
    assert "store_paths: Field required" in message and "got" not in message


def test_names_that_come_twice_are_refused():
    assert "named twice" in refusal(baselines=["fsar"])
    assert "named twice" in refusal(baselines=["fedavg", "fedavg"])
    assert "[4, 1, 4]" in refusal(seeds=[4, 1, 4])


def test_tables_are_refused(tmp_path):
    path = write(tmp_path, 'method = "fsar"\n[training]\nlr = 0.1\n')
    with pytest.raises(RecipeError, match="a recipe is flat, but 'training' is a table"):
        load_recipe(path)
    path = write(tmp_path, 'method = "fsar"\n[[stage]]\nclients = 1\n')
    with pytest.raises(RecipeError, match="stage"):
        load_recipe(path)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"there is no recipe .*absent.toml"):
        load_recipe(tmp_path / "absent.toml")
    with pytest.raises(RecipeError, match="is not a file"):
        load_recipe(tmp_path)
    with pytest.raises(RecipeError, match=r"not valid TOML.*line 2"):
        load_recipe(write(tmp_path, 'method = "fsar"\nrounds = = 3\n'))
    (tmp_path / "latin.toml").write_bytes(b'method = "\xe9"\n')
    with pytest.raises(RecipeError, match="is not text in UTF-8"):
        load_recipe(tmp_path / "latin.toml")


# Overrides


def test_overrides_are_toml_or_plain_text(tmp_path):
    path = write(tmp_path, 'method = "fsar"\nrounds = 3\nlr = 0.5\n')
    recipe = load_recipe(
        path,
        [
            "method=fedavg",  # a string without quotes
            'engine="vectorised"',  # and with
            "rounds = 7",
            "lr=1e-2",
            "nesterov=true",
            "seeds=[3, 1]",
            'stage_layouts=["kinect_v1","coco_17"]',
            "model_units=[1,2,1]",
            "rounds=8",  # the last one counts
        ],
    )
    run, source = recipe.run, recipe.source
    assert (run.method, run.engine, run.rounds, run.lr, run.nesterov, run.seeds) == (
        "fedavg",
        "vectorised",
        8,
        0.01,
        True,
        (3, 1),
    )
    assert isinstance(source, StageSource) and source.stage_layouts == ("kinect_v1", "coco_17")
    assert recipe.methods["fedavg"].model_dump()["model_units"] == (1, 2, 1)


def test_an_override_may_contain_an_equals_sign(tmp_path):
    path = write(tmp_path, 'method = "fsar"\ndata = "store"\nstore_paths = ["x"]\n')
    source = load_recipe(path, ['store_paths=["a=b"]']).source
    assert isinstance(source, StoreSource) and source.store_paths == ("a=b",)


@pytest.mark.parametrize("override", ["rounds", "=3", " = 3"])
def test_an_override_without_key_or_value_is_refused(tmp_path, override):
    with pytest.raises(RecipeError, match="--set takes key=value"):
        load_recipe(write(tmp_path, 'method = "fsar"'), [override])


def test_an_override_is_checked_like_the_file(tmp_path):
    path = write(tmp_path, 'method = "fsar"')
    with pytest.raises(RecipeError, match="did you mean 'rounds'"):
        load_recipe(path, ["round=3"])
    with pytest.raises(RecipeError, match="table"):
        load_recipe(path, ["stage={clients = 3}"])
    with pytest.raises(RecipeError, match=r"rounds.*got 'ten'"):
        load_recipe(path, ["rounds=ten"])


def test_keys_of_methods_that_overrides_put_aside_are_left_out_with_a_warning(tmp_path):
    path = write(tmp_path, 'method = "fsar"\nbaselines = ["fedprox"]\ntau = 0.5\nlambda_kd = 2.0\nprox_mu = 0.1\n')
    with pytest.warns(UserWarning, match=r"no method that is run reads it: tau, lambda_kd$") as caught:
        recipe = load_recipe(path, ["method=fedavg"])
    assert len(caught) == 1 and recipe == parse_recipe(
        {"name": recipe.run.name, "method": "fedavg", "baselines": ["fedprox"], "prox_mu": 0.1}
    )
    assert "lambda_kd" not in to_toml(recipe.flat())
    with pytest.warns(UserWarning, match=r"reads it: prox_mu$"):
        assert load_recipe(path, ["baselines=[]"]).flat()["tau"] == 0.5
    with (
        pytest.warns(UserWarning, match=r"reads it: lambda_kd, prox_mu$"),
        pytest.raises(RecipeError, match="no key 'tau'"),
    ):
        load_recipe(path, ["method=fedavg", "baselines=[]", "tau=0.1"])  # asked for here and now, and read by nobody


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ('method = "fedavg"\ntau = 0.5\n', []),  # nothing was changed: the file is wrong
        ('method = "fedavg"\ntau = 0.5\n', ["method=fedavg", "baselines=[]"]),
        ('method = "fedavg"\ntau = 0.5\n', ["rounds=3"]),
        ('method = "fsar"\ntaau = 0.5\n', ["method=fedavg"]),  # no method's
        ('method = "fsar"\nstore_paths = ["a"]\n', ["method=fedavg"]),  # of other data
    ],
)
@pytest.mark.filterwarnings("error")
def test_other_keys_that_nobody_reads_are_refused_as_ever(tmp_path, text, overrides):
    with pytest.raises(RecipeError, match=r"there is no key '(taau|tau|store_paths)'"):
        load_recipe(write(tmp_path, text), overrides)


# Names


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("recipes/demo.toml", "demo"),
        ("fsar/table2.toml", "fsar-table2"),
        ("my recipes/table 1.toml", "my-recipes-table-1"),
        (".hidden/_x.toml", "hidden-_x"),
    ],
)
def test_a_run_is_named_after_its_recipe(tmp_path, place, name):
    assert load_recipe(write(tmp_path, 'method = "fsar"', place)).run.name == name


def test_a_name_that_is_given_wins(tmp_path):
    assert load_recipe(write(tmp_path, 'method = "fsar"\nname = "mine"')).run.name == "mine"


# The resolved recipe


RICH = {
    "method": "fsar",
    "baselines": ["fedavg"],
    "seeds": [5, -2],
    "lr": 1e-05,
    "weight_decay": 1.5e-12,
    "augment_shear": 12345678.9,
    "deadline": 1e16,
    "nesterov": True,
    "ats_coefficients": [1.0, 0.0, 0.5],
    "stage_layouts": ["kinect_v2", "coco_17"],
    "model_units": [1, 2, 3],
    "tau": 1,
}


@pytest.mark.parametrize(
    "values",
    [
        {"method": "fsar"},
        {"method": "fedavg", "buffers": "average"},
        RICH,
        {
            "method": "fedavg",
            "data": "store",
            "store_paths": ['a "b" \\ c', "naïve/𝄞 \x7f\t\n"],
            "hold_out": ["p 1", "p2"],
        },
        {
            "method": "fedavg",
            "data": "store",
            "store_paths": ["a"],
            "hold_out": 0.25,
            "test_share": 0.5,
            "store_alpha": 1e-3,
        },
    ],
)
def test_a_resolved_recipe_is_the_same_recipe(tmp_path, values):
    recipe = parse_recipe({"name": "demo", **values})
    path = write(tmp_path, to_toml(recipe.flat()))
    again = load_recipe(path)
    assert again == recipe
    assert to_toml(again.flat()) == to_toml(recipe.flat())
    assert again.configuration() == recipe.configuration()


def test_a_resolved_recipe_has_every_key():
    recipe = parse_recipe({"method": "fsar", "baselines": ["fedavg"]})
    kinds = [RunSettings, GuardSettings, StageSource, *(METHODS[name].settings_type for name in ("fsar", "fedavg"))]
    assert tomllib.loads(to_toml(recipe.flat())).keys() == {key for kind in kinds for key in kind.model_fields}


def test_settings_that_share_a_key_share_its_default():
    """A flat recipe has one value per key, so two defaults could not both be in the resolved one.

    A recipe has one kind of data, so two of them may.
    """
    kinds = [RunSettings, GuardSettings, *SOURCES.values(), *(method.settings_type for method in METHODS.values())]
    for one, other in itertools.combinations(kinds, 2):
        if {one, other} <= set(SOURCES.values()):
            continue
        for key in one.model_fields.keys() & other.model_fields.keys():
            assert one.model_fields[key].default == other.model_fields[key].default, (one, other, key)


def test_a_part_of_a_study_has_one_method_and_one_seed():
    part = parse_recipe(RICH).only("fedavg", -2)
    assert (part.run.method, part.run.baselines, part.run.seeds) == ("fedavg", (), (-2,))
    assert list(part.methods) == ["fedavg"] and "tau" not in part.flat()
    assert part == parse_recipe(tomllib.loads(to_toml(part.flat())))


# The configuration hash


def configuration(**values: object) -> str:
    return parse_recipe({"method": "fsar", **values}).configuration()


@pytest.mark.parametrize(
    "values",
    [
        {"name": "other"},
        {"device": "cpu"},
        {"workers": 3},
        {"clients_per_step": 4},
        {"seeds": [7, 8]},
        {"baselines": ["fedavg"]},
        {"checkpoint_every": 5},
        {"keep_checkpoints": 9},
        {"report_samples": 0},
        {"lr": 0.1},  # the default, written out
    ],
)
def test_what_does_not_change_the_result_does_not_change_the_hash(values):
    assert configuration(**values) == configuration()


def test_what_changes_the_result_changes_the_hash():
    changed = [
        {"lr": 0.2},
        {"method": "fedavg"},
        {"rounds": 21},
        {"data_seed": 1},
        {"frames": 51},
        {"stage_clients": 6},
        {"tau": 0.9},
        {"model_width": 8},
        {"batch_size": 16},
        {"failure_rate": 0.1},
        {"engine": "vectorised"},  # another order of additions, so other last bits
    ]
    hashes = [configuration(**values) for values in changed]
    assert len({configuration(), *hashes}) == 1 + len(changed)


# The recipes that come with the project


@pytest.mark.parametrize("name", packaged_recipes())
def test_every_recipe_of_the_project_parses_and_says_what_it_is(name):
    path = packaged_recipes()[name]
    if path.stem == "distil":
        assert load_distil_recipe(path, [])
    elif path.stem == "evaluate":
        assert load_evaluate_recipe(path)
    else:
        assert isinstance(load_recipe(path), Recipe)
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ") and len(first) > 10


def test_the_project_has_recipes():
    names = set(packaged_recipes())
    assert {"fsar/demo", "fsar/own", "fdarn/utd", "edge/distil", "fedvssl/evaluate"} <= names
    assert [listed.name for listed in list_recipes(Path("nowhere"))] == sorted(names)


@pytest.mark.parametrize("name", ["fsar/demo", "fsar/demo.toml", "recipes/fsar/demo.toml", Path("fsar") / "demo"])
def test_a_recipe_of_the_package_is_found_by_name_from_any_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(name, ["rounds=3"])
    assert (recipe.run.name, recipe.run.rounds, len(recipe.flat()["stage_layouts"])) == ("fsar-demo", 3, 5)


def test_a_file_wins_over_a_name_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fsar" / "demo").mkdir(parents=True)
    assert find_recipe("fsar/demo") == PACKAGED / "fsar" / "demo.toml"
    write(tmp_path, 'method = "fedavg"', "recipes/fsar/demo.toml")
    assert load_recipe("recipes/fsar/demo.toml").run.method == "fedavg"
    assert load_recipe("fsar/demo.toml").run.method == "fsar"


@pytest.mark.parametrize(
    ("name", "near"),
    [("demo", "fsar/demo"), ("fsra/demo", "fsar/demo"), ("fdarn/stag.toml", "fdarn/stage"), ("mine.toml", "")],
)
def test_a_recipe_that_is_not_there_has_its_neighbours_named(tmp_path, monkeypatch, name, near):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=f"there is no recipe {name}") as error:
        load_recipe(name)
    assert (f"did you mean {near}" in str(error.value)) if near else ("did you mean" not in str(error.value))
    assert "`fedaction recipes` lists" in str(error.value)


def test_yes_and_no_are_not_numbers():
    with pytest.raises(RecipeError, match=r"rounds is not a yes-or-no key \(got true\)"):
        parse_recipe({"method": "fsar", "rounds": True})
    with pytest.raises(RecipeError, match=r"seeds is no list of yes-or-no values \(got true\)"):
        parse_recipe({"method": "fedavg", "seeds": [True]})


def test_a_default_written_out_is_no_other_configuration():
    assert configuration(lr=0.1, tau=0.8, frames=50, model_units=[4, 3, 3]) == configuration()


def test_keys_with_a_new_name_leave_published_hashes_as_they_were():
    features = {"method": "fdarn", "data": "features", "feature_paths": ["a"], "hold_out": 2, "test_share": 0.5}
    assert configuration_of(features) == "beec792cec85"  # with feature_holdout and feature_test
    assert configuration_of({**STORE, "test_share": 0.5}) == "99d2849a3028"  # with store_test
    assert configuration_of({**STORE, "hold_out": 1}) != configuration_of(STORE)


STORE = {"method": "fedavg", "data": "store", "store_paths": ["a"]}


def configuration_of(values):
    return parse_recipe(values).configuration()


def test_whoever_changes_a_default_raises_the_number():
    """If this fails because a key was added, change the digest; if a default changed, raise recipe.DEFAULTS too.

    Where the default is another one of values that are alike (`engine`), hashes stay: change the digest alone.
    """
    defaults = {
        reader: {key: field.default for key, field in fields.items() if not field.is_required()}
        for reader, fields in all_keys().items()
    }
    digest = hashlib.blake2b(json.dumps(defaults, sort_keys=True).encode(), digest_size=6).hexdigest()
    assert (DEFAULTS, digest) == (2, "8c693c192e79")
