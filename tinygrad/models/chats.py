"""Conversations as the text that a model was trained on, by the template beside its weights.

model = Llama.from_pretrained("llama-3/")
for piece in answer(model, [{"role": "user", "content": "Why is the sky blue?"}]):
    print(piece, end="", flush=True)
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tinygrad.base.errors import ArgumentError
from tinygrad.formats.gguf import facts_of
from tinygrad.models.generate import stream
from tinygrad.models.sampling import Sampler
from tinygrad.models.texts import tokenizer_of

Messages = Sequence[Mapping[str, Any]]
"""What was said, each with a "role" (system, user, assistant) and its "content"."""

TOKENS = tuple(f"{name}_token" for name in ["bos", "eos", "unk", "sep", "pad", "cls", "mask"])
"""What templates call tokens by."""

GGUF = {
    "unk_token": "unknown_token",
    "sep_token": "seperator_token",
    "pad_token": "padding_token",
}
"""What its files call them, spelling included."""

MARKED = re.compile(r"({%[-+]?\s*)(end)?generation(\s*[-+]?%})")
"""Tags around what the model says, for who trains on it: to all others they say nothing."""


def answer(
    model: Any, messages: Messages, sampler: Sampler | None = None, most: int = 100, **more: Any
) -> Iterator[str]:
    """What the model says next, piece by piece as it is made.

    Args:
        model: a decoder from a folder, or a GGUF file, with a template and a tokenizer.
        messages: the conversation so far.
        sampler: how to choose; None takes the best.
        most: how many tokens follow at most.
        more: what the template asks for beside messages, as `enable_thinking` of Qwen 3.

    Raises:
        ArgumentError: there is no template, or it refuses the messages.
    """
    tokenizer = tokenizer_of(model)
    text = chat_text(model.loaded_from(), messages, **more)
    tokens = tokenizer.encode(text, ends=False)
    made = stream(model, [tokens], sampler, most, tokenizer.stop)
    yield from tokenizer.pieces((token for (token,) in made if token is not None), tokens)


def chat_text(
    path: str | Path, messages: Messages, add_generation_prompt: bool = True, **more: Any
) -> str:
    """The conversation as the model's template writes it, in a sandbox.

    Args:
        path: the folder, or the GGUF file, that holds the template.
        messages: the conversation so far.
        add_generation_prompt: whether the text ends where the model's answer begins.
        more: what the template asks for beside that.

    Raises:
        ArgumentError: there is no template, it refuses the messages, or it does what a template
            may not.
    """
    try:
        import jinja2.sandbox  # an extra: only who talks needs it
    except ImportError as error:
        raise ArgumentError("chat templates need jinja2: pip install 'tinygrad[text]'") from error
    source, tokens = _template(path, bool(more.get("tools")))
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    given = {"tools": None, "documents": None, **tokens, **more}
    try:
        return environment.from_string(MARKED.sub(_as_condition, source)).render(
            messages=messages, add_generation_prompt=add_generation_prompt, **given
        )
    except jinja2.TemplateError as error:
        raise ArgumentError(f"chat template of {path}: {error}") from error


def _as_condition(tag: re.Match[str]) -> str:
    return f"{tag[1]}{'endif' if tag[2] else 'if true'}{tag[3]}"


def _as_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> NoReturn:
    raise ArgumentError(f"chat template: {message}")


def _template(path: str | Path, has_tools: bool) -> tuple[str, dict[str, str]]:
    """The template, of several that for tools or another, and the tokens that it may name."""
    if str(path).endswith(".gguf"):
        facts = facts_of(path)
        words = facts.get("tokenizer.ggml.tokens", [])
        numbers = {name: facts.get(f"tokenizer.ggml.{GGUF.get(name, name)}_id") for name in TOKENS}
        tokens = {name: words[n] for name, n in numbers.items() if n is not None}
        found = facts.get("tokenizer.chat_template")
    else:
        file = Path(path) / "tokenizer_config.json"
        said = json.loads(file.read_bytes()) if file.is_file() else {}
        named = {name: said.get(name) for name in TOKENS}
        tokens = {k: v["content"] if isinstance(v, dict) else v for k, v in named.items() if v}
        own = Path(path) / "chat_template.jinja"
        found = own.read_text(encoding="utf-8") if own.is_file() else said.get("chat_template")
        if isinstance(found, list):  # several, by name
            texts = {each["name"]: each["template"] for each in found}
            found = texts.get("tool_use" if has_tools and "tool_use" in texts else "default")
    if found is None:
        raise ArgumentError(
            f"{path} has no chat template; legal are chat_template.jinja, a chat_template in "
            "tokenizer_config.json, and tokenizer.chat_template in a GGUF file"
        )
    return found, tokens
