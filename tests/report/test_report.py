"""The report of a run: what is read from its directory, and the page that is written."""

from __future__ import annotations

import base64
import json
import math
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fedaction.data.layout import KINECT_V2, OPENNI_15
from fedaction.report import collect, render, write_report
from fedaction.report import page as page_module

CLIENTS = ("kitchen", "gym")


def line(round_: int, name: str, value: float, split: str = "test", client: str = "kitchen") -> str:
    group = "skeleton" if client else ""
    row = {"round": round_, "client": client, "group": group, "split": split, "name": name, "value": value}
    return json.dumps(row)


def write_run(
    folder: Path,
    method: str = "fsar",
    seed: int = 0,
    accuracy: float = 0.5,
    rounds: int = 3,
    result: bool = True,
    clients: tuple[str, ...] = CLIENTS,
    step: float = 0.1,
    **recipe: Any,
) -> Path:
    """A run whose accuracy grows in equal steps to `accuracy` (first client), `step` above (second) and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    table = {"name": "small", "method": method, "seed": seed, "rounds": rounds, "data": "stage", **recipe}
    (folder / "recipe.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items()))
    (folder / "environment.json").write_text(json.dumps({"versions": {"torch": "2.8"}, "device": "cpu"}))
    lines: list[str] = []
    final = {client: accuracy + step * k for k, client in enumerate(clients)}
    for r in range(1, rounds + 1):
        for client, end in final.items():
            lines.append(line(r, "accuracy", end * r / rounds, "test", client))
            lines.append(line(r, "loss", 2.0 / r, "train", client))
            lines.append(line(r, "kd", 0.5 / r, "train", client))
        lines += [line(r, "bytes_up", 1000, "server", ""), line(r, "bytes_down", 2000 * r, "server", "")]
        lines += [line(r, "participants", 2, "server", ""), line(r, "refused", int(r == 2), "server", "")]
    lines.append(line(2, "refused", 1, "server", clients[-1]))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    if result:
        ended = {
            "run": str(folder),
            "name": "small",
            "method": method,
            "seed": seed,
            "metric": "accuracy",
            "mean": sum(final.values()) / len(final),
            "std": None,
            "clients": final,
            "rounds": rounds,
            "seconds": 12.5,
            "bytes_up": 1000 * rounds,
            "bytes_down": 6000,
            "configuration": "abc123",
            "engine": "sequential",
            "device": "cpu",
            "complete": True,
        }
        (folder / "result.json").write_text(json.dumps(ended))
    return folder


def evidence(client: str = "kitchen", frames: int = 4, samples: int = 1) -> dict[str, Any]:
    size = len(KINECT_V2)
    matrix = [[0.1 * (r - c) for c in range(size)] for r in range(size)]
    layout = KINECT_V2.to_dict()
    still = [[[0.01 * v + 0.123456, 1.5 - 0.02 * v, 3.0] for v in range(size)] for _ in range(frames)]
    sample = {
        "layout": layout,
        "frames": still,
        "rate_hz": 30,
        "label": "wave",
        "predicted": "clap",
        "confidence": 0.8,
    }
    graph = {"layout": layout, "A": matrix, "I": matrix, "U": matrix, "alpha": 1.0, "beta": 0.5, "gamma": 0.25}
    return {
        "confusion": {client: {"classes": ["wave", "clap"], "matrix": [[3, 1], [0, 4]]}},
        "topology": {client: graph},
        "samples": {client: [sample] * samples},
    }


class Elements(HTMLParser):
    """Start tags with their attributes, and the text of the data element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.blob = ""
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag == "script" and dict(attrs).get("id") == "data"

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.blob += data


def blob(text: str) -> dict[str, Any]:
    return json.loads(Elements(text).blob)


# What is collected


