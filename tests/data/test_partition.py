"""Divisions: each sample once, reproducible, and refused where impossible."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from fedaction.data import partition
from fedaction.data.partition import PartitionReport
from fedaction.federation.seeds import numpy_generator

Ints = npt.NDArray[np.int64]
Result = tuple[list[Ints], PartitionReport]


def samples(seed: int) -> tuple[Ints, Ints]:
    rng = numpy_generator(seed, "samples")
    count = int(rng.integers(30, 200))
    return rng.integers(0, rng.integers(1, 12), count), rng.integers(0, rng.integers(4, 20), count)


DIVISIONS: dict[str, Callable[[Ints, Ints, int], Result]] = {
    "by_subject": lambda y, who, seed: partition.by_subject(y, who),
    "by_subject dealt": lambda y, who, seed: partition.by_subject(y, who, clients=3, seed=seed),
    "by_class_shards": lambda y, who, seed: partition.by_class_shards(y, clients=4, seed=seed),
    "by_classes": lambda y, who, seed: partition.by_classes(y, clients=4, each=min(3, len(np.unique(y))), seed=seed),
    "dirichlet": lambda y, who, seed: partition.dirichlet(y, clients=3, alpha=1.0, minimum=1, seed=seed),
    "iid": lambda y, who, seed: partition.iid(y, clients=7, seed=seed),
}


@pytest.mark.parametrize("name", list(DIVISIONS))
def test_every_sample_goes_to_exactly_one_client(name: str) -> None:
    for seed in range(40):
        labels, subjects = samples(seed)
        parts, report = DIVISIONS[name](labels, subjects, seed)
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
        assert all(len(part) and np.array_equal(part, np.sort(part)) for part in parts)
        assert report.sizes == tuple(len(part) for part in parts)
        assert len(report.clients) == len(set(report.clients)) == len(parts)
        for part, row in zip(parts, report.counts, strict=True):
            assert {c: (labels[part] == int(c)).sum() for c in report.classes} == dict(
                zip(report.classes, row, strict=True)
            )


@pytest.mark.parametrize("name", ["by_subject dealt", "by_class_shards", "dirichlet", "iid"])
def test_divisions_depend_on_the_seed_and_on_nothing_else(name: str) -> None:
    labels, subjects = samples(5)
    first, again, other = (DIVISIONS[name](labels, subjects, seed)[0] for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    if name != "by_subject dealt":  # the sizes of people leave little to chance
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_by_subject_keeps_people_whole_and_balances_clients() -> None:
    labels, subjects = samples(8)
    parts, report = partition.by_subject(labels, subjects)
    assert report.clients == tuple(str(name) for name in np.unique(subjects))
    assert all(len(set(subjects[part])) == 1 for part in parts)
    dealt, _ = partition.by_subject(labels, subjects, clients=3)
    owners = [set(subjects[part].tolist()) for part in dealt]
    assert sum(len(people) for people in owners) == len(np.unique(subjects))
    largest = np.bincount(subjects).max()
    sizes = [len(part) for part in dealt]
    assert max(sizes) - min(sizes) <= largest


def test_names_may_be_text() -> None:
    parts, report = partition.by_subject(["wave", "sit", "wave"], ["ntu", "ntu", "kard"])
    assert report.clients == ("kard", "ntu") and report.classes == ("sit", "wave")
    assert [part.tolist() for part in parts] == [[2], [0, 1]]
    assert report.counts.tolist() == [[0, 1], [1, 1]]


def test_shards_limit_the_classes_of_a_client() -> None:
    labels = np.repeat(np.arange(10), 20)
    parts, _ = partition.by_class_shards(labels, clients=10, shards=2, seed=3)
    assert all(len(part) == 20 and len(set(labels[part])) <= 2 for part in parts)


def test_a_few_classes_for_each_client() -> None:
    labels = np.repeat(np.arange(40), 50)
    parts, report = partition.by_classes(labels, clients=10, each=8)
    assert ((report.counts > 0).sum(1) == 8).all() and sorted(np.concatenate(parts)) == list(range(2000))
    assert set(report.sizes) == {200} and ((report.counts > 0).sum(0) == 2).all()  # each class is at two clients
    with pytest.raises(ValueError, match="cannot hold all 40 classes"):
        partition.by_classes(labels, clients=4, each=8)


def test_the_released_division_slides_over_the_classes_and_shares_samples() -> None:
    """400 classes, 100 clients, 8 classes each: 106 distinct classes, and most samples at several clients."""
    sizes = 500 + np.arange(400)
    labels = np.repeat(np.arange(400), sizes)
    parts, report = partition.by_classes(labels, clients=100, each=8, overlapping=True)
    assert ((report.counts > 0).sum(1) == 8).all() and int((report.counts > 0).any(0).sum()) == 106
    first, second = set(parts[0].tolist()), set(parts[1].tolist())
    assert not first & second and set(labels[parts[0]]) == set(labels[parts[1]]) == {0, 1, 2, 3, 396, 397, 398, 399}
    _, times = np.unique(np.concatenate(parts), return_counts=True)
    assert (times > 1).mean() > 0.9
    with pytest.raises(ValueError, match="even number of clients"):
        partition.by_classes(labels, clients=99, each=8, overlapping=True)


def test_iid_sizes_differ_by_one_at_most() -> None:
    parts, _ = partition.iid(np.zeros(23, dtype=int), clients=5)
    assert sorted(len(part) for part in parts) == [4, 4, 5, 5, 5]


def test_alpha_sets_how_uneven_a_dirichlet_division_is() -> None:
    labels = np.repeat(np.arange(10), 200)

    def spread(alpha: float) -> float:
        counts = partition.dirichlet(labels, clients=5, alpha=alpha, minimum=1, seed=2)[1].counts
        return float((counts.max(axis=0) / counts.sum(axis=0)).mean())

    assert spread(100.0) < 0.3 < spread(1.0) < spread(0.1)


@pytest.mark.parametrize("alpha", [1e-3, 1e-12, 1e-300])
def test_dirichlet_gives_up_with_advice_instead_of_looping(alpha: float) -> None:
    labels = np.zeros(50, dtype=int)
    with pytest.raises(ValueError, match="fewer clients than 6, a larger alpha"):
        partition.dirichlet(labels, clients=6, alpha=alpha, minimum=5, retries=20)


def test_tiny_alpha_still_assigns_every_sample() -> None:
    labels = np.repeat(np.arange(40), 3)
    parts, _ = partition.dirichlet(labels, clients=2, alpha=1e-300, minimum=1, seed=1)
    assert sum(len(part) for part in parts) == 120


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.iid([0, 1], clients=3), "too many"),
        (lambda: partition.iid([], clients=1), "too many"),
        (lambda: partition.iid([0, 1], clients=0), "at least 1"),
        (lambda: partition.dirichlet([0, 1, 1], clients=2, minimum=2), "too many"),
        (lambda: partition.dirichlet([0, 1, 1], clients=1, alpha=0.0), "positive"),
        (lambda: partition.dirichlet([0, 1, 1], clients=1, alpha=float("inf")), "positive"),
        (lambda: partition.dirichlet([0, 1, 1], clients=1, minimum=0), "at least 1"),
        (lambda: partition.by_class_shards([0, 1, 1], clients=2, shards=2), "too many"),
        (lambda: partition.by_class_shards([0, 1, 1], clients=2, shards=0), "at least 1"),
        (lambda: partition.by_subject([0, 1], ["a"]), "one value for each of the 2"),
        (lambda: partition.by_subject([0, 1], ["a", "b"], clients=3), "too many"),
        (lambda: partition.by_subject([0.5, 1.0], ["a", "b"]), "integers or strings"),  # type: ignore[arg-type]
        (lambda: partition.by_subject([], []), "no samples"),
        (lambda: partition.divide([0, 1], None, by="subject"), "who performed"),
        (lambda: partition.divide([0, 1], None, by="iid"), "how many clients"),
        (lambda: partition.divide([0, 1], None, by="random", clients=2), "choose subject"),
        (lambda: partition.split_stratified([0, 1], test=1.0), "between 0 and 1"),
        (lambda: partition.split_stratified([0], test=0.5), "two samples"),
        (lambda: partition.split_by_subject(["a", "a"], test=0.5), "two people"),
        (lambda: partition.split_by_subject(["a", "b"], test=["c"]), "no sample is by c; there are a, b"),
    ],
)
def test_impossible_divisions_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_splits_are_disjoint_complete_and_not_empty() -> None:
    for seed in range(40):
        labels, subjects = samples(seed)
        for share in (0.01, 0.3, 0.99):
            for train, test in (
                partition.split_by_subject(subjects, test=share, seed=seed),
                partition.split_stratified(labels, test=share, seed=seed),
            ):
                assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(len(labels)))
                assert len(train) and len(test)
        train, test = partition.split_by_subject(subjects, test=0.3, seed=seed)
        assert not set(subjects[train]) & set(subjects[test])


def test_stratified_split_takes_the_share_of_each_class() -> None:
    labels = np.repeat(np.arange(4), 10)
    _, test = partition.split_stratified(labels, test=0.3)
    assert np.bincount(labels[test]).tolist() == [3, 3, 3, 3]


def test_named_people_are_the_test_set() -> None:
    train, test = partition.split_by_subject(["a", "b", "c", "b"], test=["b"])
    assert train.tolist() == [0, 2] and test.tolist() == [1, 3]


def test_nobody_is_tested_at_one_client_and_trained_on_at_another() -> None:
    rng = numpy_generator(0, "people")
    labels, people = rng.integers(0, 4, 300), rng.integers(0, 10, 300).astype(str)
    parts, _ = partition.iid(labels, clients=4)
    tested = partition.choose_test(labels, people, parts, test=0.3)
    assert not set(people[tested]) & set(people[~tested])
    by_sample = partition.choose_test(labels, people, parts, test=0.3, cross_subject=False)
    assert set(people[by_sample]) & set(people[~by_sample])
    whole, _ = partition.by_subject(labels, people, clients=3)
    each = partition.choose_test(labels, people, whole, test=0.3)
    for part in whole:
        assert 0 < each[part].sum() < len(part)
        assert not set(people[part][each[part]]) & set(people[part][~each[part]])


def test_report_prints_a_line_per_client() -> None:
    _, report = partition.by_subject([0, 0, 1], ["ntu", "ntu", "kard"])
    text = str(report)
    assert "by subject: 3 samples, 2 clients" in text
    assert all(name in text for name in ("ntu", "kard", "0 (100%)", "1 of 2"))
