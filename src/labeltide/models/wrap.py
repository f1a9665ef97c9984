"""Any torch module as a fleet: its weights stacked over members, each of which runs as a module of its own.

`torch.func.vmap` would run members together. It cannot run recurrent layers, fails in the backward pass of attention on
a GPU, and was at most a fifth faster elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Generator, Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.parameter import is_lazy

from labeltide.models.base import SequenceModel, check_logits

ModuleSource = nn.Module | Callable[[int, int], nn.Module]
Tensors = dict[str, Tensor]


def wrap(module_or_factory: ModuleSource, *, causal: bool = True) -> ModelFactory:
    """Turn a torch module into a model; it maps (batch, steps, features) to logits (batch, steps, classes).

    Parameters
    ----------
    module_or_factory : nn.Module, or a function (n_features, n_classes) -> nn.Module
        Members start as copies of the module, or each from its own call of the function under its own seed.
        A class whose constructor takes (n_features, n_classes) is such a function.
    causal : bool
        Whether a step's output depends on that step and earlier ones only. The module sees zeros on padding,
        and a module that is not causal must tolerate them.

    Examples
    --------
    >>> import labeltide as lt
    >>> from torch import nn
    >>> data = lt.make_sequences(n=20, n_steps=10, n_features=2)
    >>> clf = lt.IgnoreClassifier(model=lt.wrap(nn.Linear), epochs=2, random_state=0)
    >>> clf.fit(data.features, data.labels).predict(data.features).shape
    (20, 10)
    """
    if not callable(module_or_factory):
        raise TypeError(
            "wrap needs a torch module, or a function of (n_features, n_classes) that makes one. "
            f"Got {type(module_or_factory).__name__}."
        )
    return ModelFactory(module_or_factory, causal)


@dataclass(frozen=True)
class ModelFactory:
    """Builds fleets of the wrapped module; has the call signature of the model classes."""

    source: ModuleSource
    causal: bool = True

    def __call__(
        self, members: int, n_features: int, n_classes: int, *, hidden_size: int = 32, causal: bool = True
    ) -> WrappedModel:
        """A fleet of the module. `hidden_size` and `causal` are unused: the module determines both."""
        return WrappedModel(self, members, n_features, n_classes)

    def build(self, n_features: int, n_classes: int, seed: int) -> nn.Module:
        """The module of one member; the global random state stays as it was."""
        if isinstance(self.source, nn.Module):
            return self.source
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would also reseed the GPUs
            module = self.source(n_features, n_classes)
        if not isinstance(module, nn.Module):
            raise TypeError(
                "The function given to wrap must return a torch nn.Module for (n_features, n_classes). "
                f"Got {type(module).__name__}."
            )
        return module


class Copies(NamedTuple):
    """One copy of the module for each member, with its parameters, and the kind of tensors for which they were made."""

    kind: tuple[Any, ...] = ()
    modules: tuple[nn.Module, ...] = ()
    parameters: tuple[tuple[nn.Parameter, ...], ...] = ()


class WrappedModel(SequenceModel):
    """A fleet of one torch module, of which each member is a copy. Buffers change in training mode only."""

    name = "wrapped"
    is_small = False  # unknown code keeps torch's threads
    is_recordable = False  # unknown code may draw random numbers or synchronise with the host

    def __init__(self, factory: ModelFactory, members: int, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.members, self.is_causal = members, factory.causal
        self.factory, self.n_features, self.n_classes = factory, n_features, n_classes
        self._copies = Copies()
        module = factory.build(n_features, n_classes, seed=0)
        self._parameter_names = tuple(name for name, _ in module.named_parameters())
        buffers = {id(buffer): name for name, buffer in module.named_buffers()}
        self._buffer_names = tuple(buffers.values())
        # Every path of a buffer, of which shared ones have several, and its first name.
        self._paths = [(path, buffers[id(each)]) for path, each in module.named_buffers(remove_duplicate=False)]
        # In a tuple, so that torch does not register its empty tensors as parameters of this module.
        self._skeleton = (hollow(module).train(self.training),)
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            stacked = tensor.detach().expand(members, *tensor.shape).clone()
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(_flat_name(name), nn.Parameter(stacked, tensor.requires_grad))
            else:
                self.register_buffer(_flat_name(name), stacked)

    def _initialise(self, generators: Sequence[Generator]) -> None:
        for index, generator in enumerate(generators):
            seed = int(torch.randint(2**62, (), generator=generator))
            module = self.factory.build(self.n_features, self.n_classes, seed)
            fleet_tensors = self._stacked_parameters() | self._stacked_buffers()
            tensors = dict(module.named_parameters()) | dict(module.named_buffers())
            if {n: t.shape[1:] for n, t in fleet_tensors.items()} != {n: t.shape for n, t in tensors.items()}:
                raise ValueError("The function given to wrap must make the same parameters every time.")
            with torch.no_grad():
                for name, stacked in fleet_tensors.items():
                    stacked[index].copy_(tensors[name])

    def train(self, mode: bool = True) -> Self:
        """Training or evaluation mode, for the wrapped module as well."""
        super().train(mode)
        for module in (*self._skeleton, *self._copies.modules):
            module.train(mode)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and stored: without the copies of the module, which are made again where they are needed."""
        return {**self.__dict__, "_copies": Copies()}

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        features = features.masked_fill(~mask[..., None], 0)
        parameters, stacked, copies = self._stacked_parameters(), self._stacked_buffers(), self._up_to_date_copies()
        # Modules write into their buffers, which an earlier forward pass may still need.
        before = {name: buffer.clone().unbind() for name, buffer in stacked.items()}
        for member, module in enumerate(copies.modules):
            for location, name in self._paths:
                path, _, attribute = location.rpartition(".")
                module.get_submodule(path)._buffers[attribute] = before[name][member]
        if torch.is_grad_enabled():
            logits = MembersFunction.apply(self._run_copies, copies.parameters, features, *parameters.values())
        else:
            logits = _stack(self._run_copies(features.unbind()))
        if self.training and stacked:
            after = [dict(module.named_buffers()) for module in copies.modules]
            with torch.no_grad():
                for name, buffer in stacked.items():
                    buffer.copy_(_stack([each[name] for each in after]))
        return logits

    def _run_copies(self, features: Sequence[Tensor]) -> list[Tensor]:
        """The logits of every member, (batch, steps, classes) each."""
        pairs = zip(self._copies.modules, features, strict=True)
        return [self._check(module(inputs), inputs) for module, inputs in pairs]

    def _up_to_date_copies(self) -> Copies:
        """The copies with the parameters of their members; made again where the fleet has another device or type."""
        parameters, buffers = self._stacked_parameters(), self._stacked_buffers()
        tensors = (*parameters.values(), *buffers.values())
        kind = (self.members, *((tensor.device, tensor.dtype, tensor.requires_grad) for tensor in tensors))
        if self._copies.kind != kind:
            modules = tuple(self._copy_module(m) for m in range(self.members))
            self._copies = Copies(kind, modules, tuple(tuple(module.parameters()) for module in modules))
        elif parameters:
            each_name = zip(*self._copies.parameters, strict=True)
            # Through `data`, so that the graph of an earlier forward pass stays valid.
            old = [parameter.data for of_members in each_name for parameter in of_members]
            new = [values for stacked in parameters.values() for values in stacked.detach().unbind()]
            torch._foreach_copy_(old, new)
        return self._copies

    def _copy_module(self, member: int) -> nn.Module:
        skeleton = self._skeleton[0]
        tensors = self._stacked_parameters() | self._stacked_buffers()
        memo: dict[int, Tensor] = {}
        for name, empty in [*skeleton.named_parameters(), *skeleton.named_buffers()]:
            values = tensors[name].detach()[member].clone()
            is_parameter = isinstance(empty, nn.Parameter)
            memo[id(empty)] = nn.Parameter(values, tensors[name].requires_grad) if is_parameter else values
        module = copy.deepcopy(skeleton, memo)
        for part in module.modules():
            if isinstance(part, nn.RNNBase):
                part.flatten_parameters()  # one piece of memory, without which cuDNN copies the weights at every call
        return module

    def _check(self, logits: Any, features: Tensor) -> Tensor:
        if not isinstance(logits, Tensor):
            raise TypeError(f"The wrapped module must give a tensor of logits. Got {type(logits).__name__}.")
        check_logits(logits.shape, (*features.shape[:2], self.n_classes))
        return logits

    def _stacked_parameters(self) -> Tensors:
        return {name: self._parameters[_flat_name(name)] for name in self._parameter_names}  # type: ignore[misc]

    def _stacked_buffers(self) -> Tensors:
        return {name: self._buffers[_flat_name(name)] for name in self._buffer_names}  # type: ignore[misc]


