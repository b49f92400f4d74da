"""Asynchronous methods against literal versions, and video networks whose first stages are frozen."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import Training
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.average import Averager
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import generator
from fedaction.federation.state import Job, Update, report_on
from fedaction.federation.tree import tensors_of
from fedaction.methods import METHODS
from fedaction.methods.central import Central, arrange
from fedaction.methods.start import fresh, initial_state, precompute_frozen
from fedaction.models.files import clip_card, save_model
from fedaction.models.resnet3d import ResNet3D
from fedaction.server.federation import combine
from tests.conftest import make_method, mixed_clients, vector_clients
from tests.engines.test_engines_agree import jobs_of

CPU = torch.device("cpu")
VIDEO = {"backbone": "resnet3d", "classifier": "shared", "model_width": 4, "model_frozen": 6}
CLASSES = ("sit", "stand", "wave")


def video_clients() -> dict[str, ClientData]:
    clients: dict[str, ClientData] = {}
    for number, count in enumerate((7, 5)):
        random = generator(4, "clips", number)

        def examples(count: int) -> Examples:
            x = torch.randint(0, 256, (count, 4, 16, 16, 3), generator=random, dtype=torch.uint8)  # noqa: B023
            return Examples(x, torch.arange(count) % 3, recording=torch.arange(count) // 2)

        info = ClientInfo(f"camera-{number}", "video", count, CLASSES, (4, 16, 16, 3))
        clients[info.id] = ClientData(info, examples(count), examples(4))
    return clients


def answers_for(method, server, clients, versions) -> list[tuple[Job, Update]]:
    """What clients were sent, each another model where its version is older, and what they sent back."""
    random = generator(9, "updates")
    found = []
    for (name, client), version in zip(clients.items(), versions, strict=True):
        sent = method.payload(server, client.info)
        if version < server.version:
            sent = {n: t + torch.randn(t.shape, generator=random) for n, t in sent.items()}
        tree = {n: t + torch.randn(t.shape, generator=random) for n, t in sent.items()}
        job = Job(name, client.info.group, version, 1, sent)
        found.append((job, Update(name, client.info.group, version, tree, float(len(client.train)))))
    return found


def advance(method, server, answers):
    """The server's step from answers to jobs of any age."""
    mean = Averager()
    for job, update in answers:
        info = method.clients[update.client]
        weight = method.weigh(report_on(update, server.version))
        mean.add(update, job, weight, method.plan(info).scopes, method.parts(info))
    return method.advance(server, mean.averages())


def test_the_server_mixes_in_one_update_after_the_other(double):
    clients = vector_clients()
    method = make_method("edge", clients, backbone="perceptron", classifier="shared", mixing=0.7, staleness_a=0.5)
    server = replace(initial_state(method, 0), version=9)
    answers = answers_for(method, server, clients, (9, 7, 0, 9, 4))
    literal = {n: t.clone() for n, t in server.shared.items()}
    found = server
    assert method.buffer == 1
    for t, (job, update) in enumerate(answers, 10):  # the server's version before it is t - 1
        beta_t = 0.7 * (1 + (t - 1) - update.version) ** -0.5
        literal = {n: (1 - beta_t) * w + beta_t * update.tree[n] for n, w in literal.items()}
        found = advance(method, found, [(job, update)])
        assert found.version == t
    assert found.version == 14
    for name, value in literal.items():
        torch.testing.assert_close(found.shared[name], value)


def test_fedbuff_adds_the_mean_of_weighed_changes(double):
    clients = vector_clients()
    method = make_method(
        "fedbuff", clients, backbone="perceptron", classifier="shared", buffer=5, server_lr=0.5, staleness_a=0.5
    )
    server = replace(initial_state(method, 0), version=6)
    answers = answers_for(method, server, clients, (6, 5, 2, 6, 3))
    found = advance(method, server, answers)
    assert found.version == 7 and method.buffer == 5
    for name, w in server.shared.items():
        change = sum((1 + 6 - u.version) ** -0.5 * (u.tree[name] - job.payload[name]) for job, u in answers) / 5
        torch.testing.assert_close(found.shared[name], w + 0.5 * change)


