"""Published checkpoints: their names for a model's weights, and ours.

A model has a table from the names in its checkpoints to its own attributes:

    NAMES = {
        "model.layers.{}.self_attn.q_proj": "layers.{}.attention.query",  # {}: any number, kept
        "model.rotary.inv_freq": None,                                      # not needed here
        "transformer.h.{}.attn.c_attn": ("layers.{}.attention.mix", transposed),
        "model.layers.{}.experts.*.w1": "layers.{}.feed.gate",  # *: one after the other, by number
    }

A row serves all names that begin with it, up to a dot: `...q_proj.weight` and `...q_proj.bias`.
The longest row counts; a name without a row stays as it is.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from tinygrad.base.dtype import DType, dtypes
from tinygrad.base.errors import ArgumentError, ShapeError, TinygradError
from tinygrad.models.words import Words
from tinygrad.nn.state import get_state_dict, load_state_dict, safe_load, torch_load
from tinygrad.tensor import Tensor

Convert = Callable[[Tensor], Tensor]
Names = Mapping[str, str | None | tuple[str, Convert]]
Only = Mapping[str, tuple[Any, ...]]  # what config.json may say by name; the first where it doesn't


def translated(state: Mapping[str, Tensor], names: Names) -> dict[str, Tensor]:
    """The tensors of a checkpoint under our names.

    >>> found = translated({"h.3.w": Tensor([1.0]), "mask": Tensor([0.0])},
    ...                    {"h.{}": "layers.{}", "mask": None})
    >>> list(found)
    ['layers.3.w']
    """
    found, parts = _renamed(state, names)
    stacks = {name: [each[n] for n in sorted(each)] for name, each in parts.items()}
    return found | {name: _stacked(each) for name, each in stacks.items()}


def _stacked(parts: list[Tensor]) -> Tensor:
    return Tensor.stack(*parts).contiguous()


def _renamed(
    state: Mapping[str, Tensor], names: Names
) -> tuple[dict[str, Tensor], dict[str, dict[int, Tensor]]]:
    """The tensors under our names; and those that are parts of others, by their numbers."""
    rows = [(_pattern(row), target) for row, target in sorted(names.items(), key=_longest_first)]
    found, parts = {}, defaultdict[str, dict[int, Tensor]](dict)
    for name, tensor in state.items():
        match, target = next(((m, t) for p, t in rows if (m := p.match(name))), (None, None))
        if match is None:
            found[name] = tensor
        elif target is not None:
            ours, convert = (target, None) if isinstance(target, str) else target
            kept = [n for key, n in match.groupdict().items() if key != PART]
            ours = (ours.format(*kept) + name[match.end() :]).removeprefix(".")
            tensor = tensor if convert is None else convert(tensor)
            if PART in match.groupdict():
                parts[ours][int(match[PART])] = tensor
            else:
                found[ours] = tensor
    return found, parts


def _longest_first(row: tuple[str, Any]) -> int:
    return -len(row[0])


def _pattern(row: str) -> re.Pattern[str]:
    words = re.escape(row).replace(r"\*", rf"(?P<{PART}>\d+)").split(r"\{\}")
    numbers = (rf"(?P<kept{i}>\d+)" for i in range(len(words) - 1))
    text = words[0] + "".join(n + word for n, word in zip(numbers, words[1:], strict=True))
    return re.compile(text + r"(?=\.|$)")


PART = "part"  # the number of what becomes a part of a larger tensor


def transposed(weight: Tensor) -> Tensor:
    """For checkpoints that keep (in, out) where ours is (out, in)."""
    return weight.T


def load(model: Any, state: Mapping[str, Tensor], names: Names, strict: bool = True) -> None:
    """Gives `model` the weights of a checkpoint.

    Args:
        model: any object that holds tensors.
        state: the checkpoint's tensors by its names.
        names: from the checkpoint's names to ours.
        strict: whether each weight must get a value, and each value be used.

    Raises:
        ArgumentError: strict, and names are missing or unexpected; the message lists both.
        ShapeError: a weight has another shape. Nothing was loaded then.
    """
    places = get_state_dict(model)
    values, parts = _renamed(state, names)
    missing = [name for name in places if name not in values and name not in parts]
    unexpected = [name for name in (*values, *parts) if name not in places]
    for name, given in parts.items():
        if name in places:
            wanted = range(int(places[name].shape[0]))
            missing += [f"{name}[{n}]" for n in wanted if n not in given]
            unexpected += [f"{name}[{n}]" for n in given if n not in wanted]
            values[name] = _joined(name, places[name], given)
    if strict and (missing or unexpected):
        raise ArgumentError(
            f"{type(model).__name__}: the checkpoint lacks {_listed(missing)}; it has "
            f"{_listed(unexpected)}, which the model has no place for; legal are exactly the "
            "model's names, or strict=False"
        )
    load_state_dict(model, values, strict=False, verbose=False, realize=False)


def _joined(name: str, place: Tensor, parts: Mapping[int, Tensor]) -> Tensor:
    """A value for `place` of its parts by number; what is not given stays as it is."""
    for n, part in parts.items():
        if part.shape != place.shape[1:]:
            raise ShapeError(
                f"{name}[{n}] has shape {part.shape}; the model's has {place.shape[1:]}"
            )
    return _stacked([parts[n] if n in parts else place[n] for n in range(int(place.shape[0]))])


def _listed(names: list[str], most: int = 20) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "nothing") + more


# ---- folders -------------------------------------------------------------------------------------


# the names that weights have in a folder, and who reads them
WEIGHTS: Mapping[str, Callable[[Path], dict[str, Tensor]]] = {
    "model.safetensors": safe_load,
    "model.safetensors.index.json": safe_load,
    "diffusion_pytorch_model.safetensors": safe_load,
    "diffusion_pytorch_model.safetensors.index.json": safe_load,
    "pytorch_model.bin": torch_load,
}


def read_folder(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and the weights of a folder as the Hugging Face hub has them.

    Raises:
        ArgumentError: a file is missing; the message names it and lists what is there.
    """
    config, folder = read_config(folder), Path(folder)
    name = next((name for name in WEIGHTS if (folder / name).exists()), next(iter(WEIGHTS)))
    return config, WEIGHTS[name](_existing(folder, name))