class MembersFunction(torch.autograd.Function):
    """The modules of all members as one function of the stacked parameters, (members, ...) each.

    The weights of a module must be tensors of their own, not slices of stacked ones: cuDNN needs those of a recurrent
    layer in one piece of memory. So each module has a graph of its own, and `backward` stacks its gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        run: Callable[[Sequence[Tensor]], list[Tensor]],
        copies: Sequence[Sequence[nn.Parameter]],
        features: Tensor,
        *stacked: Tensor,
    ) -> Tensor:
        inputs = [each.detach().requires_grad_(features.requires_grad) for each in features]
        with torch.enable_grad():
            logits = run(inputs)
        ctx.logits, ctx.inputs, ctx.copies = logits, inputs, copies
        return _stack([each.detach() for each in logits])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logits: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[2:]  # of the features, and of each parameter
        gradients = []
        for logits, features, parameters, grad in zip(ctx.logits, ctx.inputs, ctx.copies, grad_logits, strict=True):
            inputs = [each for each, is_needed in zip((features, *parameters), needed, strict=True) if is_needed]
            gradients.append(torch.autograd.grad(logits, inputs, grad, allow_unused=True, materialize_grads=True))
        stacked = map(_stack, zip(*gradients, strict=True))
        return None, None, *(next(stacked) if is_needed else None for is_needed in needed)


def hollow(module: nn.Module) -> nn.Module:
    """A copy of the module on the meta device: tensors have shapes and no values, so no stale value can be read."""
    tensors = [*module.parameters(), *module.buffers()]
    if any(is_lazy(tensor) for tensor in tensors):
        raise ValueError("The wrapped module has lazy layers of unknown shape. Run it once, then wrap it.")
    if any(isinstance(part, torch.jit.ScriptModule) for part in module.modules()):
        raise TypeError("wrap needs an ordinary torch module. Got TorchScript, whose parameters cannot be replaced.")
    memo: dict[int, Any] = {}
    for tensor in tensors:
        empty = torch.empty_like(tensor, device="meta", requires_grad=False)
        memo[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
    return copy.deepcopy(module, memo)


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))  # of one: without a copy


def _flat_name(name: str) -> str:
    """The name under which a tensor of the module is registered: without dots, which torch forbids."""
    return "module-" + name.replace(".", "-")