def test_one_run_is_read_whole(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "evidence.json").write_text(json.dumps(evidence()))
    data = collect(tmp_path)
    (method,) = data.methods
    assert (data.name, method.name, method.seeds, method.rounds, method.complete) == (
        "small",
        "fsar",
        ("0",),
        3,
        True,
    )
    assert data.clients == CLIENTS
    assert data.groups == {"kitchen": "skeleton", "gym": "skeleton"}
    assert method.accuracy.rounds == (1, 2, 3)
    assert method.accuracy.mean == pytest.approx((0.55 / 3, 1.1 / 3, 0.55))
    assert method.accuracy.std == (None, None, None)
    assert method.client_accuracy["gym"].last == pytest.approx(0.6)
    assert list(method.losses) == ["loss", "kd"]
    assert method.traffic is not None
    assert method.traffic.up.mean == (1000, 1000, 1000)
    assert method.traffic.total_down.mean == (2000, 6000, 12000)
    assert method.counts == {"refused": 1, "participants": 2}
    assert method.refused == {"gym": 1}
    assert data.synthetic
    assert data.topology["kitchen"].layout == KINECT_V2
    assert data.samples["kitchen"][0].predicted == "clap"
    assert data.confusions[0]["kitchen"].matrix == ((3, 1), (0, 4))


def test_seeds_are_averaged_and_their_spread_is_the_sample_deviation(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, accuracy=0.4)
    write_run(tmp_path / "seeds" / "1", seed=1, accuracy=0.5)
    write_run(tmp_path / "seeds" / "10", seed=10, accuracy=0.6)
    (method,) = collect(tmp_path).methods
    assert method.seeds == ("0", "1", "10")
    assert method.final.mean == pytest.approx(0.55)
    assert method.final.std == pytest.approx(0.1)  # of 0.45, 0.55, 0.65 with n - 1
    assert method.accuracy.mean[-1] == pytest.approx(0.55)
    assert method.accuracy.std[-1] == pytest.approx(0.1)
    assert method.client_final["kitchen"].std == pytest.approx(0.1)


def test_a_seed_that_stands_twice_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, accuracy=0.4)
    for seed, accuracy in ((0, 0.4), (1, 0.6)):
        write_run(tmp_path / "seeds" / str(seed), seed=seed, accuracy=accuracy)
    (method,) = collect(tmp_path).methods
    assert method.seeds == ("0", "1")
    assert method.final.mean == pytest.approx(0.55)


def test_a_top_result_over_all_seeds_is_not_taken_for_one_seeds_own(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, accuracy=0.4)
    write_run(tmp_path / "seeds" / "1", seed=1, accuracy=0.6)
    result = json.loads((tmp_path / "result.json").read_text())
    result |= {"mean": 0.55, "std": 0.14, "seeds": {"0": 0.45, "1": 0.65}, "clients": {"kitchen": 0.5, "gym": 0.6}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    (method,) = collect(tmp_path).methods
    assert method.final.mean == pytest.approx((0.45 + 0.65) / 2)
    assert method.final.std == pytest.approx(0.2 / math.sqrt(2))
    assert method.complete


def test_a_result_that_alone_kept_its_seeds_gives_their_spread(tmp_path: Path) -> None:
    write_run(tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(result | {"std": 0.02, "seeds": {"0": 0.53, "1": 0.57}}))
    assert collect(tmp_path).methods[0].final.std == 0.02


def test_a_run_without_test_accuracy_still_has_clients_and_a_summary(tmp_path: Path) -> None:
    write_run(tmp_path, result=False)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(text + "\n" for text in path.read_text().splitlines() if '"test"' not in text))
    data = collect(tmp_path)
    assert data.clients == CLIENTS
    expected = "FSAR has trained for 3 rounds over 2 clients; no test accuracy was measured."
    assert page_module.summary(data) == expected


def test_a_directory_of_seeds_alone_is_a_run(tmp_path: Path) -> None:
    for seed in (3, 4):
        write_run(tmp_path / "seeds" / str(seed), seed=seed)
    data = collect(tmp_path)
    assert data.methods[0].seeds == ("3", "4")
    assert data.environment["device"] == "cpu"


