"""From people's own CSVs and arrays to signal stores."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from fedaction.data.signals import stretches, tables
from fedaction.data.signals.imports import SignalOptions, import_signals, read_recordings
from fedaction.data.signals.store import SignalWriter, load_signals
from fedaction.data.signals.summary import inspect_signals
from fedaction.data.signals.tables import find_form
from fedaction.data.signals.times import even_out, find_unit
from fedaction.federation.seeds import numpy_generator
from tests.conftest import recordings
from tests.data.signals.made import phone_csv, readings

WINDOWS = SignalOptions(window_s=2.0, hop_s=1.0)


def test_a_csv_with_labels_and_times_becomes_unbroken_recordings(tmp_path: Path) -> None:
    phone_csv(tmp_path / "raw" / "anna.csv", [("walk", 10), ("run", 5), ("walk", 4.5)])
    phone_csv(tmp_path / "raw" / "ben.csv", [("stand", 6), ("run", 1.5)])
    summary = import_signals(
        tmp_path / "raw", tmp_path / "out", options=WINDOWS, subject=r"(\w+)\.csv", device="phone"
    )
    item = load_signals(tmp_path / "out")
    assert [len(own) for own in item.recordings] == [500, 250, 225, 300]
    assert [item.classes[label] for label in item.labels] == ["walk", "run", "walk", "stand"]
    assert item.subjects == ("anna", "anna", "anna", "ben")
    assert item.names == ("anna.csv", "anna.csv[2]", "anna.csv[3]", "ben.csv")
    assert (item.device, item.rate_hz, item.channels) == ("phone", 50.0, ("acc_x", "acc_y", "acc_z"))
    assert (item.window, item.hop) == (100, 50)
    assert summary.windows == 9 + 4 + 3 + 5 and summary.counts == {"short": 1}
    assert summary.classes == {"run": 4, "stand": 5, "walk": 12} and summary.subjects == {"anna": 16, "ben": 5}
    text = str(summary)
    assert "m/s², with gravity" in text and "time is in milliseconds: 50 readings a second" in text
    assert "'timestamp' was taken for the time" in text and "ben.csv: 1 stretches shorter than 2 s" in text
    expected = readings("walk", 10, "anna.csv", 0)
    np.testing.assert_allclose(item.recordings[0], expected, atol=1e-5)


def test_windows_never_cross_a_gap_nor_a_person(tmp_path: Path) -> None:
    text = phone_csv(tmp_path / "one.csv", [("walk", 10)], person="a").read_text().splitlines()
    rows = [text[0], *text[1:201], *text[251:401], *(line[:-1] + "b" for line in text[401:])]
    (tmp_path / "one.csv").write_text("\n".join(rows))
    summary = import_signals(tmp_path / "one.csv", tmp_path / "out", options=WINDOWS)
    item = load_signals(tmp_path / "out")
    assert [len(own) for own in item.recordings] == [200, 150, 100] and item.subjects == ("a", "a", "b")
    assert summary.counts == {"gap": 1}


@pytest.mark.parametrize(
    ("start", "unit", "words"),
    [
        (0.0, 1.0, "seconds"),
        (1.7e9, 1.0, "seconds"),
        (0.0, 1e3, "milliseconds"),
        (1.7e12, 1e3, "milliseconds"),
        (1.7e15, 1e6, "microseconds"),
        (8.2e13, 1e9, "nanoseconds"),  # since a phone was switched on: as microseconds it would be a date
        (1.7e18, 1e9, "nanoseconds"),
    ],
)
def test_units_of_time_are_recognised(tmp_path: Path, start: float, unit: float, words: str) -> None:
    phone_csv(tmp_path / "one.csv", [("walk", 4)], start=start, unit=unit)
    summary = import_signals(tmp_path / "one.csv", tmp_path / "out")
    assert f"time is in {words}: 50 readings" in str(summary) and summary.rate_hz == 50.0


def test_a_file_with_another_unit_of_time_is_refused(tmp_path: Path) -> None:
    phone_csv(tmp_path / "raw" / "a.csv", [("walk", 4)], start=0, unit=1.0)
    phone_csv(tmp_path / "raw" / "b.csv", [("walk", 4)], start=0, unit=1e3)
    summary = import_signals(tmp_path / "raw", tmp_path / "out")
    assert summary.recordings == 1 and summary.counts == {"unreadable": 1}
    assert "b.csv: it has 0.05 readings a second, too far from 50" in str(summary)


def test_dates_are_read_as_times(tmp_path: Path) -> None:
    begin = datetime(2024, 5, 1, 10, tzinfo=UTC)
    for name, form in (("zone.csv", "%Y-%m-%dT%H:%M:%S.%fZ"), ("plain.csv", "%Y-%m-%d %H:%M:%S.%f")):
        stamps = [(begin + timedelta(seconds=i / 25)).strftime(form) for i in range(100)]
        rows = [f"{stamp},{i},{i % 7},1.5,walk" for i, stamp in enumerate(stamps)]
        (tmp_path / name).write_text("\n".join(["time,gyro x,gyro y,gyro z,label", *rows]))
        out = tmp_path / f"out-{name}"
        summary = import_signals(tmp_path / name, out, options=SignalOptions(columns=("gyro x", "gyro y")))
        assert summary.rate_hz == 25.0 and "time is in dates" in str(summary) and "not judged" in summary.units
        assert load_signals(out).recordings[0].shape == (100, 2)


def test_another_rate_is_brought_to_the_one_asked_for(tmp_path: Path) -> None:
    phone_csv(tmp_path / "raw" / "fast.csv", [("walk", 8)], rate=200)
    phone_csv(tmp_path / "raw" / "slow.csv", [("walk", 8)], rate=25)
    summary = import_signals(tmp_path / "raw", tmp_path / "out", options=SignalOptions(rate_hz=50))
    fast, slow = load_signals(tmp_path / "out").recordings
    assert summary.rate_hz == 50 and "200 readings a second, brought to 50" in str(summary)
    assert abs(len(fast) - 400) <= 1 and abs(len(slow) - 400) <= 2
    t = np.arange(len(fast)) / 50
    assert abs(np.fft.rfftfreq(len(t), 1 / 50)[np.abs(np.fft.rfft(fast[:, 0])).argmax()] - 1.7) < 0.2


def test_what_is_too_fast_for_a_lower_rate_does_not_come_back_as_slow() -> None:
    t = np.arange(2000) / 200
    values = np.stack([np.sin(2 * np.pi * 1 * t), np.sin(2 * np.pi * 49 * t)], axis=1)  # 49 Hz would be 1 Hz at 50
    slow = even_out(t, values, 50.0)
    assert slow[:, 0].std() > 0.6 and slow[:, 1].std() < 0.15


def test_jittering_times_become_even_ones() -> None:
    random = np.random.default_rng(0)
    t = np.arange(500) / 50 + random.uniform(-0.008, 0.008, 500)
    even = even_out(t, np.sin(2 * np.pi * t)[:, None], 50.0)[:, 0]
    at = t[0] + np.arange(len(even)) / 50
    assert np.abs(even - np.sin(2 * np.pi * at)).max() < 0.02


@pytest.mark.parametrize("delimiter", [",", ";", "\t", " "])
@pytest.mark.parametrize("header", [True, False])
def test_delimiters_and_headers_are_recognised(tmp_path: Path, delimiter: str, header: bool) -> None:
    values = readings("run", 3)
    lines = [delimiter.join([*(f"{v:.4f}" for v in row), "run"]) for row in values]
    head = [delimiter.join(["x", "y", "z", "activity"])] if header else []
    (tmp_path / "one.txt").write_text("\n".join(["# made up", *head, *lines]))
    options = SignalOptions(label="" if header else "4", rate_hz=50)
    summary = import_signals(tmp_path / "one.txt", tmp_path / "out", options=options)
    assert summary.channels == (("x", "y", "z") if header else ("c1", "c2", "c3"))
    np.testing.assert_allclose(load_signals(tmp_path / "out").recordings[0], values, atol=1e-3)


def test_decimal_commas_and_row_numbers(tmp_path: Path) -> None:
    rows = [f"{i};{0.5 * i:.2f};1,5;sit".replace(".", ",") for i in range(60)]
    (tmp_path / "one.csv").write_text("\n".join(["sep=;", "nr;u;v;label", *rows]))
    summary = import_signals(tmp_path / "one.csv", tmp_path / "out", options=SignalOptions(rate_hz=10))
    assert summary.channels == ("u", "v") and "'nr' counts rows" in str(summary)
    assert load_signals(tmp_path / "out").recordings[0][3].tolist() == [1.5, 1.5]


def test_folders_per_class_of_tables_and_arrays(tmp_path: Path) -> None:
    for activity in ("walk", "run"):
        folder = tmp_path / "raw" / activity
        folder.mkdir(parents=True)
        np.save(folder / "p1_a.npy", readings(activity, 4))
        np.savetxt(folder / "p2_a.txt", readings(activity, 3), fmt="%.4f")
    (tmp_path / "raw" / "README.txt").write_text("made up\n")
    np.save(tmp_path / "raw" / "walk" / "p3_a.npy", np.zeros((2, 2, 2)))
    (tmp_path / "raw" / "walk" / "p4_a.csv").write_text("1,2,3\n")
    (tmp_path / "raw" / "run" / "p5_a.csv").write_text("1 2 3\n4 nan 6\n" * 60)
    summary = import_signals(
        tmp_path / "raw", tmp_path / "out", options=SignalOptions(rate_hz=50, window_s=2), subject=r"(p\d)_"
    )
    assert summary.recordings == 5 and summary.subjects == {"p1": 6, "p2": 4, "p5": 1}
    assert summary.counts == {"nan_frames": 60, "one_frame": 1, "unreadable": 1}
    assert "1 files lie in no class folder" in str(summary)
    with pytest.raises(ValueError, match=r"(?s)nothing was imported.*p3_a.npy: float64 \(2, 2, 2\) is not numbers"):
        import_signals(tmp_path / "raw", tmp_path / "new", options=SignalOptions(rate_hz=50), strict=True)
    assert not (tmp_path / "new").exists()


def test_labels_in_a_table(tmp_path: Path) -> None:
    for name in ("r1", "r2", "r3"):
        np.savetxt(_folder(tmp_path / "raw") / f"{name}.csv", readings("walk", 3), delimiter=",", header="x,y,z")
    table = tmp_path / "raw" / "labels.csv"
    table.write_text("file,label,subject\nr1.csv,walk,anna\nr2,run,ben\nr9.csv,run,ben\nr3.csv,,ben\n")
    summary = import_signals(tmp_path / "raw", tmp_path / "out", options=SignalOptions(rate_hz=50), labels=table)
    assert summary.classes == {"run": 1, "walk": 1} and summary.subjects == {"anna": 1, "ben": 1}
    assert {issue.where: issue.detail for issue in summary.issues} == {
        "r9.csv": "is in the table, but not there",
        "r3.csv": "has no label in the table",
    }
    assert "1 files are not in labels.csv, or without a label there" in str(summary)
    table.write_text("file;what\nr1;walk\n")
    with pytest.raises(ValueError, match=r"needs the columns file and label.*; it has file, what"):
        import_signals(tmp_path / "raw", tmp_path / "out2", options=SignalOptions(rate_hz=50), labels=table)


def test_rows_without_a_person_are_left_out_and_a_read_me_does_no_harm(tmp_path: Path) -> None:
    path = phone_csv(tmp_path / "raw" / "one.csv", [("walk", 4)], person="a")
    rows = path.read_text().splitlines()
    path.write_text("\n".join([*rows[:101], *(row[:-1] for row in rows[101:])]))
    (tmp_path / "raw" / "A.txt").write_text("Recorded in May, by two people.\nAll of them walked, and rested.\n")
    summary = import_signals(tmp_path / "raw", tmp_path / "out")
    assert summary.recordings == 1 and summary.subjects == {"a": 1}
    assert summary.counts == {"label": 1, "unreadable": 1}
    assert "1 stretches name no person" in str(summary)


def test_labels_that_are_no_activity_are_left_out(tmp_path: Path) -> None:
    phone_csv(tmp_path / "one.csv", [("walk", 3), ("stand", 3), ("run", 3)])
    summary = import_signals(tmp_path / "one.csv", tmp_path / "out", options=SignalOptions(ignore=("stand",)))
    assert list(summary.classes) == ["run", "walk"]


@pytest.mark.parametrize(
    ("gravity", "words"), [(9.81, "m/s², with"), (1.0, "for g, with"), (981.0, "thousandths"), (0.0, "removed")]
)
def test_units_of_acceleration_are_said(tmp_path: Path, gravity: float, words: str) -> None:
    phone_csv(tmp_path / "one.csv", [("walk", 10), ("stand", 10)], gravity=gravity)
    assert words in import_signals(tmp_path / "one.csv", tmp_path / "out").units


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SignalOptions(label="what"), "has no label column 'what'.*it has timestamp, acc_x"),
        (SignalOptions(columns=("acc_w",)), "has no channel column 'acc_w'; did you mean 'acc_"),
        (SignalOptions(hop_s=1), "a hop needs a window"),
        (SignalOptions(window_s=1, hop_s=2), "leaves gaps"),
        (SignalOptions(window_s=100), "(?s)nothing was imported.*shorter than 100 s"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, options: SignalOptions, message: str) -> None:
    phone_csv(tmp_path / "one.csv", [("walk", 3)])
    with pytest.raises(ValueError, match=message):
        import_signals(tmp_path / "one.csv", tmp_path / "out", options=options)
    assert not (tmp_path / "out").exists()


def test_a_source_without_labels_or_rate_says_what_to_give(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "one.csv", readings("walk", 3), delimiter=",")
    with pytest.raises(ValueError, match=r"name the column that has the label \(--label\), or give a table"):
        import_signals(tmp_path / "one.csv", tmp_path / "out")
    np.save(_folder(tmp_path / "raw" / "walk") / "a.npy", readings("walk", 3))
    with pytest.raises(ValueError, match="needs --rate, since there is no time column"):
        import_signals(tmp_path / "raw", tmp_path / "out", options=WINDOWS)


def test_binary_and_endless_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedaction.data.text.MOST_LINE", 1000)
    folder = _folder(tmp_path / "raw" / "walk")
    (folder / "a.csv").write_bytes(b"\xff\xfe\x00\x01" * 50)
    (folder / "b.csv").write_text("1," * 2000)
    (folder / "c.csv").write_text("")
    np.savetxt(folder / "d.csv", readings("walk", 3), delimiter=",")
    (folder / "e.npy").write_bytes(b"no array")
    summary = import_signals(tmp_path / "raw", tmp_path / "out", options=SignalOptions(rate_hz=50))
    assert summary.recordings == 1 and summary.counts == {"unreadable": 4}
    where = {Path(issue.where).name: issue.detail for issue in summary.issues}
    assert (
        "is not text in UTF-8" in where["a.csv"] and "1000 characters" in where["b.csv"] and "empty" in where["c.csv"]
    )


def test_blocks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phone_csv(tmp_path / "one.csv", [("walk", 5), ("run", 5), ("walk", 5)])
    import_signals(tmp_path / "one.csv", tmp_path / "whole")
    monkeypatch.setattr(tables, "_BLOCK", 37)
    import_signals(tmp_path / "one.csv", tmp_path / "parts")
    whole, parts = load_signals(tmp_path / "whole"), load_signals(tmp_path / "parts")
    for a, b in zip(whole.recordings, parts.recordings, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    monkeypatch.setattr(stretches, "MOST_READINGS", 100)
    import_signals(tmp_path / "one.csv", tmp_path / "short")
    assert max(len(own) for own in load_signals(tmp_path / "short").recordings) < 140


def test_an_impossible_step_of_time_is_refused() -> None:
    with pytest.raises(ValueError, match="steps of 1e-08"):
        find_unit(np.arange(10) * 1e-8)
    with pytest.raises(ValueError, match="does not go on"):
        find_unit(np.zeros(5))


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    phone_csv(tmp_path / "one.csv", [("walk", 5)])
    out = tmp_path / "out"
    import_signals(tmp_path / "one.csv", out)
    assert inspect_signals(out).recordings == 1
    with pytest.raises(FileExistsError, match="exists already"):
        import_signals(tmp_path / "one.csv", out)
    header = json.loads((out / "signals.json").read_text())
    for change, message in (
        ({"version": 7}, "format version 7; this release reads version 1"),
        ({"labels": [3]}, "has label 3, but only 1 classes"),
        ({"lengths": [9]}, r"has shape \(250, 3\); signals.json says \(9, 3\)"),
        ({"window": 10}, "does not go with a hop of 0"),
        ({"extra": 1}, "not a valid signal store header"),
        ({"channels": ["a", "a", "b"]}, "names a channel twice"),
    ):
        (out / "signals.json").write_text(json.dumps(header | change))
        with pytest.raises(ValueError, match=message):
            load_signals(out)
    (out / "signals.json").write_text(json.dumps(header))
    values = np.load(out / "signals.npy")
    values[7, 1] = np.nan
    np.save(out / "signals.npy", values)
    with pytest.raises(ValueError, match="row 7 has a value that is not finite"):
        load_signals(out)
    with pytest.raises(FileNotFoundError, match="is not a signal store"):
        load_signals(tmp_path)
    with SignalWriter(tmp_path / "none") as writer, pytest.raises(ValueError, match="no usable recording"):
        writer.finish(channels=("a",), rate_hz=None)
    assert not (tmp_path / "none").exists()


def test_forms_of_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\ufeffTime,"a, b",c\n1,2,x\n2,3,y\n', encoding="utf-8")
    form = find_form(tmp_path / "a.csv")
    assert form.names == ("Time", "a, b", "c") and form.numeric == (True, True, False)
    (tmp_path / "b.csv").write_text("a,a\n1,2\n")
    with pytest.raises(ValueError, match="1 of them different"):
        find_form(tmp_path / "b.csv")


def test_a_file_is_read_as_its_import_was(tmp_path: Path) -> None:
    path = phone_csv(tmp_path / "one.csv", [("walk", 5), ("run", 5)], rate=100)
    (own,) = read_recordings(path, ("acc_z", "acc_x"), 50.0)  # labels do not cut it
    import_signals(path, tmp_path / "out", options=SignalOptions(rate_hz=50, columns=("acc_z", "acc_x")))
    whole = load_signals(tmp_path / "out").recordings[0]
    assert own.shape[1] == 2 and len(own) >= 499
    np.testing.assert_allclose(own[:200], whole[:200], atol=1e-5)
    np.save(tmp_path / "two.npy", readings("run", 3))
    assert read_recordings(tmp_path / "two.npy", ("c1", "c2", "c3"), 50.0)[0].shape == (150, 3)
    with pytest.raises(ValueError, match="has 3 channels, where c1 are wanted"):
        read_recordings(tmp_path / "two.npy", ("c1",), 50.0)
    with pytest.raises(ValueError, match="has no channel column 'gyr_x'"):
        read_recordings(path, ("gyr_x",), 50.0)


def test_damaged_tables_never_raise_anything_else(tmp_path: Path) -> None:
    whole = phone_csv(tmp_path / "raw" / "one.csv", [("walk", 1.5), ("run", 1)], person="a").read_bytes()
    pieces = (b"nan", b"1e400", b'"', b"\n", b",", b"9" * 30, b"-", b"\x00", b"\xff", b";")
    imported = 0
    for number in range(150):
        random = numpy_generator(number, "damage")
        data = bytearray(whole.replace(b",", b";") if number % 3 == 0 else whole)
        for _ in range(int(random.integers(1, 6))):
            at = int(random.integers(len(data)))
            if random.random() < 0.5:
                del data[at : at + int(random.integers(100))]
            else:
                data[at:at] = pieces[int(random.integers(len(pieces)))]
        (tmp_path / "raw" / "one.csv").write_bytes(bytes(data))
        try:
            import_signals(tmp_path / "raw", tmp_path / "out", overwrite=True)
            imported += 1
        except ValueError as error:
            assert "one.csv" in str(error) or "raw" in str(error)
    assert imported > 20


def test_real_wrist_recordings_as_they_lie_there(tmp_path: Path) -> None:
    source = recordings("hmp_wrist_adl")
    options = SignalOptions(rate_hz=32, window_s=4, hop_s=2)
    summary = import_signals(source, tmp_path / "out", options=options, subject=r"-([fm]\d+)\.txt", device="watch")
    assert summary.recordings == 838 and len(summary.classes) == 14 and len(summary.subjects) == 16
    assert summary.counts == {"short": 1} and summary.windows == 5721
    assert "not known: at rest the magnitude" in summary.units  # coded from 0 to 63


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
