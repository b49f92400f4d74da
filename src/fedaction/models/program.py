"""A network of any architecture as data: the operations that it does, as JSON, and what runs them again.

    graph, tensors = record(network, example)      example: (N, *shape) samples, any N
    network = Program(graph, tensors)              an nn.Module; its tensors have the names that they had
    Graph.from_json(text)                          checked: whoever wrote it, reading it runs nothing of theirs

A program is a list of torch's own operations with their arguments. Sizes that depend on the number of samples n are
written as p n + q. They are found by recording a network twice, with two samples and with three; what was recorded
is then run with other numbers, and must give what the network gives.
"""

# torch's operators have no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportMissingParameterType=false, reportUnknownParameterType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedaction.models.operations import FIXED, find_operation, makes_tensors
from fedaction.models.recorder import Argument, ChangeError, Recorder, RecordError

MOST_NODES = 50_000
"""Operations of a program; the networks here have about 2,000."""
MOST_CHARACTERS = 2**25
"""Of a program's JSON."""
MOST_ELEMENTS = 2**28
"""Of one intermediate result for one sample; of all that are held at a time, four times as many."""
TOLERANCE = 1e-4
"""The most that a program's output may differ from its network's, as a share of the largest (of 1, if smaller)."""

_TYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
}
_FORMATS = {
    str(f).removeprefix("torch."): f
    for f in (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
}
_TRIALS = (1, 3, 7)


class ProgramError(ValueError):
    """A network that cannot be written as a program, or a program that cannot be run, and why."""


@dataclass(frozen=True)
class Node:
    """One operation: `name` is torch's ("conv2d.default") or "getitem"; arguments are as JSON has them."""

    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Graph:
    """What a network does. Values are numbered: 0 is the input, i the result of operation i (from 1).

    An argument is null, a number, a text, a list, or an object: {"v": i} a value, {"t": name} one of the network's
    tensors, {"n": [p, q]} the whole number p n + q for n samples, {"float": "inf"}, {"dtype": name},
    {"format": name}, {"device": true}: wherever the input is.
    """

    nodes: tuple[Node, ...]
    output: int

    def to_json(self) -> str:
        """One line."""
        nodes = [[n.name, list(n.args), *([dict(n.kwargs)] if n.kwargs else [])] for n in self.nodes]
        return json.dumps({"nodes": nodes, "output": self.output}, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """Reads one; a ProgramError says what is wrong with it."""
        if len(text) > MOST_CHARACTERS:
            raise ProgramError(f"the program has {len(text)} characters, more than {MOST_CHARACTERS}")
        try:
            values = json.loads(text)
            given, output = values["nodes"], values["output"]
            nodes = tuple(Node(item[0], item[1], item[2] if len(item) > 2 else {}) for item in given)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            raise ProgramError("the program is not a list of operations in JSON") from None
        graph = cls(nodes, output)
        graph.check()
        return graph

    def check(self) -> None:
        """Raises ProgramError unless every operation is allowed and reads what comes before it."""
        if len(self.nodes) > MOST_NODES:
            raise ProgramError(f"the program has {len(self.nodes)} operations, more than {MOST_NODES}")
        for place, node in enumerate(self.nodes, 1):
            if not isinstance(node.name, str) or not isinstance(node.args, list) or not isinstance(node.kwargs, dict):
                raise ProgramError(f"operation {place} is not a name and its arguments")
            if node.name != "getitem" and find_operation(node.name) is None:
                raise ProgramError(f"operation {place} is {node.name[:60]!r}, which programs may not use")
            if node.name in FIXED:
                _check_fixed(node, place)
            for value in (*node.args, *node.kwargs.values()):
                _check_argument(value, place, 0)
            if node.kwargs.get("device") not in (None, {"device": True}) or node.kwargs.get("layout") is not None:
                raise ProgramError(f"operation {place} names a device or a layout of its own")
        if not isinstance(self.output, int) or not 0 <= self.output <= len(self.nodes):
            raise ProgramError("the program's output is none of its values")

    def names(self) -> set[str]:
        """The network's tensors that it reads."""
        found: set[str] = set()

        def look(value: Any) -> None:
            if isinstance(value, dict) and "t" in value:
                found.add(value["t"])
            elif isinstance(value, list):
                for item in value:
                    look(item)

        for node in self.nodes:
            look([*node.args, *node.kwargs.values()])
        return found


def _check_fixed(node: Node, place: int) -> None:
    name, needed = FIXED[node.name]
    schema = find_operation(node.name)._schema
    position = [argument.name for argument in schema.arguments].index(name)
    given = node.args[position] if position < len(node.args) else node.kwargs.get(name, needed)
    if given != needed or isinstance(given, dict):
        raise ProgramError(f"operation {place}, {node.name}, has {name} = {given!r}; it may only be {needed!r}")


def _check_argument(value: Any, place: int, depth: int) -> None:
    """One argument of operation `place`."""
    if value is None or isinstance(value, bool | str) or (isinstance(value, float) and math.isfinite(value)):
        return
    if isinstance(value, int) and abs(value) < 2**63:
        return
    if isinstance(value, list) and depth < 4:
        for item in value:
            _check_argument(item, place, depth + 1)
        return
    if isinstance(value, dict) and len(value) == 1:
        (kind, what), *_ = value.items()
        if kind == "v" and type(what) is int and 0 <= what < place:
            return
        if kind == "t" and isinstance(what, str):
            return
        pair = isinstance(what, list) and len(what) == 2 and all(type(i) is int and abs(i) < 2**40 for i in what)
        if (kind == "n" and pair) or (kind == "float" and what in ("inf", "-inf", "nan")):
            return
        if kind == "device" and what is True:
            return
        if isinstance(what, str) and what in {"dtype": _TYPES, "format": _FORMATS}.get(kind, {}):
            return
    raise ProgramError(f"operation {place} has an argument that cannot be used: {str(value)[:60]}")


class Program(nn.Module):
    """A network that does what a graph says, in evaluation mode always.

    Args:
        graph: what it does.
        tensors: by name, those that the graph reads; others are left out.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._program_graph = graph
        self._program_places: dict[str, tuple[nn.Module, str]] = {}
        for name in sorted(graph.names()):
            if name not in tensors:
                raise ProgramError(f"the program reads a tensor {name[:80]!r}, which is not there")
            self._place(name, tensors[name].detach())
        last = dict[int, int]()  # the operation that reads a value last
        for place, node in enumerate(graph.nodes, 1):
            for value in _values_of([*node.args, *node.kwargs.values()]):
                last[value] = place
        last.pop(graph.output, None)
        self._program_done: dict[int, list[int]] = {}
        for value, place in last.items():
            self._program_done.setdefault(place, []).append(value)
        self.eval()

    @property
    def graph(self) -> Graph:
        """What it does."""
        return self._program_graph

    def _place(self, name: str, tensor: Tensor) -> None:
        *path, leaf = name.split(".")
        module: nn.Module = self
        try:
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_buffer(leaf, tensor)
        except (KeyError, TypeError, AttributeError) as error:
            raise ProgramError(f"a tensor cannot be called {name[:80]!r}: {error}") from None
        self._program_places[name] = module, leaf

    def forward(self, x: Tensor) -> Tensor:
        """(N, *shape) samples to what the network gives for them."""
        return self._run(x, None)

    def _run(self, x: Tensor, watch: Any) -> Tensor:
        graph, count = self._program_graph, x.shape[0]
        tensors = {name: getattr(module, leaf) for name, (module, leaf) in self._program_places.items()}
        values: dict[int, Any] = {0: x}

        def decode(value: Any) -> Any:
            if isinstance(value, list):
                return [decode(item) for item in value]
            if not isinstance(value, dict):
                return value
            (kind, what), *_ = value.items()
            if kind == "v":
                return values[what]
            if kind == "t":
                return tensors[what]
            if kind == "n":
                return what[0] * count + what[1]
            if kind == "device":
                return x.device
            return float(what) if kind == "float" else (_TYPES if kind == "dtype" else _FORMATS)[what]

        for place, node in enumerate(graph.nodes, 1):
            args = [decode(value) for value in node.args]
            if node.name == "getitem":
                result = args[0][args[1]]
            else:
                kwargs = {name: decode(value) for name, value in node.kwargs.items()}
                if makes_tensors(node.name):
                    kwargs["device"] = x.device
                result = find_operation(node.name)(*args, **kwargs)
            values[place] = result
            if watch is not None:
                watch(place, node, values)
            for value in self._program_done.get(place, ()):
                del values[value]
        return values[graph.output]

    def check_size(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> tuple[int, ...]:
        """The shape of what it gives for one sample, found without computing anything.

        Raises ProgramError where an operation does not fit its arguments, or gives more than `MOST_ELEMENTS`.
        """

        def watch(place: int, node: Node, values: Mapping[int, Any]) -> None:
            sizes = [sum(t.numel() for t in _tensors_of(value)) for value in values.values()]
            most = sum(t.numel() for t in _tensors_of(values[place]))
            if most > MOST_ELEMENTS or sum(sizes) > 4 * MOST_ELEMENTS:
                raise ProgramError(
                    f"operation {place}, {node.name}, needs {max(most, sum(sizes)):,} numbers for one sample, more "
                    f"than the {MOST_ELEMENTS:,} that are allowed"
                )

        if math.prod(shape) > MOST_ELEMENTS:
            raise ProgramError(f"samples of {tuple(shape)} have more than {MOST_ELEMENTS:,} numbers")
        ghost = Program(self.graph, {n: getattr(m, leaf).to("meta") for n, (m, leaf) in self._program_places.items()})
        try:
            with torch.no_grad():
                out = ghost._run(torch.empty(1, *shape, dtype=dtype, device="meta"), watch)
        except ProgramError:
            raise
        except Exception as error:  # torch raises errors of many kinds where arguments do not fit
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise ProgramError(f"the program cannot be run on samples of {tuple(shape)}: {said}") from None
        if not isinstance(out, Tensor) or out.dim() < 1 or out.shape[0] != 1:
            raise ProgramError("the program does not give one result for every sample")
        return tuple(out.shape[1:])


def _tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for item in value for t in _tensors_of(item)] if isinstance(value, list | tuple) else []


def _values_of(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {value["v"]} if "v" in value else set()
    return {i for item in value for i in _values_of(item)} if isinstance(value, list) else set()


def record(module: nn.Module, example: Tensor) -> tuple[Graph, dict[str, Tensor]]:
    """What a network does with samples, and the tensors that it reads, by name.

    Args:
        module: any network whose operations do not depend on the values of samples; it is left as it is.
        example: (N, *shape) samples such as it takes; at least one, on the module's device.

    Returns:
        The graph and the tensors: the module's own under their names, others as "constant.0", "constant.1", ...
        A network that cannot be written so is a ProgramError that names the operation and the layer.
    """
    modes = {name: part.training for name, part in module.named_modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)  # one operation that only torch knows
    try:
        try:
            return _record_checked(module, module, example)
        except ChangeError as first:
            try:  # torch.export disentangles what can be
                return _record_checked(_export(module, example), module, example)
            except Exception:  # of many kinds; what was said first names the layer
                raise ProgramError(str(first)) from first
        except RecordError as error:
            raise ProgramError(str(error)) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for name, part in module.named_modules():
            part.training = modes[name]


def _record_checked(traced: nn.Module, module: nn.Module, example: Tensor) -> tuple[Graph, dict[str, Tensor]]:
    """Records a network, and holds what was recorded against a second one that should do the same."""
    runs = [Recorder.run(traced, _resize(example, count)) for count in (2, 3)]
    nodes = _unify(runs[0], runs[1])
    graph = Graph(tuple(nodes), runs[0].output)
    tensors = dict(runs[0].tensors)
    graph.check()
    program = Program(graph, tensors)
    with torch.no_grad():
        for count in _TRIALS:
            x = _resize(example, count)
            wanted, got = module(x), program(x)
            if wanted.shape != got.shape or wanted.shape[:1] != (count,):
                raise RecordError(
                    f"for {count} samples the network gives {tuple(wanted.shape)}, its recording {tuple(got.shape)}"
                )
            scale = wanted.abs().max().clamp(min=1.0)
            if not float((wanted - got).abs().max() / scale) <= TOLERANCE and wanted.isfinite().all():
                raise RecordError(
                    f"what was recorded does not give what the network gives for {count} samples: it does other "
                    "things for other samples, or draws random numbers"
                )
    return graph, tensors


def _resize(example: Tensor, count: int) -> Tensor:
    """As many samples, by repeating what there is."""
    return example[torch.arange(count, device=example.device) % len(example)]


def _export(module: nn.Module, example: Tensor) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            module, (_resize(example, 3),), dynamic_shapes=({0: torch.export.Dim("samples", min=1)},), strict=False
        )
        return program.run_decompositions({}).module(check_guards=False)


def _unify(two: Recorder, three: Recorder) -> list[Node]:
    """One list of operations out of what was recorded with two and with three samples."""
    if [n.name for n in two.nodes] != [n.name for n in three.nodes] or two.output != three.output:
        raise RecordError("the network does other operations for two samples than for three")
    for name, tensor in two.tensors.items():
        if name not in three.tensors or not torch.equal(tensor, three.tensors[name]):
            raise RecordError("the network makes a constant that depends on the number of samples")
    nodes: list[Node] = []
    for a, b in zip(two.nodes, three.nodes, strict=True):
        where = f"{a.name} in {a.layer or 'the network'}"
        args = [_solve(p, q, where) for p, q in zip(a.args, b.args, strict=True)]
        kwargs = {key: _solve(a.kwargs[key], b.kwargs[key], where) for key in a.kwargs}
        nodes.append(Node(a.name, args, kwargs))
    return nodes


def _solve(two: Any, three: Any, where: str) -> Any:
    """One argument, from those with two and with three samples: where they differ, p n + q."""
    if isinstance(two, Argument) or isinstance(three, Argument):
        if two != three:
            raise RecordError(f"{where} reads other tensors for two samples than for three")
        return {two.kind: two.what}
    if isinstance(two, list) and isinstance(three, list) and len(two) == len(three):
        return [_solve(p, q, where) for p, q in zip(two, three, strict=True)]
    if type(two) is int and type(three) is int and two != three:
        return {"n": [three - two, 3 * two - 2 * three]}
    if isinstance(two, float) and not math.isfinite(two) and str(two) == str(three):
        return {"float": str(two)}
    if two != three or type(two) is not type(three):
        raise RecordError(f"{where} has an argument that depends on the number of samples: {two}, then {three}")
    return two
