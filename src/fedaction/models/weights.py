"""Public checkpoint files into a network, by the names of their tensors. Nothing in a file is ever executed.

Files: .safetensors of any origin, and torch's .pth, .pt, .tar and .ckpt, of which only tensors and plain values are
read. Names that are understood, with or without `module.` or `backbone.` before them:

- this package's own;
- Hara's 3D ResNets (`fc` is the classifier; 2017's files of depth 18 and 34 have shortcuts of type A);
- torchvision's r3d_18 (`stem.0`, `layer1.0.conv1.0`, ...), for `ResNet3D(18, stem_frames=3, pool=False)`;
- CtP's and FedVSSL's R3D-18 (`backbone.stem.conv`, `layer1.0.conv1.conv`, `downsample_bn`), for the same network with
  `eps=1e-3`.

A file says nothing about the pixels' mean and standard deviation that its network was trained with: give them to
ResNet3D where they are not its defaults.
"""

from __future__ import annotations

import pickle
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedaction.federation.outside import check_amount, check_size, most_unpacked, refuse_damage, shorten

_PREFIXES = ("module.", "backbone.", "model.", "network.")
_INSIDE = ("state_dict", "model_state_dict", "model_state", "model", "network")
_SUFFIXES = (".pth", ".pt", ".tar", ".ckpt")
_RENAMED: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"^(fc|fc_cls|head\.fc|cls_head\.(fc_cls|fc|new_fc))\.", "classifier."),
        (r"^stem\.(0|conv)\.", "conv1."),
        (r"^stem\.(1|bn)\.", "bn1."),
        (r"^(layer\d\.\d+\.conv[12])\.(0|conv)\.", r"\1."),
        (r"^(layer\d\.\d+)\.conv([12])\.1\.", r"\1.bn\2."),
        (r"^(layer\d\.\d+\.downsample)\.conv\.", r"\1.0."),
        (r"^(layer\d\.\d+)\.downsample_bn\.", r"\1.downsample.1."),
    )
)


class WeightsError(ValueError):
    """A checkpoint file that does not fit or cannot be trusted, and why."""


@dataclass(frozen=True)
class Loaded:
    """What became of a file's tensors and the network's."""

    loaded: tuple[str, ...]
    """The network's tensors that now have the file's values."""
    initial: tuple[str, ...]
    """The network's tensors that were asked to be skipped and keep their values."""
    ignored: tuple[str, ...]
    """The file's tensors that were not used: those skipped, and BatchNorm's counters of batches."""


def load_weights(network: nn.Module, path: str | Path, skip: Iterable[str] = ()) -> Loaded:
    """Copies a file's tensors into a network: all that are needed, or none.

    Args:
        network: what to load into.
        path: the file.
        skip: names or beginnings of names ("classifier"), of the network's tensors that keep their values and of the
            file's that are not used.

    Raises:
        WeightsError: the file cannot be read or would execute code; or tensors are missing or unknown, have another
            shape, are not floating-point or not finite. All are named at once, and the network is as before.
    """
    skip = tuple(skip)
    own = network.state_dict()
    known, ignored = _sort_out(path, read_tensors(path), skip)
    wanted = {name: tensor for name, tensor in own.items() if not _begins_with(name, skip)}
    wrong = [words for name in wanted.keys() & known.keys() if (words := _unfit(name, known[name], own[name]))]
    wrong += [f"{name} is not in the network" for name in known.keys() - own.keys()]
    missing = sorted(wanted.keys() - known.keys())
    if wrong or missing:
        raise WeightsError(_complaint(path, sorted(wrong), missing, known, own))
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(known[name])
    return Loaded(tuple(wanted), tuple(name for name in own if name not in wanted), tuple(ignored))


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """A checkpoint file's tensors on the CPU, under the file's own names."""
    path = Path(path)
    if path.suffix == ".safetensors":
        with refuse_damage(path, "a .safetensors file", WeightsError):
            check_size(path, sys.maxsize, WeightsError)
            return load_file(path)
    if path.suffix not in _SUFFIXES:
        raise WeightsError(
            f"{path}: checkpoint files end in .safetensors, {', '.join(_SUFFIXES)}; rename it if it is one of these"
        )
    with refuse_damage(path, "a torch file", WeightsError):
        content = _load_plain(path)
    for key in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content or not all(isinstance(name, str) for name in content):
        raise WeightsError(f"{path} holds no named tensors, neither itself nor under {', '.join(_INSIDE)}")
    others = [name for name, value in content.items() if not isinstance(value, Tensor)]
    if others:
        raise WeightsError(f"{path}: {others[0]!r} is no tensor but {type(content[others[0]]).__name__}")
    return dict(content)


