import torch

from fedaction.federation.seeds import derive, generator, numpy_generator


def test_seeds_are_pinned_so_that_old_runs_can_be_repeated():
    assert derive(0, "batches", "client-1", 3) == 6157337177687519926
    assert 0 <= derive(1, "x") < 2**63


def test_purposes_do_not_run_into_each_other():
    seen = {
        derive(0),
        derive(0, "a", "bc"),
        derive(0, "ab", "c"),
        derive(0, 1),
        derive(0, "1"),
        derive(1),
        derive(0, ""),
    }
    assert len(seen) == 7


def test_generators_are_fresh_each_time_and_leave_the_global_one_alone():
    before = torch.random.get_rng_state()
    assert torch.equal(torch.rand(3, generator=generator(0, "a")), torch.rand(3, generator=generator(0, "a")))
    assert numpy_generator(0, "a").random() == numpy_generator(0, "a").random()
    assert torch.equal(before, torch.random.get_rng_state())
