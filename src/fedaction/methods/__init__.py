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
from fedaction.methods.within import FedAvgPair, FedAvgWithin

METHODS: dict[str, type[Method]] = {
    "fsar": FSAR,
    "fdarn": FDARN,
    "edge": Edge,
    "fedvssl": FedVSSL,
    "fedavg": FedAvg,
    "fedavg_within": FedAvgWithin,
    "fedavg_pair": FedAvgPair,
    "fedprox": FedProx,
    "fedbn": FedBN,
    "fedagm": FedAGM,
    "moon": MOON,
    "fedema": FedEMA,
    "pfedme": PFedMe,
    "perfedavg": PerFedAvg,
    "lgfedavg": LGFedAvg,
    "fedrep": FedRep,
    "metahar": MetaHAR,
    "fedbuff": FedBuff,
    "fedu": FedU,
    "local": Local,
    "central": Central,
    "centralvssl": CentralVSSL,
}
"""Methods by the name that recipes use."""


def title_of(method: str) -> str:
    """A method's name as its authors write it, by the name that recipes use; an unknown one as it is."""
    return METHODS[method].title if method in METHODS else method
