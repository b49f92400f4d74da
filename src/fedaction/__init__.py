"""Federated human action recognition across people, sites and devices that may not share their data."""

__version__ = "0.1.0"
