"""What PyTorch's programs ask of a layer, and layers here don't have: they are plain objects, whose
attributes are tensors and other layers. The error says what does the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_EACH = "for t in nn.state.get_parameters(layer): "
_TRAINING = "`with Tensor.train(False):`, a context for all layers"
_ATTRIBUTES = "its attributes, which are the layers and tensors in it"

INSTEAD = {
    "parameters": "nn.state.get_parameters(layer)",
    **dict.fromkeys(
        ("named_parameters", "buffers", "state_dict"), "nn.state.get_state_dict(layer)"
    ),
    "load_state_dict": "nn.state.load_state_dict(layer, values)",
    **dict.fromkeys(("train", "eval", "training"), _TRAINING),
    **dict.fromkeys(("to", "cuda", "cpu"), _EACH + "t.to_(device)"),
    **dict.fromkeys(("half", "bfloat16", "float", "double"), _EACH + "t.replace(t.cast(dtype))"),
    "requires_grad_": _EACH + "t.requires_grad_(False)",
    "zero_grad": "optimizer.zero_grad()",
    "forward": "layer(x)",
    **dict.fromkeys(("modules", "children", "named_modules", "apply"), _ATTRIBUTES),
    **dict.fromkeys(("register_buffer", "register_parameter", "add_module"), "an attribute"),
    "register_forward_hook": "a class of your own, which calls the layer",
}


def tell_instead(kinds: Iterable[Any]) -> None:
    """Lets objects of these classes say what to use instead of what they don't have."""
    for kind in kinds:
        if isinstance(kind, type) and not hasattr(kind, "__getattr__"):
            kind.__getattr__ = _refused  # type: ignore[attr-defined]


def _refused(layer: Any, name: str) -> Any:
    there = f"; legal is {INSTEAD[name]}" if name in INSTEAD else ""
    text = f"{type(layer).__name__!r} object has no attribute {name!r}{there}"
    raise AttributeError(text, name=name, obj=layer)
