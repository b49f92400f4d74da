"""Federated methods, one file each. `METHODS` is the whole list."""

from fedaction.methods.base import Method
from fedaction.methods.central import Central
from fedaction.methods.centralvssl import CentralVSSL
from fedaction.methods.edge import Edge
from fedaction.methods.fdarn import FDARN
from fedaction.methods.fedagm import FedAGM
from fedaction.methods.fedavg import FedAvg
from fedaction.methods.fedbn import FedBN
from fedaction.methods.fedbuff import FedBuff
from fedaction.methods.fedema import FedEMA
from fedaction.methods.fedprox import FedProx
from fedaction.methods.fedrep import FedRep
from fedaction.methods.fedu import FedU
from fedaction.methods.fedvssl import FedVSSL
from fedaction.methods.fsar import FSAR
from fedaction.methods.lgfedavg import LGFedAvg
from fedaction.methods.local import Local
from fedaction.methods.metahar import MetaHAR
from fedaction.methods.moon import MOON
from fedaction.methods.perfedavg import PerFedAvg
from fedaction.methods.pfedme import PFedMe

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        *(FSAR, FDARN, Edge, FedVSSL),
        *(FedAvg, FedProx, FedBN, FedAGM, MOON, FedEMA, PFedMe, PerFedAvg, LGFedAvg, FedRep, MetaHAR, FedBuff, FedU),
        *(Local, Central, CentralVSSL),
    )
}
"""Methods by the name that recipes use."""

__all__ = [
    "FDARN",
    "FSAR",
    "METHODS",
    "MOON",
    "Central",
    "CentralVSSL",
    "Edge",
    "FedAGM",
    "FedAvg",
    "FedBN",
    "FedBuff",
    "FedEMA",
    "FedProx",
    "FedRep",
    "FedU",
    "FedVSSL",
    "LGFedAvg",
    "Local",
    "MetaHAR",
    "PFedMe",
    "PerFedAvg",
]
