"""What the tests of all pretext tasks share."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedaction.federation.seeds import generator
from fedaction.methods.pretext import Pretext
from fedaction.models.layers import use_stacked_form
from tests.models.common import close, filled, started


def recordings(*shape: int, seed: int = 2) -> Tensor:
    """(..., T, H, W, 3) noise."""
    return torch.randint(0, 256, (*shape, 3), generator=generator(seed, "recordings"), dtype=torch.uint8)


def made(task: Pretext, x: Tensor, seed: int = 3) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    drawn = task.draw(len(x), tuple(x.shape[1:]), generator(seed, "draw"))
    return *task.apply(x, drawn), drawn


def check_draw(task: Pretext, shape: tuple[int, ...]) -> None:
    """A function of the generator alone, one row per recording, whatever torch's default type is."""
    before = torch.random.get_rng_state()
    one = task.draw(5, shape, generator(1, "draw"))
    torch.set_default_dtype(torch.float64)
    try:
        two = task.draw(5, shape, generator(1, "draw"))
    finally:
        torch.set_default_dtype(torch.float32)
    other = task.draw(5, shape, generator(2, "draw"))
    assert one.keys() == two.keys() and torch.equal(torch.random.get_rng_state(), before)
    for name, tensor in one.items():
        assert len(tensor) == 5 and tensor.dtype == two[name].dtype and torch.equal(tensor, two[name]), name
        assert tensor.dtype in (torch.int64, torch.float32, torch.bool) and tensor.device.type == "cpu"
    assert any(not torch.equal(tensor, other[name]) for name, tensor in one.items())


def check_apply(task: Pretext, shape: tuple[int, ...]) -> None:
    """Stacked clients, one client after another, and one recording after another give the same."""
    x = recordings(2, 3, *shape[:-1])
    draws = [task.draw(3, shape, generator(client, "draw")) for client in range(2)]
    drawn = {name: torch.stack([d[name] for d in draws]) for name in draws[0]}
    keep = x.clone()
    clips, targets = task.apply(x, drawn)
    assert torch.equal(x, keep)
    assert clips.shape[:2] == (2, 3) and clips.shape[-4:] == (task.frames, task.size, task.size, 3)
    assert clips.dtype == torch.float32 and float(clips.min()) >= 0 and float(clips.max()) <= 255
    for client in range(2):
        a, b = task.apply(x[client], draws[client])
        torch.testing.assert_close(clips[client], a, atol=1e-4, rtol=0)
        assert torch.equal(targets[client], b)
        for n in range(3):
            a, b = task.apply(x[client, n : n + 1], {name: t[n : n + 1] for name, t in draws[client].items()})
            torch.testing.assert_close(clips[client, n], a[0], atol=1e-4, rtol=0)
            assert torch.equal(targets[client, n], b[0])


class Alone(nn.Module):
    """A task's loss as a forward, to be called with any tensors."""

    def __init__(self, task: Pretext, net: nn.Module) -> None:
        super().__init__()
        self.task, self.net = task, net

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        loss, metrics = self.task.loss(self.net, x, y)  # type: ignore[arg-type]
        assert all(m.shape == () for m in metrics.values())
        return loss


def check_stacking(task: Pretext, shape: tuple[int, ...]) -> None:
    """Losses, gradients and statistics of three clients at once, and of one after another, in double precision."""
    plain = started(Alone(task, task.network(18, 2)))
    stacked = use_stacked_form(copy.deepcopy(plain))
    clients = []
    for seed in range(3):
        net = filled(copy.deepcopy(plain), seed=seed)
        parameters = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
        buffers = {n: b.clone() for n, b in net.named_buffers() if "running" in n}
        buffers |= {n: torch.tensor(seed) for n, _ in net.named_buffers() if n.endswith("key")}
        x, y, _ = made(task, recordings(2, *shape[:-1], seed=seed), seed)
        clients.append((parameters, buffers, x.double(), y))
    together = {n: torch.stack([c[0][n].detach() for c in clients]).requires_grad_() for n in clients[0][0]}
    others = {n: torch.stack([c[1][n] for c in clients]) for n in clients[0][1]}
    xs, ys = (torch.stack([c[i] for c in clients]) for i in (2, 3))
    losses = vmap(lambda p, b, x, y: functional_call(stacked, {**p, **b}, (x, y)))(together, others, xs, ys)
    losses.sum().backward()
    for i, (parameters, buffers, x, y) in enumerate(clients):
        one = functional_call(plain, {**parameters, **buffers}, (x, y))
        one.backward()
        close(losses[i], one)
        for n, p in parameters.items():
            assert float(p.grad.abs().sum()) > 0, n
            torch.testing.assert_close(together[n].grad[i], p.grad, atol=1e-9, rtol=1e-8, msg=n)
        for n, b in buffers.items():
            close(others[n][i], b, n)


def check_learning(task: Pretext, x: Tensor, lr: float, steps: int, share: float) -> None:
    """A few steps of SGD on one batch bring the loss down to a share of what it was."""
    clips, y, _ = made(task, x)
    net = started(task.network(18, 4)).train()
    optimiser = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss, _ = task.loss(net, clips, y)  # type: ignore[arg-type]
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 40)
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) / 5 < share * losses[0], losses
