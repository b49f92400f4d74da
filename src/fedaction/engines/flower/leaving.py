"""What leaves a site in a run, in words and bytes, said before its first round."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any

from fedaction.data.client import ClientData
from fedaction.engines.messages import pack
from fedaction.evaluation.site import METRICS, Evaluation
from fedaction.federation.scope import Scope
from fedaction.methods.base import Plan

_NUMBERS = 400  # bytes of local training's numbers, in a message; methods have up to ten


def say_leaving(plan: Plan, data: ClientData, reports: Collection[str], once: int) -> Iterator[str]:
    """Lines for a site's owner.

    Args:
        plan: who shares which tensor.
        data: the site's.
        reports: what it tells besides tensors.
        once: bytes of tensors that came with the message that began the run.
    """
    numbers = f", and numbers of training (about {_NUMBERS} bytes)" if "training" in reports else ""
    yield f"leaves this site in each round: {len(plan.shared)} shared tensors ({plan.traffic:,} bytes){numbers}"
    evidence = [kind for kind in ("confusion", "topology") if kind in reports]
    if "metrics" in reports:
        yield f"leaves it after each test: metrics (a report of about {size_report(plan, data, reports, ()):,} bytes)"
    if evidence:
        size = size_report(plan, data, reports, evidence)
        yield f"leaves it after the last round: {', '.join(evidence)} (a report of up to about {size:,} bytes)"
    if "metrics" not in reports and not evidence:
        yield "leaves it after a test: that it was done (about 100 bytes)"
    came = f"{once:,} bytes once, and " if once else ""
    kept = [name for name, scope in plan.scopes.items() if scope is Scope.LOCAL]
    size = sum(math.prod(plan.leaves[name].shape) * plan.leaves[name].dtype.itemsize for name in kept)
    yield f"comes here: {came}in each round and for each test the same shared tensors ({plan.traffic:,} bytes)"
    yield f"stays here: {len(kept)} tensors ({size:,} bytes), recordings, and labels of single recordings"


def size_report(plan: Plan, data: ClientData, reports: Collection[str], evidence: Collection[str]) -> int:
    """Bytes of a report as a message, about: numbers are as long as most, counts as long as the longest."""
    info, tests, shown = data.info, len(data.test), dict[str, Any]()
    if "confusion" in evidence:
        count = len(info.classes)
        shown["confusion"] = {"classes": list(info.classes), "matrix": [[tests] * count] * count}
    if "topology" in evidence and info.layout is not None:
        joints = len(info.layout)
        graphs = [name for name in ("A", "I", "U") if f"topology.{name}" in plan.leaves]
        graph: dict[str, Any] = {name: [[-0.12345] * joints] * joints for name in graphs}
        shown["topology"] = {"layout": info.layout.to_dict(), **graph} if graphs else None
    numbers = dict.fromkeys(METRICS, 1 / 3) if "metrics" in reports else {}
    return len(pack(Evaluation(info.id, numbers, shown, tests)))