def read_config(folder: str | Path) -> dict[str, Any]:
    """config.json of a folder.

    Raises:
        ArgumentError: there is none, or it is broken.
    """
    return read_json(folder, "config.json")


def read_json(folder: str | Path, name: str) -> dict[str, Any]:
    """What a folder's file of this name says.

    Raises:
        ArgumentError: there is none, and the message lists what is there; or it is no JSON object.
    """
    path = _existing(Path(folder), name)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"from_pretrained: {path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ArgumentError(f"from_pretrained: {path} holds no JSON object, but {found!r:.80}")
    return found


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Says of an error what it is about: the config of the model `name`.

    Raises:
        ArgumentError: the config lacks a name, or has a value that the model can't take.
    """
    try:
        yield
    except ArgumentError:
        raise
    except KeyError as error:
        raise ArgumentError(f"{name}: the config has no {error}") from error
    except (TinygradError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ArgumentError(f"{name}: the config has a value that doesn't fit: {error}") from error


def class_count(config: Mapping[str, Any]) -> int:
    """The classes that config.json names, or counts."""
    labels = config.get("id2label")
    return len(labels) if labels else config.get("num_labels", 2)


def _existing(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in folder.glob("*"))) or "nothing"
        raise ArgumentError(f"from_pretrained: no {name} in {folder}; there is {there}")
    return path


EVERYWHERE: Only = {
    "quantization_config": (None,),
    "pruned_heads": (None, {}),
    "add_cross_attention": (False,),
}


def refuse_others(name: str, config: Mapping[str, Any], only: Only) -> None:
    """Refuses a config.json that asks for what isn't computed here.

    Raises:
        ArgumentError: it says something else than `only`; the message lists what is legal.

    >>> refuse_others("Net", {"hidden_act": "relu"}, {"hidden_act": ("relu", "relu6")})
    """
    for key, legal in {**EVERYWHERE, **only}.items():
        if config.get(key, legal[0]) not in legal:
            raise ArgumentError(
                f"{name}: the config's {key} is {config[key]!r}; legal is "
                f"{' or '.join(map(repr, legal))}"
            )


class Pretrained:
    """What models share that load a published checkpoint."""

    NAMES: ClassVar[Names] = {}
    ONLY: ClassVar[Only] = {}  # of config.json, what is computed here
    origin: Path | None = None  # the folder, or file, that the weights are from

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The model that a checkpoint's config.json describes, with fresh weights."""
        raise NotImplementedError

    @classmethod
    def checked(cls, config: Mapping[str, Any]) -> Self:
        """The same, if all that config.json says is computed here.

        Raises:
            ArgumentError: it is not, or it lacks what the model needs.
        """
        with reading(cls.__name__):
            refuse_others(cls.__name__, config, cls.ONLY)
            return cls.from_config(config)

    def names(self) -> Names:
        """From the names in checkpoints to ours. A model without a head of its own, as its scores
        are products with the embedding, doesn't need a checkpoint's copy of that."""
        if getattr(self, "head", None) is not None:
            return self.NAMES
        return {theirs: None if ours == "head" else ours for theirs, ours in self.NAMES.items()}

    def load(self, state: Mapping[str, Tensor], strict: bool = True) -> Self:
        """Takes the weights of a checkpoint, see `checkpoint.load`."""
        if isinstance(self, Words) and self.head is None:
            own = {t: o for t, o in self.NAMES.items() if o in ("embed", "head")}
            words = translated({n: t for n, t in state.items() if n[:-7] in own}, own)
            self.untie(words.get("embed.weight"), words.get("head.weight"))
        load(self, state, self.names(), strict)
        return self

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, strict: bool = True, dtype: DType | None = None
    ) -> Self:
        """The model in a local folder with config.json and safetensors files.

        Args:
            folder: where they are.
            strict: whether each weight must get a value, and each value be used.
            dtype: of the weights; None keeps the files'.

        Raises:
            ArgumentError: files or names are missing, names are unexpected, or the config asks for
                what the model doesn't compute.
            ShapeError: a weight has another shape than the config says.
        """
        config, state = read_folder(folder)
        made = cls.checked(config).load(floats_as(state, dtype), strict)
        made.origin = Path(folder)
        return made

    def loaded_from(self) -> Path:
        """Where the weights are from, and so what else of the model is: its tokenizer.

        Raises:
            ArgumentError: `from_pretrained` didn't make this model.
        """
        if self.origin is None:
            raise ArgumentError(
                f"{type(self).__name__}: it was not made by from_pretrained, so there is no folder "
                "with its tokenizer"
            )
        return self.origin


def floats_as(state: Mapping[str, Tensor], dtype: DType | None) -> Mapping[str, Tensor]:
    """The same, floats in this dtype if there is one.

    Raises:
        ArgumentError: the dtype is none of floats.
    """
    if dtype is None:
        return state
    if not dtypes.is_float(dtype):
        raise ArgumentError(f"from_pretrained: weights of {dtype!r}; legal are dtypes of floats")
    return {
        name: tensor.cast(dtype).realize() if tensor.is_floating_point() else tensor
        for name, tensor in state.items()
    }
