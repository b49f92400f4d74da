"""Analyses of finished runs: each a table, a picture and a JSON file in the run's folder `analyses`."""

from fedaction.analyses.every import ANALYSES, Analysed, analyse

__all__ = ["ANALYSES", "Analysed", "analyse"]