def test_baselines_come_in_the_recipes_order_with_the_seeds_of_every_place(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, baselines=["local", "fedavg"])
    write_run(tmp_path / "baselines" / "fedavg", "fedavg", 0, accuracy=0.2)
    write_run(tmp_path / "baselines" / "local", "local", 0, accuracy=0.1)
    write_run(tmp_path / "seeds" / "1", seed=1)
    write_run(tmp_path / "seeds" / "1" / "baselines" / "fedavg", "fedavg", 1, accuracy=0.4)
    methods = collect(tmp_path).methods
    assert [m.name for m in methods] == ["fsar", "local", "fedavg"]
    assert [m.seeds for m in methods] == [("0", "1"), ("0",), ("0", "1")]
    assert methods[2].final.mean == pytest.approx(0.35)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, result=False)
    before = collect(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(line(4, "accuracy", 0.9)[:-4])
    after = collect(tmp_path)
    assert after == before
    assert not after.methods[0].complete
    assert after.methods[0].final.mean == pytest.approx(0.55)  # the last measured, since there is no result


def test_a_broken_line_that_is_not_torn_is_an_error_with_its_number(tmp_path: Path) -> None:
    write_run(tmp_path)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:4], '{"round": "x"}', *lines[4:]]) + "\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 5: "):
        collect(tmp_path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "recipe.toml", "environment.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_run(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / name))):
        collect(tmp_path)


@pytest.mark.parametrize("name", ["recipe.toml", "environment.json", "result.json", "evidence.json"])
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    write_run(tmp_path)
    (tmp_path / name).write_text("{ not this")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / name))):
        collect(tmp_path)


def test_no_directory_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no such run directory"):
        collect(tmp_path / "nowhere")


def test_evidence_that_does_not_fit_its_layout_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path)
    wrong = evidence()
    wrong["topology"]["kitchen"]["layout"] = OPENNI_15.to_dict()
    (tmp_path / "evidence.json").write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match=r"evidence\.json: topology\.kitchen: .*A must be 15 x 15"):
        collect(tmp_path)


def test_a_baseline_that_has_not_started_is_left_out_and_said(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "baselines" / "moon").mkdir(parents=True)
    data = collect(tmp_path)
    assert len(data.methods) == 1
    assert len(data.notes) == 1
    assert "moon has not started" in data.notes[0]


def test_a_result_without_metrics_is_an_error(tmp_path: Path) -> None:
    write_run(tmp_path)
    (write_run(tmp_path / "baselines" / "moon", "moon") / "metrics.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match=r"moon/metrics\.jsonl"):
        collect(tmp_path)


def test_clients_evaluated_in_turn_keep_their_latest_value_in_the_mean(tmp_path: Path) -> None:
    write_run(tmp_path, result=False)
    rows = [(1, "kitchen", 0.2), (2, "gym", 0.4), (3, "kitchen", 0.6)]
    text = "\n".join(line(r, "accuracy", value, "test", client) for r, client, value in rows)
    (tmp_path / "metrics.jsonl").write_text(text + "\n")
    curve = collect(tmp_path).methods[0].accuracy
    assert curve.rounds == (2, 3)
    assert curve.mean == pytest.approx((0.3, 0.5))


# The page


def test_the_page_needs_nothing_but_itself(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "evidence.json").write_text(json.dumps(evidence()))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert not re.search(r"https?:|//cdn|@import|url\(|\bfetch\(|XMLHttpRequest|\bimport\(", text)
    loads = {"src", "srcset", "data", "action", "poster", "background"}
    for tag, attributes in Elements(text).tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}
        assert not loads & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    assert "default-src 'none'" in text
    assert "{{" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_every_section_has_its_data_in_the_blob(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path / "baselines" / "fedavg", "fedavg", accuracy=0.2)
    (tmp_path / "evidence.json").write_text(json.dumps(evidence()))
    data = blob(write_report(tmp_path).read_text(encoding="utf-8"))
    assert data["clients"] == list(CLIENTS)
    own, base = data["methods"]
    assert (own["name"], base["name"]) == ("FSAR", "FedAvg")
    assert own["accuracy"]["x"] == [1, 2, 3]
    assert own["accuracy"]["y"][-1] == 0.55
    assert own["finals"] == [[0.5, None], [0.6, None]]
    assert own["traffic"]["totalUp"]["y"] == [1000, 2000, 3000]
    assert data["confusions"][0]["clients"][0]["matrix"] == [[3, 1], [0, 4]]
    assert data["topology"][0]["weights"] == [1, 0.5, 0.25]
    sample = data["samples"][0]["items"][0]
    assert len(sample["xyz"]) == 4 * 25 * 3
    # Whole numbers, in one scale for all axes: z = 3 m is the largest, 2000.
    assert sample["xyz"][:3] == [round(0.123456 / 3 * 2000), 1000, 2000]
    assert dict(data["facts"])["Configuration"] == "abc123"
    assert data["synthetic"] is True


