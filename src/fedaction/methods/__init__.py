"""Federated methods, one file each. `METHODS` is the whole list."""

from fedaction.methods.fedavg import FedAvg
from fedaction.methods.fsar import FSAR

METHODS = {method.name: method for method in (FedAvg, FSAR)}
"""Methods by the name that recipes use."""

__all__ = ["FSAR", "METHODS", "FedAvg"]
