"""Every table and figure of FSAR, its supplement, FDARN, Edge and FedVSSL, made again by one command each."""

from fedaction.runs.paper.cells import Workbench
from fedaction.runs.paper.outcome import Outcome
from fedaction.runs.paper.regenerate import ITEMS, find_item, regenerate, runs_of, setting_of, write_outcome
from fedaction.runs.paper.setting import SCALES, setting

__all__ = [
    "ITEMS",
    "SCALES",
    "Outcome",
    "Workbench",
    "find_item",
    "regenerate",
    "runs_of",
    "setting",
    "setting_of",
    "write_outcome",
]