HOSTILE = "</script><script>alert(1)</script><!--{{script}}&\u2028"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    write_run(tmp_path, clients=("kitchen", HOSTILE))
    (tmp_path / "evidence.json").write_text(json.dumps(evidence(HOSTILE)))
    result = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").write_text(json.dumps(result | {"name": HOSTILE, "method": HOSTILE}))
    text = write_report(tmp_path).read_text(encoding="utf-8")
    plain = write_report(write_run(tmp_path / "plain")).read_text(encoding="utf-8")
    tags = [tag for tag, _ in Elements(text).tags]
    assert tags == [tag for tag, _ in Elements(plain).tags]
    assert tags.count("script") == 2
    data = blob(text)
    assert data["clients"][1] == HOSTILE
    assert data["methods"][0]["name"] == HOSTILE
    assert data["samples"][0]["client"] == HOSTILE


def write_analysis(folder: Path, name: str = "curves", place: int = 0, **changes: Any) -> None:
    (folder / "analyses").mkdir(exist_ok=True)
    table = {"columns": ["client", "value"], "rows": [["kitchen", "0.5"]]}
    record = {"name": name, "place": place, "round": 3, "title": f"About {name}", "caption": "Synthetic data."}
    record |= {"notes": ["How."], "table": table, "values": {"anything": [1, None]}, **changes}
    (folder / "analyses" / f"{name}.json").write_text(json.dumps(record))
    (folder / "analyses" / f"{name}.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'><!-- {name} --></svg>")


def test_analyses_come_in_their_order_with_pictures_that_need_nothing_else(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_analysis(tmp_path, "cka", 4)
    write_analysis(tmp_path, "landscape", 5)
    write_analysis(tmp_path, "topology", 2)
    (tmp_path / "analyses" / "cka.svg").unlink()
    text = write_report(tmp_path).read_text(encoding="utf-8")
    shown = blob(text)["analyses"]
    assert [item["name"] for item in shown] == ["topology", "cka", "landscape"]
    assert shown[0]["rows"] == [["kitchen", "0.5"]] and shown[0]["notes"] == ["How."]
    assert b"<!-- topology -->" in base64.b64decode(shown[0]["picture"])
    assert shown[1]["picture"] == ""
    # Pictures are images, which neither run scripts nor fetch; only such are let in.
    assert "img-src data:;" in text or 'img-src data:"' in text
    assert not re.search(r"https?:", text)
    assert "anything" not in text


def test_a_report_without_analyses_says_how_to_make_them(tmp_path: Path) -> None:
    write_run(tmp_path)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert blob(text)["analyses"] == []
    assert "`fedaction analyse DIR` makes them" in text


def test_a_hostile_analysis_stays_text(tmp_path: Path) -> None:
    plain = write_report(write_run(tmp_path / "plain")).read_text(encoding="utf-8")
    write_run(tmp_path)
    write_analysis(tmp_path, title=HOSTILE, caption=HOSTILE, notes=[HOSTILE])
    (tmp_path / "analyses" / "curves.svg").write_text(HOSTILE)
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert [tag for tag, _ in Elements(text).tags] == [tag for tag, _ in Elements(plain).tags]
    (item,) = blob(text)["analyses"]
    assert item["title"] == item["caption"] == item["notes"][0] == HOSTILE
    assert base64.b64decode(item["picture"]).decode() == HOSTILE


@pytest.mark.parametrize(
    "changes", [{"table": {"columns": ["a"], "rows": [["b", "c"]]}}, {"place": "first"}, {"title": None}]
)
def test_an_analysis_that_is_none_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    write_run(tmp_path)
    write_analysis(tmp_path, **changes)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "analyses" / "curves.json"))):
        collect(tmp_path)


