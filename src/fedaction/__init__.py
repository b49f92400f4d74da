"""Federated human action recognition: what `import fedaction as fa` offers.

clients             clients from arrays: by person, by site, with people or a share held out
run                 train a method, or a network of your own, over clients, beside baselines
load_run, Run       a finished or running run: accuracy, metrics, confusion, networks, report
predict             what a trained network says of a recording
load_network        a model file, ready for use
Method, Settings    to write a method: what to minimise, and its keys
ScopeTable, Rule    who shares which tensor ...
GLOBAL, GROUP, LOCAL, FROZEN    ... and with whom
callbacks           TensorBoard, MLflow and Weights & Biases, told of every round

docs/python.md shows all of them at work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedaction.federation.loading import without_collection

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fedaction.api import callbacks
    from fedaction.api.clients import clients
    from fedaction.api.results import Run, load_run, predict
    from fedaction.api.run import run
    from fedaction.federation.scope import FROZEN, GLOBAL, GROUP, LOCAL, Rule, ScopeTable
    from fedaction.federation.settings import Settings
    from fedaction.methods.base import Method
    from fedaction.serve.network import load_network

_NAMES = {
    "clients": "api.clients",
    "run": "api.run",
    "load_run": "api.results",
    "Run": "api.results",
    "predict": "api.results",
    "load_network": "serve.network",
    "Method": "methods.base",
    "Settings": "federation.settings",
    "ScopeTable": "federation.scope",
    "Rule": "federation.scope",
    "GLOBAL": "federation.scope",
    "GROUP": "federation.scope",
    "LOCAL": "federation.scope",
    "FROZEN": "federation.scope",
    "callbacks": "api.callbacks",
}
__all__ = [
    "FROZEN",
    "GLOBAL",
    "GROUP",
    "LOCAL",
    "Method",
    "Rule",
    "Run",
    "ScopeTable",
    "Settings",
    "callbacks",
    "clients",
    "load_network",
    "load_run",
    "predict",
    "run",
]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are used: torch takes seconds, and the command's `--help` needs none."""
    if name not in _NAMES:
        raise AttributeError(f"module 'fedaction' has no attribute {name!r}")
    with without_collection():
        module = import_module(f"fedaction.{_NAMES[name]}")
    value = module if name == "callbacks" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
