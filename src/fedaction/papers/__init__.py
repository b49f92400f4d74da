"""Every table and figure of FSAR, its supplement, FDARN, Edge and FedVSSL, made again by one command each."""

from fedaction.papers.cells import Workbench
from fedaction.papers.outcome import Outcome
from fedaction.papers.regenerate import ITEMS, find_item, regenerate, runs_of, setting_of, write_outcome
from fedaction.papers.setting import SCALES, setting

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
