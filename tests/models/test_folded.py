"""The network made ready for use gives what the network gives."""

import pytest
import torch

from fedaction.federation.seeds import generator
from fedaction.models.folded import Folded
from fedaction.models.resnet3d import ResNet3D
from tests.models.common import close, filled


def with_statistics(model):
    """Random statistics too, so that folding them wrongly shows."""
    for name, tensor in model.named_buffers():
        if "running" in name:
            random = torch.rand(tensor.shape, generator=generator(1, name)).to(tensor)
            tensor.copy_(random + 0.5 if "var" in name else random - 0.5)
    return model.eval()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shortcut": "A", "frame_strides": (1, 2, 1, 2)},
        {"stem_frames": 3, "pool": False, "eps": 1e-2, "image_strides": (1, 2, 2, 1)},
        {"depth": 26, "stem_stride": 2, "mean": (1.0, 2.0, 3.0), "std": (40.0, 50.0, 60.0)},
    ],
)
def test_it_gives_the_same_logits(double, options):
    network = with_statistics(filled(ResNet3D(**{"depth": 18, "classes": 5, "width": 3, **options})))
    before = {n: t.clone() for n, t in network.state_dict().items()}
    folded = Folded(network)
    clips = torch.randint(0, 256, (2, 9, 30, 37, 3), generator=generator(0, "clips"), dtype=torch.uint8)
    expected = network(clips)
    close(folded(clips), expected)
    close(folded(clips.double()), expected)
    assert folded(clips).std() > 0 and not list(folded.parameters())
    assert all(torch.equal(t, before[n]) for n, t in network.state_dict().items())


def test_a_network_without_a_classifier_is_refused():
    with pytest.raises(ValueError, match="no classifier"):
        Folded(ResNet3D(18, 0, 2))
