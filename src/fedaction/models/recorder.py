"""Writes down which operations a network does while it runs."""

# torch's operators have no type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportMissingParameterType=false, reportUnknownParameterType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fedaction.models.operations import find_operation, functional_form, name_of

_SAME = {"alias.default", "detach.default", "lift_fresh.default", "lift_fresh_copy.default", "lift.default"}
"""Operations that give what they are given."""
_CHECKS = {"_assert_tensor_metadata.default", "_assert_scalar.default", "_assert_async.msg"}
"""Operations that only check something."""
_RENAMED = {"_unsafe_view.default": "reshape.default", "view.default": "reshape.default"}
"""Operations that are written as others: how memory lies need not be the same wherever a program runs."""
_WHOLE: dict[Any, str] = {
    F.linear: "linear",
    torch.conv1d: "conv1d",
    torch.conv2d: "conv2d",
    torch.conv3d: "conv3d",
    torch.batch_norm: "batch_norm",
    torch.matmul: "matmul",
    torch.gru: "gru",
    torch.lstm: "lstm",
    torch.rnn_tanh: "rnn_tanh",
    torch.rnn_relu: "rnn_relu",
    F.scaled_dot_product_attention: "scaled_dot_product_attention",
}
"""Functions that stay whole, because torch has one fast operation for each; others are seen taken apart."""


class RecordError(ValueError):
    """What a network does that cannot be written down."""


class ChangeError(RecordError):
    """A network that changes tensors in place, in ways that a recorder does not follow."""


@dataclass(frozen=True)
class Argument:
    """An argument that is no plain number, text or list; `kind` and `what` as `models.program.Graph` says."""

    kind: str
    what: Any


@dataclass(frozen=True)
class Recorded:
    """One operation, and the layer that did it."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    layer: str


def _order_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Any, ...]:
    """The arguments of `F.batch_norm` as `torch.batch_norm` takes them."""
    return x, weight, bias, running_mean, running_var, training, momentum, eps, False


class _Whole(TorchFunctionMode):
    """Sees the functions that stay whole before torch takes them apart."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.batch_norm:  # which is written in Python, and would hide the one in torch
            func, args, kwargs = torch.batch_norm, _order_norm(*args, **kwargs), {}
        name = _WHOLE.get(func)
        if name is None or self._recorder.muted:
            return func(*args, **kwargs)
        overload = "default"
        if name in ("gru", "lstm", "rnn_tanh", "rnn_relu"):
            if isinstance(args[2], Tensor):  # packed sequences: their operations depend on the lengths
                return func(*args, **kwargs)
            overload = "input"
        elif name.startswith("conv") and any(isinstance(value, str) for value in (*args, *kwargs.values())):
            overload = "padding"
        self._recorder.muted = True
        try:
            out = func(*args, **kwargs)
        finally:
            self._recorder.muted = False
        return self._recorder.note(f"{name}.{overload}", args, kwargs, out)


