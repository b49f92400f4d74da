"""The training loop of one network, against one as anybody would write it with torch.optim."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedaction.data.clips.window import window_of
from fedaction.data.samples import in_memory
from fedaction.engines.base import batch_plan
from fedaction.federation.progress import Quiet
from fedaction.federation.seeds import generator
from fedaction.models.layers import initialise
from fedaction.models.resnet3d import ResNet3D
from fedaction.training.evaluate_recipe import parse_evaluate_recipe
from fedaction.training.trainer import Pretraining, Splits
from tests.conftest import few
from tests.training.distilling import recipe_of, write_arrays

RULES = {
    "sgd": lambda weights, lr: torch.optim.SGD(weights, lr, 0.9, weight_decay=0.01),
    "adam": lambda weights, lr: torch.optim.Adam(weights, lr, weight_decay=0.01),
    "adamw": lambda weights, lr: torch.optim.AdamW(weights, lr, weight_decay=0.01),
}


@pytest.mark.parametrize("name", few(RULES, "sgd", "adamw"))
def test_pretraining_steps_as_torch_optim_does(double, tmp_path: Path, name: str):
    """A network with batch normalisation, weight decay, clipping and a rate that falls after half of the epochs."""
    keys = {"optimiser": name, "lr": 0.01, "weight_decay": 0.01, "momentum": 0.9, "clip_norm": 0.5, "augment": False}
    recipe = recipe_of(write_arrays(tmp_path / "clips"), chain=[18], epochs=2, lr_milestones=[0.5], **keys)
    data = recipe.source.pool(0)
    splits = Splits(data.train, data.test, window_of(data, 0), torch.device("cpu"))
    training = Pretraining(ResNet3D(18, 3, 4), 18, 2, 5, recipe.settings, splits)
    training.execute(tmp_path / "run", "", "ResNet-18", Quiet())
    net = ResNet3D(18, 3, 4)
    for path, module in net.named_modules():
        initialise(module, generator(5, "init", 18, path))
    start = {n: t.clone() for n, t in net.state_dict().items()}
    optimiser, norms, train = RULES[name](net.parameters(), 0.01), [], in_memory(data.train)
    for epoch in (1, 2):
        for rows in batch_plan(len(train), 10, 1, generator(5, "batches", 18, epoch)):
            optimiser.param_groups[0]["lr"] = 0.01 if epoch == 1 else 0.001
            optimiser.zero_grad()
            F.cross_entropy(net.train()(train.take(rows)), train.labels[rows]).backward()
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 0.5)))
            optimiser.step()
    assert max(norms) > 0.5  # else nothing was clipped
    # Losses are in single precision; where a gradient is near 0, Adam's step makes rounding larger.
    close = 1e-6 if name == "sgd" else 1e-4
    for n, tensor in net.state_dict().items():
        torch.testing.assert_close(training.network.state_dict()[n], tensor, atol=close, rtol=close, msg=n)
    assert (start["conv1.weight"] - net.state_dict()["conv1.weight"]).abs().max() > 50 * close


@pytest.mark.parametrize("name", RULES)
def test_fine_tuning_is_that_loop_with_keys_of_its_own(name: str):
    settings = parse_evaluate_recipe(
        {"finetune_optimiser": name, "finetune_lr": 0.003, "weight_decay": 0.02}
    ).settings
    keys = settings.finetuning("fp32")
    assert (keys.optimiser, keys.lr, keys.weight_decay, keys.momentum) == (name, 0.003, 0.02, settings.momentum)
