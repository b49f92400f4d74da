"""Extractors that users bring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedaction.data.features import Recording, find_extractor

CODE = """
import numpy as np

def mean(array, rate_hz):
    return np.concatenate([array.mean(axis=0), [rate_hz or 0.0]])

def uneven(array, rate_hz):
    return array[:, 0]

number = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_extractors.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_extractors"


def test_a_function_of_ones_own(own_module: str) -> None:
    given = [Recording(np.full((t, 3), t, np.float32), 50.0) for t in (4, 9)]
    own = find_extractor("inertial", f"{own_module}:mean")
    assert own(given).tolist() == [[4, 4, 4, 50], [9, 9, 9, 50]]
    assert len(own.describe()["parameters"]["file"]) == 64  # a change of the code is a change of the features
    with pytest.raises(ValueError, match=r"gave shape \(2, 4\).*expected \(2, 1024\)"):
        find_extractor("inertial", f"{own_module}:mean", width=1024)(given)
    with pytest.raises(ValueError, match="one vector of numbers for each recording, all of one width"):
        find_extractor("inertial", f"{own_module}:uneven")(given)
    with pytest.raises(ValueError, match="not finite"):
        own([Recording(np.full((2, 3), np.nan, np.float32))])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "cannot be found: No module named"),
        ("own_extractors:absent", "cannot be found: .*absent"),
        ("own_extractors:number", "is not a function"),
        ("net.pt", "may hold pickled objects"),
        ("net.PT2", "may hold pickled objects"),
        ("net.onnx", "there is no file"),
    ],
)
def test_what_is_not_an_extractor(own_module: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_extractor("inertial", name)


def test_built_in_ones_by_name() -> None:
    assert find_extractor("audio").name == find_extractor("audio", "kernels").name == "kernels"
    assert find_extractor("image", width=100).width == 100


def mean_over_time() -> bytes:
    """An ONNX network from (1, T, 6) to the means over T, written field by field."""

    def number(field: int, value: int) -> bytes:
        return bytes([field << 3, value])

    def part(field: int, content: bytes) -> bytes:
        return bytes([field << 3 | 2, len(content)]) + content

    def tensor(name: bytes, *sizes: bytes) -> bytes:
        shape = b"".join(part(1, size) for size in sizes)
        return part(1, name) + part(2, part(1, number(1, 1) + part(2, shape)))

    axes = part(1, b"axes") + number(8, 1) + bytes([20 << 3 & 0x7F | 0x80, 1, 7])
    keep = part(1, b"keepdims") + number(3, 0) + bytes([20 << 3 & 0x7F | 0x80, 1, 2])
    node = part(1, b"x") + part(2, b"y") + part(4, b"ReduceMean") + part(5, axes) + part(5, keep)
    one, time, six = number(1, 1), part(2, b"T"), number(1, 6)
    graph = part(1, node) + part(2, b"g") + part(11, tensor(b"x", one, time, six)) + part(12, tensor(b"y", one, six))
    return number(1, 8) + part(7, graph) + part(8, part(1, b"") + number(2, 13))


def test_a_network_as_an_onnx_file(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "net.onnx"
    path.write_bytes(mean_over_time())
    own = find_extractor("inertial", str(path))
    series = [np.random.default_rng(t).normal(size=(t, 6)).astype(np.float32) for t in (4, 9)]
    np.testing.assert_allclose(own([Recording(s) for s in series]), [s.mean(axis=0) for s in series], atol=1e-6)
    with pytest.raises(ValueError, match=r"refuses a recording of shape \(4, 5\)"):
        own([Recording(np.zeros((4, 5), np.float32))])
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="not a network that onnxruntime can read"):
        find_extractor("inertial", str(path))


def test_without_onnxruntime_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    (tmp_path / "net.onnx").write_bytes(mean_over_time())
    with pytest.raises(ValueError, match="pip install onnxruntime"):
        find_extractor("inertial", str(tmp_path / "net.onnx"))
