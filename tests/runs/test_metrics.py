"""The metrics table: what is written is what is read, and it can be cut back to a checkpoint."""

import hashlib
import json
import math

import pytest

from fedaction.runs.metrics import MetricsFile, Row, read_rows

ROWS = [
    Row(1, "client-0", "skeleton", "train", "loss", 0.1 + 0.2),
    Row(1, "client|é/0 \u2028", "skeleton", "test", "accuracy", 1 / 3),
    Row(1, "", "", "server", "bytes_up", 2**40 + 1),
    Row(1, "client-0", "skeleton", "server", "refused", None),
]


def test_rows_come_back_exactly(tmp_path):
    table = MetricsFile(tmp_path / "metrics.jsonl")
    length = table.append(ROWS)
    table.close()
    assert length == (tmp_path / "metrics.jsonl").stat().st_size
    found = read_rows(tmp_path / "metrics.jsonl")
    assert found == ROWS
    assert isinstance(found[2].value, int)


def test_rows_are_on_disk_when_append_returns(tmp_path):
    table = MetricsFile(tmp_path / "metrics.jsonl")
    table.append(ROWS)
    assert read_rows(tmp_path / "metrics.jsonl") == ROWS  # while it is still open
    table.close()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_become_null(tmp_path, value):
    table = MetricsFile(tmp_path / "metrics.jsonl")
    table.append([Row(2, "a", "g", "train", "loss", value)])
    table.close()
    line = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["value"] is None


def test_the_table_is_cut_back_and_goes_on(tmp_path):
    path = tmp_path / "metrics.jsonl"
    table = MetricsFile(path)
    length = table.append(ROWS[:2])
    whole = table.append(ROWS[2:])
    table.close()
    before = path.read_bytes()
    again = MetricsFile(path, length)
    assert read_rows(path) == ROWS[:2]
    assert again.sha256 == hashlib.sha256(before[:length]).hexdigest()
    assert again.append(ROWS[2:]) == whole
    assert again.sha256 == table.sha256 == hashlib.sha256(before).hexdigest()
    again.close()
    assert path.read_bytes() == before


def test_a_table_shorter_than_its_checkpoint_is_an_error_and_is_left_alone(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"{}\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl is shorter than the checkpoint says \(4 bytes\)"):
        MetricsFile(path, 4)
    assert path.read_bytes() == b"{}\n"


def test_a_torn_last_line_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    table = MetricsFile(path)
    table.append(ROWS)
    table.close()
    whole = path.read_bytes()
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for end in (start + 1, len(whole) - 5, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert read_rows(path) == ROWS[:-1]


@pytest.mark.parametrize("line", ["{", '{"round": 1}', "[]", '{"round":1,"extra":2}'])
def test_a_broken_line_inside_is_an_error_that_says_where(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    table = MetricsFile(path)
    table.append(ROWS[:1])
    table.close()
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"metrics\.jsonl: line 2: "):
        read_rows(path)