def _load_plain(path: Path) -> Any:
    """What torch has saved, if it is tensors and plain values."""
    if zipfile.is_zipfile(path):  # torch packs nothing, but reads what is packed
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        check_amount(size, most_unpacked(path), path, "unpacks to", kind=WeightsError)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} holds more than tensors and plain values, and reading that could execute code, so it was not "
            f"read ({shorten(str(error).splitlines()[0])}); where you trust it, save its state_dict() alone and load "
            "that"
        ) from None


def own_name(name: str) -> str:
    """The name that this package gives to a public checkpoint's tensor, as far as it is known."""
    stripped = True
    while stripped:
        prefix = next((p for p in _PREFIXES if name.startswith(p)), "")
        name, stripped = name.removeprefix(prefix), bool(prefix)
    for pattern, instead in _RENAMED:
        name = pattern.sub(instead, name)
    return name


def _sort_out(
    path: str | Path, tensors: Mapping[str, Tensor], skip: tuple[str, ...]
) -> tuple[dict[str, Tensor], list[str]]:
    """The file's tensors under the network's names, and those that nothing is done with."""
    known: dict[str, Tensor] = {}
    ignored: list[str] = []
    for name, tensor in tensors.items():
        new = own_name(name)
        if new.endswith("num_batches_tracked") or _begins_with(new, skip) or _begins_with(name, skip):
            ignored.append(name)
        elif new in known:
            raise WeightsError(f"{path} has two tensors for {new!r}; one of them is {name!r}")
        else:
            known[new] = tensor
    return known, ignored


def _begins_with(name: str, beginnings: Iterable[str]) -> bool:
    return any(name == start or name.startswith(start.rstrip(".") + ".") for start in beginnings)


def _unfit(name: str, given: Tensor, own: Tensor) -> str:
    if given.layout is not torch.strided or given.device.type != "cpu" or not given.is_floating_point():
        return f"{name} is {given.dtype} ({given.layout}, {given.device}), not plain floating-point numbers"
    if given.shape != own.shape:
        return f"{name} is {tuple(given.shape)} in the file and {tuple(own.shape)} in the network"
    if not torch.isfinite(given).all():
        return f"{name} has values that are not finite"
    if name.endswith("running_var") and (given < 0).any():
        return f"{name}, a variance, has values below 0"
    return ""


def _complaint(
    path: str | Path, wrong: list[str], missing: list[str], known: Mapping[str, Tensor], own: Mapping[str, Tensor]
) -> str:
    lines = wrong + [f"{name} is not in the file" for name in missing]
    said = "; ".join(lines[:6]) + (f"; and {len(lines) - 6} more" if len(lines) > 6 else "")
    shortcuts = [any(".downsample." in name for name in names) for names in (known, own)]
    stem, here = (list(names["conv1.weight"].shape) if "conv1.weight" in names else [0] for names in (known, own))
    hint = ""
    if shortcuts[0] != shortcuts[1]:
        has, kind = ("", "B") if shortcuts[0] else ("no ", "A")
        hint = f' The file has {has}downsample tensors: build the network with shortcut="{kind}".'
    elif len(stem) == len(here) == 5 and stem != here:
        hint = f" The file's stem has stem_frames={stem[2]} and width={stem[0]}."
    if all("classifier." in line for line in lines):
        hint = ' For a classifier of your own give skip=("classifier",).'
    return f"{path} does not fit the network, which is left as it was: {said}.{hint}"