def test_fedbuff_on_unlike_skeletons_changes_only_what_someone_holds(double):
    clients = {name: client for name, client in mixed_clients().items() if name in ("client-3", "client-4")}
    method = make_method("fedbuff", {**mixed_clients()}, staleness="constant")
    server = initial_state(method, 0)
    answers = answers_for(method, server, clients, (0, 0))
    found = advance(method, server, answers)
    changed = {n: int((found.shared[n] != t).sum()) for n, t in server.shared.items()}
    parts = method.parts(clients["client-3"].info)
    assert parts
    for name in parts:  # of 25 joints, two clients hold 20 and 15
        assert 0 < changed[name] < server.shared[name].numel()
        changes, holders = torch.zeros_like(server.shared[name]), torch.zeros_like(server.shared[name])
        for job, update in answers:
            grid = method.parts(clients[update.client].info)[name].grid()
            changes[grid] += update.tree[name] - job.payload[name]
            holders[grid] += 1
        literal = server.shared[name] + changes / holders.clamp(min=1)
        torch.testing.assert_close(found.shared[name], literal)
        assert torch.equal(found.shared[name] != server.shared[name], holders > 0)


def test_the_server_adds_what_a_fedbuff_client_changed(double):
    """Which sends, as any client, its tensors after training."""
    clients = vector_clients()
    settings = {"backbone": "perceptron", "classifier": "shared"}
    training = Training(seed=3, batch_size=4, lr=0.05)
    sent = {}
    for name in ("fedavg", "fedbuff"):
        method = make_method(name, clients, **settings)
        server = initial_state(method, 3)
        engine = SequentialEngine(method, clients, training, CPU)
        sent[name] = (server, {u.client: u for u in engine.train(jobs_of(method, server, clients))})
    server, trained = sent["fedavg"]
    assert sent["fedbuff"][1].keys() == trained.keys() == clients.keys()
    fedbuff = make_method("fedbuff", clients, **settings)
    later = replace(server, version=1, shared={n: t + 2 for n, t in server.shared.items()})
    for client, update in sent["fedbuff"][1].items():
        fresh_one = combine(fedbuff, server, [update]).shared
        job = Job(client, update.group, 0, 1, server.shared)
        late_one = advance(fedbuff, later, [(job, update)]).shared
        for name, tensor in update.tree.items():
            assert torch.equal(tensor, trained[client].tree[name])
            torch.testing.assert_close(fresh_one[name], tensor)
            # One server update late, on a server that has gone elsewhere: the change counts 2^-1/2.
            change = tensor - server.shared[name]
            torch.testing.assert_close(late_one[name], later.shared[name] + 2**-0.5 * change)


# Video


def test_frozen_stages_see_every_clip_once_and_nothing_else_changes():
    clients = video_clients()
    method = make_method("fedavg", clients, **VIDEO)
    ready = precompute_frozen(method, clients, 3, CPU)
    assert all(
        client.info.shape == (32,) and client.train.x.shape == (len(client.train), 32) for client in ready.values()
    )
    assert torch.equal(ready["camera-0"].test.recording, clients["camera-0"].test.recording)
    short = make_method("fedavg", ready, **VIDEO)
    training = Training(seed=3, batch_size=4, local_epochs=2, lr=0.05)
    results = []
    for one, data in ((method, clients), (short, ready)):
        server = initial_state(one, 3)
        assert set(server.shared) == {"classifier.weight", "classifier.bias"}
        engine = SequentialEngine(one, data, training, CPU)
        updates = {u.client: u for u in engine.train(jobs_of(one, server, data))}
        tested = list(
            engine.evaluate([replace(j, payload=updates[j.client].tree) for j in jobs_of(one, server, data)])
        )
        results.append((updates, tested))
    for name, update in results[0][0].items():
        for n, t in update.tree.items():
            torch.testing.assert_close(results[1][0][name].tree[n], t, rtol=1e-4, atol=1e-5)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        assert one.metrics["accuracy"] == other.metrics["accuracy"]
        assert one.metrics["recordings"] == other.metrics["recordings"]


