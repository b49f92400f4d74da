"""FedVSSL's server against literal versions, FedU's rule, and unlabelled clients on both engines."""

from dataclasses import replace

import pytest
import torch

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.base import Training
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.scope import Scope
from fedaction.federation.seeds import generator
from fedaction.federation.settings import RecipeError
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import tensors_of
from fedaction.methods import METHODS
from fedaction.methods.memory import kept_name
from fedaction.methods.pretext import PRETEXTS
from fedaction.methods.start import fresh, initial_state
from fedaction.runs.recipe import parse_recipe
from fedaction.server.federation import combine

CPU = torch.device("cpu")
SIZES = {"phone-0": 6, "phone-1": 4, "phone-2": 5}
LOSSES = {"phone-0": 2.0, "phone-1": 0.5, "phone-2": 1.0}


def phones() -> dict[str, ClientData]:
    found: dict[str, ClientData] = {}
    for name, count in SIZES.items():
        random = generator(5, name)

        def examples(count: int) -> Examples:
            x = torch.randint(0, 256, (count, 12, 20, 20, 3), generator=random, dtype=torch.uint8)  # noqa: B023
            return Examples(x, torch.arange(count) % 2)

        info = ClientInfo(name, "video", count, ("a", "b"), (12, 20, 20, 3))
        found[name] = ClientData(info, examples(count), examples(3))
    return found


def make(name: str = "fedvssl", **settings):
    kind = METHODS[name]
    values = {"pretext": "speed", "clip_frames": 4, "clip_size": 16, "model_width": 2, **settings}
    return kind([client.info for client in phones().values()], kind.settings_type(**values))


def updates_for(method, server, seed: int = 0) -> list[Update]:
    random = generator(seed, "updates")
    found = []
    for name, count in SIZES.items():
        payload = method.payload(server, method.clients[name])
        tree = {n: t + torch.randn(t.shape, generator=random) for n, t in payload.items()}
        found.append(Update(name, "video", server.version, tree, float(count), {"loss": LOSSES[name]}))
    return found


def means(server, updates) -> tuple[dict, dict]:
    """Literally: by samples, and by softmax(-L)."""
    total = sum(u.samples for u in updates)
    losses = torch.softmax(-torch.tensor([u.metrics["loss"] for u in updates]), 0).tolist()
    size = {n: sum(u.samples / total * u.tree[n] for u in updates) for n in server.shared}
    loss = {n: sum(p * u.tree[n] for p, u in zip(losses, updates, strict=True)) for n in server.shared}
    return size, loss


