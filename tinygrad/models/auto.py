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
from tinygrad.models.qwen import Qwen2, Qwen3
from tinygrad.models.resnet import ResNet
from tinygrad.models.rwkv import RWKV
from tinygrad.models.t5 import T5
from tinygrad.models.vit import ViT
from tinygrad.models.whisper import Whisper

TEXTS: Mapping[
    str, Any
] = {  # by `model_type` of config.json, `general.architecture` of a GGUF file
    "llama": Llama,
    "mistral": Mistral,
    "mixtral": Mixtral,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "gpt2": GPT2,
    "mamba": Mamba,
    "rwkv": RWKV,
    "t5": T5,
}
OTHERS: Mapping[str, Any] = {
    "bert": Bert,
    "clip": CLIP,
    "efficientnet": EfficientNet,
    "mobilenet_v1": MobileNetV1,
    "mobilenet_v2": MobileNetV2,
    "resnet": ResNet,
    "vit": ViT,
    "whisper": Whisper,
}


def load_model(path: str | Path, kinds: Mapping[str, Any] | None = None) -> Any:
    """The model in a folder with config.json and weights, or in a GGUF file.

    Args:
        path: the folder, or the file.
        kinds: the models that are legal, as TEXTS; None: all.

    Raises:
        ArgumentError: files are missing, or it is another model.
    """
    kinds = {**TEXTS, **OTHERS} if kinds is None else kinds
    if str(path).endswith(".gguf"):
        name = facts_of(path).get("general.architecture")
    else:
        name = read_config(path).get("model_type")
    found: type[Pretrained] | None = kinds.get(str(name))
    if found is None:
        raise ArgumentError(f"{path} holds a model {name!r}; legal are {', '.join(kinds)}")
    return found.from_pretrained(path)
