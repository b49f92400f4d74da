"""The same results on a GPU. Run with `pytest -m gpu` where there is one."""

from dataclasses import replace

import pytest
import torch

from fedaction.engines.base import set_precision
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.methods.start import initial_state
from tests.conftest import CROSS_MODAL, LABELLED, federation_for
from tests.engines.test_engines_agree import CPU, TOLERANCE, TRAINING, jobs_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("kind", [SequentialEngine, VectorisedEngine])
def test_cuda_agrees_with_the_cpu_and_with_itself(double, name, kind):
    set_precision(tf32=False)  # without it cuDNN may sum in another order each time
    clients, method = federation_for(name, model_dropout=0.2)
    training = replace(TRAINING, augment=None) if name in CROSS_MODAL else TRAINING
    jobs = jobs_of(method, initial_state(method, 3), clients)
    expected = list(SequentialEngine(method, clients, training, CPU).train(jobs))
    cuda = torch.device("cuda")
    first, second = (list(kind(method, clients, training, cuda).train(jobs)) for _ in range(2))
    for one, two, again in zip(expected, first, second, strict=True):
        for n in one.tree:
            torch.testing.assert_close(one.tree[n], two.tree[n].cpu(), atol=TOLERANCE, rtol=TOLERANCE)
            assert torch.equal(two.tree[n], again.tree[n]), n