@pytest.mark.parametrize("alpha", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_the_server_goes_towards_the_mix_of_both_means(double, alpha, rate):
    method = make(vssl_alpha=alpha, server_lr=rate)
    server = initial_state(method, 0)
    updates = updates_for(method, server)
    size, loss = means(server, updates)
    found = combine(method, server, updates)
    assert found.version == 1
    for name, theta in server.shared.items():
        mix = alpha * loss[name] + (1 - alpha) * size[name]
        torch.testing.assert_close(found.shared[name], (1 - rate) * theta + rate * mix)
        if rate == 1.0:  # towards the clients, not away from them
            assert (found.shared[name] - mix).norm() <= (theta - mix).norm()


def test_averaging_with_the_last_model_is_a_server_rate_of_one_half(double):
    swa, half = make(vssl_beta=1), make(server_lr=0.5)
    server = replace(initial_state(swa, 0), version=3)
    updates = updates_for(swa, server)
    one, other = combine(swa, server, updates), combine(half, server, updates)
    for name in server.shared:
        torch.testing.assert_close(one.shared[name], other.shared[name])
    first = initial_state(swa, 0)  # in the first round there is nothing to average with
    plain = combine(make(), first, updates_for(swa, first))
    for name, value in combine(swa, first, updates_for(swa, first)).shared.items():
        torch.testing.assert_close(value, plain.shared[name])


@pytest.mark.parametrize("beta", [2, 3])
def test_more_models_than_one_are_averaged_once_there_are_so_many(double, beta):
    method, plain = make(vssl_beta=beta), make(vssl_beta=0)
    server, past = initial_state(method, 0), []
    for round in range(6):
        updates = updates_for(method, server, round)
        tilde = combine(plain, server, updates).shared
        found = combine(method, server, updates)
        for name in server.shared:
            literal = torch.stack([tilde[name], *(tree[name] for tree in past[-beta:])]).mean(0)
            torch.testing.assert_close(found.shared[name], literal)
        server = found
        past.append(found.shared)
        assert len(found.memory) == min(max(round, 0), beta - 1) * len(server.shared)


def test_losses_far_apart_do_not_overflow():
    method = make(vssl_alpha=1.0)
    server = initial_state(method, 0)
    updates = [
        replace(u, metrics={"loss": loss}) for u, loss in zip(updates_for(method, server), (9e3, 1, 2e3), strict=True)
    ]
    found = combine(method, server, updates)
    for name, value in found.shared.items():
        torch.testing.assert_close(value, updates[1].tree[name])


def test_only_the_backbone_travels_unless_heads_are_shared():
    scopes = make().scopes_of("phone-0")
    assert {s for n, s in scopes.items() if n.startswith("backbone.")} == {Scope.GLOBAL}
    assert any("running_mean" in n for n, s in scopes.items() if s is Scope.GLOBAL)
    assert {s for n, s in scopes.items() if n.startswith("head.")} == {Scope.LOCAL}
    assert set(make(heads="shared").scopes_of("phone-0").values()) == {Scope.GLOBAL}
    full = make(model_width=64)
    plan = full.plan(full.clients["phone-0"])
    sent = [n for n, s in plan.scopes.items() if s is Scope.GLOBAL and plan.leaves[n].kind == "parameter"]
    assert sum(torch.Size(plan.leaves[n].shape).numel() for n in sent) == 33_166_272


# FedU


def test_a_client_that_moved_far_keeps_its_own_head():
    method = make("fedu", fedu_threshold=0.4)
    tensors = dict(tensors_of(fresh(method, method.clients["phone-0"], 0)))
    heads = [n for n in tensors if n.startswith("head.") and n != kept_name(n)]
    tensors |= {kept_name(n): torch.full_like(tensors[n], 7.0) for n in heads}
    for seen, moved, own in ((0.0, 9.0, False), (1.0, 0.39, False), (1.0, 0.4, True)):
        state = {**tensors, kept_name("seen"): torch.tensor(seen), kept_name("moved"): torch.tensor(moved)}
        begun = method.begin(state)
        for name in heads:
            assert torch.equal(begun[name], state[kept_name(name)] if own else state[name])


def test_how_far_an_encoder_moved_is_a_mean_over_its_convolutions(double):
    method = make("fedu")
    begun = {n: t.detach() for n, t in tensors_of(fresh(method, method.clients["phone-0"], 0)).items()}
    trained = {n: t + 0.1 if t.is_floating_point() else t for n, t in begun.items()}
    found = method.finish(begun, trained)
    convolutions = [
        t for n, t in begun.items() if n.startswith("backbone.") and n.endswith(".weight") and t.dim() == 5
    ]
    literal = sum(0.1 * t.numel() ** 0.5 for t in convolutions) / len(convolutions)
    torch.testing.assert_close(found[kept_name("moved")], torch.tensor(literal))
    assert found[kept_name("seen")] == 1
    assert all(torch.equal(found[kept_name(n)], trained[n]) for n in begun if n.startswith("head."))


# Both engines


@pytest.mark.parametrize(
    ("name", "pretext"), [("fedvssl", "speed"), ("fedvssl", "vcop"), ("fedvssl", "ctp"), ("fedu", "speed")]
)
def test_engines_agree_on_what_is_drawn_and_learned(double, name, pretext):
    clients = phones()
    for key, client in clients.items():
        clients[key] = replace(client, train=replace(client.train, x=client.train.x.repeat(1, 3, 1, 1, 1)))
        clients[key] = replace(clients[key], info=replace(client.info, shape=(36, 20, 20, 3)))
    kind = METHODS[name]
    settings = kind.settings_type(pretext=pretext, clip_frames=4, clip_size=16, model_width=2)
    method = kind([client.info for client in clients.values()], settings)
    server = initial_state(method, 3)
    jobs = [Job(key, "video", 0, 1, method.payload(server, client.info)) for key, client in clients.items()]
    training = Training(seed=3, batch_size=2, lr=0.01, momentum=0.0, clip_norm=40.0)
    engines = [engine(method, clients, training, CPU) for engine in (SequentialEngine, VectorisedEngine)]
    found = [list(engine.train(jobs)) for engine in engines]
    for one, other in zip(*found, strict=True):
        assert one.metrics["loss"] > 0
        keeps, others = (engine.store.pending(one.client) for engine in engines)
        local = {n for n, scope in method.scopes_of(one.client).items() if scope is Scope.LOCAL}
        assert keeps.keys() == others.keys() == local and local
        for part, same in ((one.tree, other.tree), (keeps, others)):
            assert part.keys() == same.keys()
            for n, t in part.items():
                torch.testing.assert_close(same[n], t, rtol=1e-8, atol=1e-8)


# The task's keys


@pytest.mark.parametrize(
    ("keys", "fields"),
    [
        (
            {
                "pretext": "speed",
                "speed_strides": [0, 1, 2],
                "speed_short": "clamp",
                "pretext_dropout": 0.1,
                "speed_easy": [0, 2],
                "speed_easy_rounds": 4,
            },
            {"strides": (0, 1, 2), "short": "clamp", "dropout": 0.1, "easy": (0, 2), "easy_rounds": 4},
        ),
        (
            {"pretext": "vcop", "vcop_clips": 2, "vcop_interval": 1, "pretext_dropout": 0.0},
            {"clips": 2, "interval": 1, "dropout": 0.0},
        ),
        (
            {"pretext": "ctp", "ctp_strides": [2], "ctp_boxes": 1, "ctp_rounding": "pixels"},
            {"strides": (2,), "boxes": 1, "rounding": "pixels"},
        ),
    ],
)
def test_a_recipes_keys_are_the_tasks(keys, fields):
    base = {"method": "fedvssl", "data": "stage_video", "clip_frames": 4, "clip_size": 16}
    settings = parse_recipe(base | keys).methods["fedvssl"]
    task = PRETEXTS[keys["pretext"]](frames=4, size=16, **fields)
    assert settings.make_task() == task != PRETEXTS[keys["pretext"]](frames=4, size=16)


def test_a_task_that_cannot_be_played_is_refused_in_the_recipe():
    with pytest.raises(RecipeError, match=r"easy strides \(0, 3\): two or more of the strides"):
        parse_recipe({"method": "fedvssl", "pretext": "speed", "speed_easy": [0, 3], "speed_easy_rounds": 1})


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_the_first_rounds_learn_from_easy_strides_alone(kind):
    """What the head says of strides that are not drawn yet only sinks."""
    method = make(speed_strides=[-1, 0, 1, 2], speed_easy=[0, 2], speed_easy_rounds=1, heads="shared")
    server, clients = initial_state(method, 0), phones()
    seen = []
    for round in (1, 2):
        jobs = [Job(n, "video", 0, round, method.payload(server, c.info)) for n, c in clients.items()]
        engine = kind(method, clients, Training(0, batch_size=2, lr=0.5, momentum=0.0, weight_decay=0.0), CPU)
        moved = [update.tree["head.speed.bias"] - server.shared["head.speed.bias"] for update in engine.train(jobs)]
        # A class that is never right only loses, one that is right now and then gains, too.
        seen.append(torch.stack(moved))
        engine.close()
    assert (seen[0][:, [0, 2]] < 0).all() and (seen[0][:, [1, 3]].sum(1) > 0).all()
    assert not (seen[1][:, [0, 2]] < 0).all()


@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
@pytest.mark.parametrize("pretext", ["speed", "ctp"])
def test_sites_report_how_well_the_task_is_played_on_recordings_for_test(kind, pretext):
    method, clients = make(pretext=pretext), phones()
    server = initial_state(method, 0)
    jobs = [Job(n, "video", 0, 1, method.payload(server, c.info)) for n, c in clients.items()]
    engine = kind(method, clients, Training(0, batch_size=2, lr=0.05), CPU)
    list(engine.train(jobs))
    engine.commit(clients)
    for job, found in zip(jobs, engine.evaluate(jobs), strict=True):
        net = fresh(method, method.clients[job.client], 0).eval()
        net.load_state_dict(engine.tensors(job))  # the head is the client's own
        test = clients[job.client].test.x
        drawn = method.task.draw(len(test), tuple(test.shape[1:]), generator(0, "task", job.client))
        with torch.no_grad():
            loss, metrics = method.task.loss(net, *method.task.apply(test, drawn))
        played = {name: value for name, value in found.metrics.items() if name.startswith("task_")}
        expected = {f"task_{name}": float(value) for name, value in {"loss": loss, **metrics}.items()}
        assert played == pytest.approx(expected, rel=1e-4)
    engine.close()