def test_static_files_cannot_end_their_element() -> None:
    folder = Path(page_module.__file__).parent
    for path in folder.glob("*.js"):
        assert path.name in page_module.SCRIPTS
        assert "</script" not in path.read_text(encoding="utf-8").lower()
        # Names in the data must never be parsed as markup.
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text())
    assert "</style" not in (folder / "page.css").read_text(encoding="utf-8").lower()


def test_numbers_that_are_not_finite_leave_gaps_and_valid_json(tmp_path: Path) -> None:
    write_run(tmp_path, result=False)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(line(3, "loss", math.nan, "train") + "\n" + line(3, "loss", math.inf, "train", "gym") + "\n")
    text = render(collect(tmp_path))
    data = json.loads(Elements(text).blob, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["methods"][0]["losses"][0]["y"] == [2, 1, None]


def test_long_runs_are_thinned_and_keep_both_ends(tmp_path: Path) -> None:
    write_run(tmp_path, rounds=1500)
    curve = blob(render(collect(tmp_path)))["methods"][0]["accuracy"]
    assert len(curve["x"]) == len(curve["y"]) == 400
    assert (curve["x"][0], curve["x"][-1], curve["y"][-1]) == (1, 1500, 0.55)


def test_a_demo_sized_report_stays_small(tmp_path: Path) -> None:
    names = tuple(f"client-{k}" for k in range(5))
    write_run(tmp_path, rounds=20, clients=names)
    whole: dict[str, Any] = {"confusion": {}, "topology": {}, "samples": {}}
    for name in names:
        for key, value in evidence(name, frames=50, samples=8).items():
            whole[key] |= value
    (tmp_path / "evidence.json").write_text(json.dumps(whole))
    assert write_report(tmp_path).stat().st_size < 2_500_000


def test_the_summary_says_how_it_went(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path / "baselines" / "fedavg", "fedavg", accuracy=0.2)
    expected = "FSAR reached 55.0 % mean accuracy over 2 clients in 3 rounds; FedAvg 25.0 %."
    assert page_module.summary(collect(tmp_path)) == expected
    write_run(tmp_path / "seeds" / "1", seed=1, accuracy=0.6)
    assert "FSAR reached 60.0 ± 7.1 % mean accuracy" in page_module.summary(collect(tmp_path))
    assert "(mean of 2 seeds)" in page_module.summary(collect(tmp_path))


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, result=False)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("rounds = 3", "rounds = 20"))
    data = collect(tmp_path)
    expected = "FSAR stands at 55.0 % mean accuracy over 2 clients after 3 of 20 rounds."
    assert page_module.summary(data) == expected
    assert dict(blob(render(data))["facts"])["Rounds"] == "3 of 20, unfinished"


def test_real_data_carries_no_synthetic_note(tmp_path: Path) -> None:
    write_run(tmp_path, data="ntu60")
    assert blob(render(collect(tmp_path)))["synthetic"] is False


def test_the_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "run")
    out = tmp_path / "pages" / "mine.html"
    assert write_report(tmp_path / "run", out) == out
    before = out.read_text(encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path / "run", out)
    assert out.read_text(encoding="utf-8") == before
    assert [path.name for path in out.parent.iterdir()] == ["mine.html"]


