"""Which model a folder or a GGUF file holds.

model = load_model("llama-3/")
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.gguf import facts_of
from tinygrad.models.bert import Bert
from tinygrad.models.checkpoint import Pretrained, read_config
from tinygrad.models.clip import CLIP
from tinygrad.models.efficientnet import EfficientNet
from tinygrad.models.gpt2 import GPT2
from tinygrad.models.llama import Llama
from tinygrad.models.mamba import Mamba
from tinygrad.models.mistral import Mistral
from tinygrad.models.mixtral import Mixtral
from tinygrad.models.mobilenet import MobileNetV1, MobileNetV2
from tinygrad.models.qwen import Qwen2, Qwen2Moe, Qwen3, Qwen3Moe
from tinygrad.models.resnet import ResNet
from tinygrad.models.rwkv import RWKV
from tinygrad.models.t5 import T5
from tinygrad.models.vit import ViT
from tinygrad.models.whisper import Whisper


def by_name(*models: type[Pretrained]) -> dict[str, type[Pretrained]]:
    """Models by `model_type` of config.json."""
    return {name: model for model in models for name in model.ONLY["model_type"]}


def by_family(kinds: Mapping[str, type[Pretrained]]) -> dict[str, type[Pretrained]]:
    """Of these the models by `general.architecture` of a GGUF file, of a family the first."""
    llamas = [model for model in kinds.values() if issubclass(model, Llama)]
    return {model.FAMILY: model for model in reversed(llamas)}


TEXTS = by_name(Llama, Mistral, Mixtral, Qwen2, Qwen2Moe, Qwen3, Qwen3Moe, GPT2, Mamba, RWKV, T5)
OTHERS = by_name(Bert, CLIP, EfficientNet, MobileNetV1, MobileNetV2, ResNet, ViT, Whisper)


def load_model(path: str | Path, kinds: Mapping[str, type[Pretrained]] | None = None) -> Any:
    """The model in a folder with config.json and weights, or in a GGUF file.

    Args:
        path: the folder, or the file.
        kinds: the models that are legal, as TEXTS; None: all.

    Raises:
        ArgumentError: files are missing, or it is another model.
    """
    kinds = {**TEXTS, **OTHERS} if kinds is None else kinds
    if str(path).endswith(".gguf"):
        name, kinds = facts_of(path).get("general.architecture"), by_family(kinds)
    else:
        name = read_config(path).get("model_type")
    found: type[Pretrained] | None = kinds.get(str(name))
    if found is None:
        raise ArgumentError(f"{path} holds a model {name!r}; legal are {', '.join(kinds)}")
    return found.from_pretrained(path)
