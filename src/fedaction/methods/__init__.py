"""Federated methods, one file each. `METHODS` is the whole list."""

from fedaction.methods.base import Method
from fedaction.methods.central import Central
from fedaction.methods.fedagm import FedAGM
from fedaction.methods.fedavg import FedAvg
from fedaction.methods.fedbn import FedBN
from fedaction.methods.fedema import FedEMA
from fedaction.methods.fedprox import FedProx
from fedaction.methods.fsar import FSAR
from fedaction.methods.local import Local
from fedaction.methods.moon import MOON

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (FSAR, FedAvg, FedProx, FedBN, FedAGM, MOON, FedEMA, Local, Central)
}
"""Methods by the name that recipes use."""

__all__ = ["FSAR", "METHODS", "MOON", "Central", "FedAGM", "FedAvg", "FedBN", "FedEMA", "FedProx", "Local"]