def test_only_the_classifier_of_a_frozen_network_travels():
    method = make_method("edge", video_clients(), **VIDEO)
    plan = method.plan(next(iter(method.clients.values())))
    assert {n for n, s in plan.scopes.items() if s is Scope.GLOBAL} == {"classifier.weight", "classifier.bias"}
    assert {s for n, s in plan.scopes.items() if not n.startswith("classifier")} == {Scope.FROZEN}
    assert plan.traffic == 4 * (32 * 3 + 3)
    paper = make_method("edge", video_clients(), **{**VIDEO, "model_width": 64})
    assert paper.plan(next(iter(paper.clients.values()))).traffic == 4 * (512 * 3 + 3)


def test_engines_agree_on_a_partly_frozen_video_network(double):
    clients = {
        name: replace(client, train=replace(client.train, x=client.train.x.double()))
        for name, client in video_clients().items()
    }
    method = make_method("edge", clients, **{**VIDEO, "model_frozen": 4, "buffers": "average"})
    server = initial_state(method, 3)
    training = Training(seed=3, batch_size=3, lr=0.05)
    jobs = [Job(n, "video", 0, 1, method.payload(server, c.info)) for n, c in clients.items()]
    found = [
        list(engine(method, clients, training, CPU).train(jobs)) for engine in (SequentialEngine, VectorisedEngine)
    ]
    for one, other in zip(*found, strict=True):
        assert any(n.startswith("layer4.") for n in one.tree) and not any(n.startswith("layer3.") for n in one.tree)
        for n, t in one.tree.items():
            torch.testing.assert_close(other.tree[n], t, rtol=1e-9, atol=1e-9)


def test_networks_start_from_a_model_file(tmp_path: Path):
    teacher = ResNet3D(22, 3, 4)
    for parameter in teacher.parameters():
        parameter.data.normal_(generator=generator(0, "teacher"))
    card = clip_card(classes=CLASSES, frames=4, resize=16, crop=16)
    save_model(tmp_path / "student.safetensors", teacher, card)
    settings = {**VIDEO, "model_width": 0, "pretrained": str(tmp_path / "student.safetensors")}
    clients = video_clients()
    method = make_method("edge", clients, **settings)
    own = tensors_of(fresh(method, clients["camera-0"].info, 0))
    assert all(torch.equal(own[n], t) for n, t in tensors_of(teacher).items())
    others = {n: replace(c, info=replace(c.info, classes=("a", "b", "c"))) for n, c in clients.items()}
    own = tensors_of(fresh(make_method("edge", others, **settings), others["camera-0"].info, 0))
    assert torch.equal(own["layer1.0.conv1.weight"], teacher.state_dict()["layer1.0.conv1.weight"])
    assert not torch.equal(own["classifier.weight"], teacher.state_dict()["classifier.weight"])
    with pytest.raises(ValueError, match="there is no such model file"):
        make_method("edge", clients, **{**settings, "pretrained": "nowhere.safetensors"}).plan(
            clients["camera-0"].info
        )


def test_centralised_training_puts_like_samples_together():
    clients = arrange(METHODS["central"], video_clients())
    assert len(clients["everyone"].train) == 12 and len(clients["camera-0"].train) == 0
    method = make_method("central", dict(clients), **VIDEO)
    ready = precompute_frozen(method, clients, 3, CPU)
    assert ready["camera-1"].test.x.shape == (4, 32) and ready["everyone"].test.x.shape == (0, 32)
    assert not method.parts(clients["camera-0"].info)
    strange = {
        **video_clients(),
        "odd": replace(video_clients()["camera-0"], info=ClientInfo("odd", "v", 1, ("x",), (3,))),
    }
    with pytest.raises(ValueError, match="cannot be put together"):
        Central.pool(strange)
