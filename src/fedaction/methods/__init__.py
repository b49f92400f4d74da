"""Federated methods, one file each. `METHODS` is the whole list."""

from fedaction.methods.base import Method
from fedaction.methods.fedavg import FedAvg
from fedaction.methods.fsar import FSAR

METHODS: dict[str, type[Method]] = {method.name: method for method in (FedAvg, FSAR)}
"""Methods by the name that recipes use."""

__all__ = ["FSAR", "METHODS", "FedAvg"]