class Recorder(TorchDispatchMode):
    """Sees every operation that a network does."""

    def __init__(self, module: nn.Module, x: Tensor) -> None:
        super().__init__()
        self.muted = False
        self.nodes: list[Recorded] = []
        self.tensors: dict[str, Tensor] = {}
        self.output = 0
        self.layer = ""
        self._own = {id(t): n for n, t in (*module.named_parameters(), *module.named_buffers())}
        self._kept: list[Any] = [x]  # as long as they are here, no other has their id
        self._values: dict[int, int] = {id(x): 0}
        self._storages: dict[int, list[Tensor]] = {x.untyped_storage().data_ptr(): [x]}
        self._stale: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and loading torch's compiler takes longer than all of the rest

    @classmethod
    def run(cls, module: nn.Module, x: Tensor) -> Recorder:
        """Runs a network on samples, which it should not change, and gives what was recorded."""
        recorder = cls(module, x)
        hooks = [part.register_forward_pre_hook(recorder._enter(name)) for name, part in module.named_modules()]
        hooks += [part.register_forward_hook(recorder._leave(name)) for name, part in module.named_modules()]
        try:
            with torch.no_grad(), recorder, _Whole(recorder):
                out = module(x)
        except RecordError:
            raise
        except Exception as error:  # whatever a network raises
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise RecordError(f"the network cannot be run, in {recorder.layer or 'itself'}: {said}") from error
        finally:
            for hook in hooks:
                hook.remove()
        if not isinstance(out, Tensor):
            raise RecordError(f"the network gives {type(out).__name__}, not one tensor of logits")
        if id(out) not in recorder._values:
            raise RecordError("what the network gives does not depend on its input")
        recorder.output = recorder._values[id(out)]
        return recorder

    def _enter(self, name: str) -> Any:
        def enter(module: nn.Module, args: Any) -> None:
            self.layer = name

        return enter

    def _leave(self, name: str) -> Any:
        def leave(module: nn.Module, args: Any, out: Any) -> None:
            self.layer = name.rpartition(".")[0]

        return leave

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Does an operation and writes it down; one that no program may use is taken apart."""
        kwargs = kwargs or {}
        if self.muted:
            return func(*args, **kwargs)
        name = name_of(func)
        if name in _CHECKS:
            return None
        if name in _SAME:
            # The same object where that can be, so that in-place changes are seen; else another name for it.
            out = func(*args, **kwargs)
            self._keep(out, self._reference(args[0]))
            return out
        if name in ("sym_size.int", "sym_numel.default"):
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            return self._change(func, args, kwargs)
        if name == "index.Tensor" and any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1]):
            raise RecordError(f"{self.layer or 'the network'} chooses by the values of samples (index with a mask)")
        if find_operation(_RENAMED.get(name, name)) is None:
            return self._take_apart(func, args, kwargs)
        return self.note(_RENAMED.get(name, name), args, kwargs, func(*args, **kwargs))

    def note(self, name: str, args: Any, kwargs: Any, out: Any) -> Any:
        """Writes an operation down that gave `out`."""
        self.nodes.append(
            Recorded(
                name, [self._encode(a) for a in args], {k: self._encode(v) for k, v in kwargs.items()}, self.layer
            )
        )
        place = len(self.nodes)
        if isinstance(out, Tensor):
            self._keep(out, Argument("v", place))
        elif isinstance(out, list | tuple) and all(isinstance(item, Tensor) for item in out):
            for position, item in enumerate(out):
                self.nodes.append(Recorded("getitem", [Argument("v", place), position], {}, self.layer))
                self._keep(item, Argument("v", len(self.nodes)))
        else:
            raise RecordError(f"{name} in {self.layer or 'the network'} gives a number that depends on the samples")
        return out

    def _take_apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Does an operation as several others."""
        with self:
            out = func.decompose(*args, **kwargs) if hasattr(func, "decompose") else NotImplemented
            if out is NotImplemented:
                table = torch.export.default_decompositions()
                if func not in table:
                    raise RecordError(
                        f"operation {name_of(func)} in {self.layer or 'the network'} cannot be part of a model file: "
                        "it draws random numbers, depends on the values of samples, or is not one of torch's own"
                    )
                out = table[func](*args, **kwargs)
        return out

    def _change(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation that changes its first argument: as one that gives a new tensor, where nobody else has it."""
        form, where = functional_form(func), self.layer or "the network"
        target = args[0] if args and isinstance(args[0], Tensor) else None
        if form is None or target is None or id(target) not in self._values or kwargs.get("out") is not None:
            raise ChangeError(f"{name_of(func)} in {where} changes a tensor that is not its own result")
        encoded = list(args), dict(kwargs)
        storage = target.untyped_storage().data_ptr()
        others = {id(t) for t in self._storages.get(storage, []) if t is not target}
        name = name_of(form)
        if find_operation(name) is None:
            raise ChangeError(f"operation {name_of(func)} in {where} cannot be part of a model file")
        node = Recorded(
            name,
            [self._encode(a) for a in encoded[0]],
            {k: self._encode(v) for k, v in encoded[1].items()},
            self.layer,
        )
        out = func(*args, **kwargs)
        self.nodes.append(node)
        self._values[id(target)] = len(self.nodes)
        self._stale |= others
        return out

    def _keep(self, out: Tensor, value: Argument) -> None:
        self._kept.append(out)
        if value.kind == "v":
            self._values[id(out)] = value.what
        else:
            self._own[id(out)] = value.what
        self._storages.setdefault(out.untyped_storage().data_ptr(), []).append(out)

    def _reference(self, tensor: Tensor) -> Argument:
        key = id(tensor)
        if key in self._stale:
            raise ChangeError(f"a tensor is read after a view of it was changed, in {self.layer or 'the network'}")
        if key in self._values:
            return Argument("v", self._values[key])
        if key not in self._own:  # made outside of what is recorded, from nothing that was
            self._own[key] = f"constant.{sum(name.startswith('constant.') for name in self.tensors)}"
            self._kept.append(tensor)
        name = self._own[key]
        if name not in self.tensors:
            self.tensors[name] = tensor.detach().clone()
        return Argument("t", name)

    def _encode(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._reference(value)
        if isinstance(value, list | tuple):
            return [self._encode(item) for item in value]
        if isinstance(value, torch.dtype):
            return Argument("dtype", str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return Argument("device", True)
        if isinstance(value, torch.memory_format):
            return Argument("format", str(value).removeprefix("torch."))
        if isinstance(value, torch.layout):
            if value is not torch.strided:
                raise RecordError(f"a tensor in layout {value}, in {self.layer or 'the network'}")
            return None
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise RecordError(f"an argument of type {type(value).__name__}, in {self.layer or 'the network'}")
