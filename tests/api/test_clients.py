"""Clients from arrays: who has what, and what is held out."""

import numpy as np
import pytest
import torch

import fedaction as fa

N = 48
Y = np.arange(N) % 3
X = np.random.default_rng(0).normal(size=(N, 5, 2)) + Y[:, None, None]
WHO = np.repeat(["anna", "ben", "cleo"], 16)


def labels(client):
    return [client.info.classes[place] for place in client.train.labels.tolist()]


def test_by_person_with_a_share_held_out():
    made = fa.clients(X, Y, by=WHO, holdout=0.25)
    assert [c.info.id for c in made] == ["anna", "ben", "cleo"]
    assert [(len(c.train), len(c.test)) for c in made] == [(12, 4)] * 3
    assert made[0].info.shape == (5, 2) and made[0].info.samples == 12 and made[0].info.classes == ("0", "1", "2")
    ours = {row.tobytes() for c in made for s in (c.train, c.test) for row in s.x.numpy()}
    assert ours == {row.tobytes() for row in X.astype(np.float32)}  # each once, none twice
    again = fa.clients(torch.from_numpy(X), torch.from_numpy(Y), by=list(WHO), holdout=0.25)
    assert all(
        torch.equal(a.train.x, b.train.x) and torch.equal(a.test.y, b.test.y)
        for a, b in zip(made, again, strict=True)
    )
    other = fa.clients(X, Y, by=WHO, holdout=0.25, seed=1)
    assert not all(torch.equal(a.train.x, b.train.x) for a, b in zip(made, other, strict=True))


def test_people_held_out_are_nobodys_client():
    made = fa.clients(X, Y, by=WHO, holdout=["ben"])
    assert [c.info.id for c in made] == ["anna", "cleo"]
    for client in made:
        assert len(client.train) == 16 and torch.equal(client.test.x, torch.from_numpy(X[WHO == "ben"]).float())
    with pytest.raises(ValueError, match="nobody is called 'bob'; there are anna, ben, cleo"):
        fa.clients(X, Y, by=WHO, holdout=["bob"])
    with pytest.raises(ValueError, match="everybody is held out"):
        fa.clients(X, Y, by=WHO, holdout=["anna", "ben", "cleo"])


def test_sites_by_name_with_people_of_their_own():
    sites = {"clinic": (X[:24], Y[:24], WHO[:24]), "studio": (X[24:], Y[24:], WHO[24:])}
    for client in fa.clients(sites, holdout=0.5):
        assert not {*client.train.subjects} & {*client.test.subjects}  # whole people
    named = fa.clients(sites, holdout={"clinic": ["ben"], "studio": ["cleo"]})
    assert [{*c.test.subjects} for c in named] == [{"ben"}, {"cleo"}]
    with pytest.raises(
        ValueError, match="client 'studio': holdout leaves nothing to test on; it has samples of ben, cleo"
    ):
        fa.clients(sites, holdout=["anna"])


def test_labels_may_be_names_and_classes_are_everybodys():
    words = np.array(["walk", "sit", "wave"])[Y]
    site = {"a": (X[:9], words[:9]), "b": (X[9:15][words[9:15] != "sit"], words[9:15][words[9:15] != "sit"])}
    a, b = fa.clients(site)
    assert a.info.classes == b.info.classes == ("sit", "walk", "wave") and {*labels(b)} == {"walk", "wave"}
    (one,) = fa.clients(X, Y, classes=["walk", "sit", "wave"])
    assert one.info.id == "everyone" and one.info.classes == ("walk", "sit", "wave")
    numbers = one.train.labels
    expected = {row.astype(np.float32).tobytes(): label for row, label in zip(X, Y, strict=True)}
    assert [expected[row.numpy().tobytes()] for row in one.train.x] == numbers.tolist()


def test_skeletons_are_prepared():
    clips = [np.random.default_rng(i).normal(size=(1, 20 + i, 25, 3)) for i in range(12)]
    client, _ = fa.clients(clips, np.arange(12) % 2, by=["a", "b"] * 6, layout="kinect_v2", frames=16, holdout=0.34)
    assert client.info.shape == (1, 16, 25, 3) and client.info.layout.name == "kinect_v2"
    assert client.input.kind == "skeleton" and torch.equal(
        client.train.x[:, :, :, client.info.layout.centre], torch.zeros(len(client.train), 1, 16, 3)
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"y": None}, "y is missing"),
        ({"y": Y[:-1]}, r"y: 48 samples need as many values, these are \(47,\)"),
        ({"y": Y + 0.5}, "y: whole numbers or names are needed"),
        ({"by": WHO[:3]}, "by: 48 samples"),
        ({"holdout": 1.5}, "a share between 0 and 1"),
        ({"classes": ["a", "b"]}, "y has the label '2', which is none of the 2 classes"),
        ({"classes": ["a", "b", "a"]}, "a name is given twice"),
        ({"x": np.where(X > 3, np.nan, X)}, "NaN or infinite"),
        ({"x": np.full((N, 2), "a")}, "numbers"),
        ({"channels": ["x"]}, "1 channels are named"),
        ({"x": {"a": X}, "y": None}, r"client 'a': give \(x, y\)"),
    ],
)
def test_what_cannot_be_used_is_said(keys, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fa.clients(**{"x": X, "y": Y, "by": None, **keys})