def test_warnings_and_controls_are_on_the_page(tmp_path: Path) -> None:
    write_run(tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    result |= {"warnings": ["fsar is below."], "controls": {"ridge": {"mean": 0.75, "clients": {"gym": 0.7}}}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    data = blob(write_report(tmp_path).read_text(encoding="utf-8"))
    assert data["warnings"] == ["fsar is below."]
    assert data["controls"] == [{"name": "Ridge classifier", "final": 0.75, "finals": [None, 0.7]}]


def test_methods_are_on_the_page_at_equal_cost(tmp_path: Path) -> None:
    write_run(tmp_path, accuracy=0.6, rounds=4)
    write_run(tmp_path / "baselines" / "local", method="local", accuracy=0.4, rounds=2, local_epochs=3)
    unknown = blob(write_report(tmp_path).read_text(encoding="utf-8"))["equal"]
    assert [cost["words"] for cost in unknown] == ["rounds", "local epochs"]  # no clock says how long they trained
    split = {"train": 8, "test": 2, "people": 2, "held_out": ["p3"], "classes": {"wave": [8, 2]}}
    (tmp_path / "controls.json").write_text(json.dumps({"split": {"gym": split}}))
    (tmp_path / "evidence.json").write_text(json.dumps(evidence()))
    for home, seconds, ends in ((tmp_path, 10.0, 4), (tmp_path / "baselines" / "local", 8.0, 2)):
        lines = [{"round": r, "train": seconds, "evaluate": 99.0, "total": 99.0} for r in range(1, ends + 1)]
        (home / "clock.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    data = blob(write_report(tmp_path).read_text(encoding="utf-8"))
    rounds, epochs, time = data["equal"]
    # The first method grows to 0.65 on average over four rounds, the second to 0.45 over two.
    assert (rounds["budget"], rounds["means"]) == (2, pytest.approx([0.325, 0.45]))
    # An update that was refused was work all the same: nine visits of two clients.
    assert (epochs["budget"], epochs["means"]) == (4.5, pytest.approx([0.65, 0.225]))
    # Two rounds of the second take 16 s, the first has had one of its four by then; tests take no part in it.
    assert (time["budget"], time["means"]) == (16, pytest.approx([0.1625, 0.45]))
    assert [method["costs"]["time"] for method in data["methods"]] == [[10, 20, 30, 40], [8, 16]]
    assert [method["id"] for method in data["methods"]] == ["fsar", "local"]
    assert data["methods"][1]["costs"]["epochs"] == [3, 7.5]
    low, high = data["methods"][0]["intervals"][0]
    assert low < 0.6 < high and data["methods"][0]["intervals"][1] is None
    assert data["split"] == [{"client": "gym", **split, "classes": [["wave", 8, 2]]}]


def test_of_a_thousand_clients_the_page_shows_some_and_how_all_spread(tmp_path: Path) -> None:
    names = tuple(f"home-{k}" for k in range(1000))
    for place, method in ((tmp_path, "fsar"), (tmp_path / "baselines" / "local", "local")):
        write_run(place, method, accuracy=0.25, rounds=4, clients=names, step=0.0005)
        seen = evidence(names[0])
        merged = {kind: dict.fromkeys(names[:-1:9], own[names[0]]) for kind, own in seen.items()}
        (place / "evidence.json").write_text(json.dumps(merged))
    path = write_report(tmp_path)
    assert path.stat().st_size < 5_000_000
    data = blob(path.read_text(encoding="utf-8"))
    assert len(data["clients"]) == 48 and 0 < len(data["topology"]) < 48  # those of 111 clients that are shown
    assert (data["clients"][0], data["clients"][-1]) == ("home-0", "home-999")  # from the worst to the best
    assert data["many"]["count"] == 1000 and data["many"]["groups"] == [["skeleton", 1000, [0.49975, 0.49975]]]
    ends = {line["name"]: line["y"][-1] for line in data["many"]["spread"][1]}
    expected = {"best 5 %": 0.725, "upper quarter": 0.625, "median": 0.5, "lower quarter": 0.375, "worst 5 %": 0.275}
    assert ends == pytest.approx(expected, abs=0.0005)
    assert ["Clients", "1000"] in data["facts"]
