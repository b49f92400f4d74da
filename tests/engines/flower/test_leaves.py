"""Everything that was ever sent, searched for what may never leave: samples, labels, and tensors that sites keep."""

import json

import numpy as np
import pytest
import torch

from fedaction.engines.flower.envelope import open_envelope
from fedaction.engines.flower.keep import SiteStore
from fedaction.engines.messages import MOST_BYTES, unpack
from fedaction.federation.state import Update
from fedaction.runs.remote import Roll, carry_out, open_run
from tests.conftest import few
from tests.engines.flower.places import (
    HousePost,
    make_device_recipe,
    make_recipe,
    make_signals,
    make_sites,
    make_stores,
    make_video_recipe,
    make_videos,
    simulated,
)

PIECE = 48  # bytes that are searched for; by chance they are nowhere else


def cut_out(values):
    """Some bytes of an array that are not all alike, from its middle if there are any; b"": there are none."""
    flat = np.ascontiguousarray(values).reshape(-1)
    count = max(1, PIECE // flat.itemsize)
    places = [len(flat) // 2, 0, len(flat) // 4, max(0, len(flat) - count)]
    pieces = [flat[place : place + count] for place in places]
    return next((piece.tobytes() for piece in pieces if len(np.unique(piece)) > 2), b"")


def samples_of(client):
    """A piece of every sample of a client, as it is trained on and as other programs would write it."""
    for part in (client.train, client.test):
        x = part.take(torch.arange(len(part))).numpy()
        for one in x:
            for kind in {x.dtype, np.dtype(np.float32), np.dtype(np.float64)}:
                yield cut_out(one.astype(kind))


def labels_of(client):
    """The labels of a client's samples, in every way that comes to mind."""
    for part in (client.train, client.test):
        labels = part.labels.numpy()
        yield from (labels.astype(kind).tobytes() for kind in (np.int64, np.int32, np.uint8) if len(labels) > 7)
        yield json.dumps(labels.tolist()).encode()
        yield str(labels.tolist()).replace(" ", "").encode()


def files_of(folder):
    """A piece of every file of data, as it lies there: its header may have classes, which are told."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix in (".npy", ".mp4"):
            yield cut_out(np.frombuffer(path.read_bytes()[-4096:], dtype=np.uint8))


def make_skeletons(folder):
    paths = make_stores(folder)
    return paths, make_recipe(paths, "fsar", rounds=1)


def make_devices(folder):
    paths = make_signals(folder)
    return paths, make_device_recipe(paths, "fdarn")


def make_filmed(folder):
    paths = make_videos(folder)
    return paths, make_video_recipe(paths, "fedvssl")


MADE = {"fsar": make_skeletons, "fdarn": make_devices, "fedvssl": make_filmed}


@pytest.mark.parametrize("method", few(MADE, "fsar"))
def test_nothing_that_was_sent_has_a_sample_labels_or_what_a_site_keeps(tmp_path, method):
    paths, recipe = MADE[method](tmp_path)
    open_run(recipe, tmp_path / "real", Roll(count=len(paths)))
    post, kept = HousePost(make_sites(paths, tmp_path / "sites")), {}
    run = Roll.read(tmp_path / "real").run

    def watch(node, kind, answer):
        store = SiteStore(post.sites[node]._folder / run, post.sites[node].name)
        for job in store.jobs():
            for name, tensor in store.read(job).items():
                kept[node, job, name] = cut_out(tensor.numpy())
        return answer

    post.change = watch
    carry_out(post, tmp_path / "real")
    wire = b"\n".join(content for _, _, question, answer in post.seen for content in (question, answer))

    clients = simulated(recipe)
    secret = {
        "a sample": [piece for client in clients.values() for piece in samples_of(client)],
        "labels": [piece for client in clients.values() for piece in labels_of(client)],
        "a file": [piece for path in paths.values() for piece in files_of(path)],
        "a tensor of its own": [*kept.values()],
    }
    for what, pieces in secret.items():
        pieces = {piece for piece in pieces if len(piece) >= 8}
        assert pieces or (what, method) == ("a tensor of its own", "fdarn")  # which keeps none
        assert not [piece for piece in pieces if piece in wire], what
    # What may leave is found by the same search.
    answers = [answer for _, kind, _, answer in post.seen if kind == "train"]
    updates = [unpack(Update, open_envelope(answer, MOST_BYTES).parts[0]) for answer in answers]
    shared = [piece for update in updates for t in update.tree.values() if (piece := cut_out(t.numpy()))]
    assert len(shared) > 10 and all(piece in wire for piece in shared)
