"""FedVSSL's pretext tasks, one file each. `PRETEXTS` is the whole list."""

from fedaction.data.clips.draws import Drawn
from fedaction.methods.pretext.base import Pretext
from fedaction.methods.pretext.ctp import CtP
from fedaction.methods.pretext.speed import Speed
from fedaction.methods.pretext.vcop import VCOP

PRETEXTS: dict[str, type[VCOP] | type[Speed] | type[CtP]] = {"vcop": VCOP, "speed": Speed, "ctp": CtP}
"""Tasks by the name that recipes use."""

__all__ = ["PRETEXTS", "VCOP", "CtP", "Drawn", "Pretext", "Speed"]
