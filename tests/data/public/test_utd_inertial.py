"""UTD-MHAD's inertial files, and what features of its two modalities are worth to a linear classifier."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedaction.data.features import built_in, extract, from_public
from fedaction.data.features.clients import standardise
from fedaction.data.public.utd_inertial import READER
from fedaction.data.public.utd_mhad import READER as SKELETONS
from tests.conftest import recordings
from tests.data.public.formats import write_mat


def test_the_same_trials_as_the_skeletons() -> None:
    root = recordings("utd_mhad")
    here, there = READER.find(root), SKELETONS.find(root)
    assert here.classes == there.classes and not here.issues
    assert [source.samples for source in here.sources] == [source.samples for source in there.sources]
    assert {source.path.parent.name for source in here.sources} == {"Inertial"}


def test_units_and_shape() -> None:
    root = recordings("utd_mhad")
    sources = READER.find(root).sources
    found = [READER.read(source.path) for source in sources[::20]]
    assert all(item.ndim == 2 and item.shape[1] == 6 and item.dtype == np.float32 for item in found)
    size = [np.linalg.norm(item[:, :3], axis=1).mean() for item in found]
    assert 0.9 < np.median(size) < 1.3  # g
    assert 30 < np.median([np.abs(item[:, 3:]).max() for item in found]) < 2000  # degrees a second


def test_faulty_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none of the expected files: Inertial/a<action>_s<person>_t<trial>"):
        READER.find(tmp_path)
    path = write_mat(tmp_path / "a1_s1_t1_inertial.mat", "d_iner", np.zeros((9, 5)))
    with pytest.raises(ValueError, match=r"d_iner has shape \(9, 5\); expected \(samples, 6\)"):
        READER.read(path)
    write_mat(path, "d_skel", np.zeros((9, 6)))
    with pytest.raises(ValueError, match="no array of numbers called 'd_iner'"):
        READER.read(path)
    values = np.arange(54.0).reshape(9, 6)
    assert np.array_equal(READER.read(write_mat(path, "d_iner", values)), values)


@pytest.mark.parametrize(("name", "least"), [("utd_mhad", 0.85), ("utd_inertial", 0.84)])
def test_a_linear_classifier_on_features_of_unseen_people(name: str, least: float, tmp_path: Path) -> None:
    """Ridge on joints and signals that are only resampled reaches 0.81 and 0.68: features must do better."""
    found = from_public(name, recordings("utd_mhad"), cache=tmp_path)
    features = extract(found, built_in(found.modality))
    assert features.x.shape == (861, 1024)
    x, y = torch.from_numpy(features.x), torch.from_numpy(features.labels)
    tested = torch.tensor([int(who[1:]) % 2 == 0 for who in features.subjects])
    train, test = (item.double() for item in standardise(x[~tested], x[tested], "client"))
    targets = torch.nn.functional.one_hot(y[~tested], 27).double() - 1 / 27
    weights = torch.linalg.solve(train @ train.T + 300 * torch.eye(len(train)).double(), targets)
    accuracy = ((test @ train.T @ weights).argmax(1) == y[tested]).double().mean()
    assert least < accuracy < 0.97
