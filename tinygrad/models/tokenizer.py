"""Texts to tokens and back, by the `tokenizers` library: from a folder's tokenizer.json, or made of
its vocab.json and merges.txt, or of what a GGUF file says.

    tokenizer = read_tokenizer("llama-3/")
    tokenizer.decode(tokenizer.encode("Hello"))
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygrad.base.dtype import dtypes
from tinygrad.base.errors import ArgumentError
from tinygrad.formats.gguf import facts_of
from tinygrad.tensor import Tensor

# How a text is cut before bytes are joined, by GGUF's `tokenizer.ggml.pre`; None: as for GPT-2.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CUTS: Mapping[str, str | None] = {
    "default": None,
    "gpt-2": None,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}
CONTROL, OWN, BYTE = 3, 4, 6  # what GGUF calls types of tokens: for the model, the user's, one byte
SPACE = "▁"  # a space, in the tokens of SentencePiece
END_OF_TEXT, BEGIN_OF_TEXT = "<|endoftext|>", "<|startoftext|>"
BROKEN, LONGEST_LETTER = "\ufffd", 8  # what half a letter looks like; tokens of a whole one
LAST = "</w>"  # what CLIP's last piece of a word ends with
CLIP_CUT = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


@dataclass(frozen=True)
class Tokenizer:
    """Texts to tokens and back.

    Args:
        inner: a `tokenizers.Tokenizer`.
        stop: tokens that end a text.
        filler: the token that fills what is left of a row.
    """

    inner: Any
    stop: frozenset[int] = frozenset()
    filler: str = END_OF_TEXT

    def encode(self, text: str, ends: bool = True) -> list[int]:
        """The tokens of a text; with `ends` also those that begin or end one for this model."""
        found: list[int] = self.inner.encode(text, add_special_tokens=ends).ids
        return found

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without those that are only for the model."""
        found: str = self.inner.decode(list(tokens))
        return found

    def pieces(self, tokens: Iterable[int], after: Sequence[int] = ()) -> Iterator[str]:
        """The text of tokens as they come; letters of several bytes when they are complete.

        Args:
            tokens: of the text.
            after: tokens before them, whose text is not given: what a space belongs to.
        """
        known = list(after)[-LONGEST_LETTER:]
        told = len(known)  # tokens whose text was given
        for token in tokens:
            known.append(token)
            before, text = self.decode(known[:told]), self.decode(known)
            if text.endswith(BROKEN) and len(known) - told < LONGEST_LETTER:
                continue
            if len(text) > len(before):
                yield text[len(before) :]
            if self.decode(known[told:]):
                known = known[told:]  # a token without text says nothing of the space behind it
            told = len(known)
        rest = self.decode(known)[len(self.decode(known[:told])) :]
        if rest:
            yield rest

    def rows(self, texts: Sequence[str], length: int) -> Tensor:
        """(texts, length): the tokens of each text, cut or filled to this length.

        Raises:
            ArgumentError: there is no token to fill with.
        """
        self.inner.enable_truncation(length)
        number = self.number(self.filler)
        self.inner.enable_padding(length=length, pad_id=number, pad_token=self.filler)
        rows = [piece.ids for piece in self.inner.encode_batch(list(texts))]
        self.inner.no_truncation()
        self.inner.no_padding()
        return Tensor(rows, dtype=dtypes.int32)

    def number(self, token: str) -> int:
        """The number of a token, such as "<|endoftext|>".

        Raises:
            ArgumentError: there is none.
        """
        found: int | None = self.inner.token_to_id(token)
        if found is None:
            raise ArgumentError(
                f"tokenizer: no token {token!r} among {self.inner.get_vocab_size()}"
            )
        return found


def read_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer of a folder, or of a GGUF file.

    Raises:
        ArgumentError: there is none, or one of an unknown kind.
    """
    if str(path).endswith(".gguf"):
        return from_gguf(facts_of(path))
    from tokenizers import Tokenizer as Library  # an extra: only who reads texts needs it

    folder = Path(path)
    if (folder / "tokenizer.json").is_file():
        inner = Library.from_file(str(folder / "tokenizer.json"))
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        inner = _of_lists(folder)
    else:
        there = ", ".join(sorted(p.name for p in folder.glob("*"))) or "nothing"
        raise ArgumentError(
            f"tokenizer: no tokenizer.json, nor vocab.json and merges.txt, in {folder}; there is "
            f"{there}. The package transformers makes it of other files: "
            "AutoTokenizer.from_pretrained(..).save_pretrained(..)"
        )
    said = _json(folder / "tokenizer_config.json").get("pad_token") or END_OF_TEXT
    filler = said if isinstance(said, str) else said["content"]
    return Tokenizer(inner, _stop_tokens(folder), filler)


def _stop_tokens(folder: Path) -> frozenset[int]:
    """What ends a text, as the first file says that says so."""
    for name in ("generation_config.json", "config.json"):
        said = _json(folder / name).get("eos_token_id")
        if said is not None:
            return frozenset(said if isinstance(said, list) else [said])
    return frozenset()


def _json(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_bytes()) if file.is_file() else {}
    return found


def _of_lists(folder: Path) -> Any:
    """The older files of GPT-2, Whisper and CLIP: numbers of pieces, and pairs in order."""
    vocab = _json(folder / "vocab.json")
    lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    words = any(piece.endswith(LAST) for piece in vocab)
    inner = _of_words(vocab, merges) if words else _of_bytes(vocab, merges)
    added = _json(folder / "added_tokens.json")
    special = [BEGIN_OF_TEXT, END_OF_TEXT, *sorted(added, key=added.__getitem__)]
    inner.add_special_tokens([token for token in special if token in vocab or token in added])
    return inner


# ---- GGUF ----------------------------------------------------------------------------------------


def from_gguf(facts: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that the facts of a GGUF file describe.

    Args:
        facts: by name, as `gguf_load` gives them.

    Raises:
        ArgumentError: facts are missing, or of an unknown kind.
    """
    kind = str(facts.get("tokenizer.ggml.model"))
    if kind not in KINDS or "tokenizer.ggml.tokens" not in facts:
        raise ArgumentError(
            f"tokenizer: tokenizer.ggml.model is {kind}; legal are {', '.join(KINDS)}, with "
            "tokenizer.ggml.tokens"
        )
    inner = KINDS[kind](facts)
    _add_special(inner, facts)
    begins = facts.get("tokenizer.ggml.add_bos_token", kind == "llama")
    ends = facts.get("tokenizer.ggml.add_eos_token", False)
    _add_ends(inner, *(
        facts.get(f"tokenizer.ggml.{name}_token_id") if added else None
        for name, added in (("bos", begins), ("eos", ends))
    ))  # fmt: skip
    stop = (facts.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return Tokenizer(inner, frozenset(token for token in stop if token is not None))


def _add_special(inner: Any, facts: Mapping[str, Any]) -> None:
    """Tokens that are found in a text before it is cut."""
    from tokenizers import AddedToken

    types = facts.get("tokenizer.ggml.token_type", [])
    for token, kind in zip(facts["tokenizer.ggml.tokens"], types, strict=False):
        if kind == CONTROL:
            inner.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif kind == OWN:
            inner.add_tokens([AddedToken(token, normalized=False, special=False)])


def _add_ends(inner: Any, first: int | None, last: int | None) -> None:
    """Tokens that every text begins and ends with."""
    from tokenizers.processors import TemplateProcessing

    ends = [None if i is None else (inner.id_to_token(i), i) for i in (first, last)]
    if any(ends):
        begin, end = ([end[0]] if end else [] for end in ends)
        inner.post_processor = TemplateProcessing(
            single=[*begin, "$A", *end], special_tokens=[end for end in ends if end]
        )


def _bytes_of_gguf(facts: Mapping[str, Any]) -> Any:
    name = facts.get("tokenizer.ggml.pre", "default")
    if name not in CUTS:
        raise ArgumentError(
            f"tokenizer: tokenizer.ggml.pre is {name!r}; legal are {', '.join(CUTS)}"
        )
    whole_words = CUTS[name] is _LLAMA3  # that are tokens are not made of parts
    return _of_bytes(
        _numbered(facts), facts.get("tokenizer.ggml.merges", []), CUTS[name], whole_words
    )


def _of_bytes(
    vocab: Mapping[str, int], merges: list[str], cut: str | None = None, whole_words: bool = False
) -> Any:
    """Bytes, joined in the order of a list. (Radford and others, 2019.)"""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    inner = Tokenizer(models.BPE(dict(vocab), _pairs(merges), ignore_merges=whole_words))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut is None)
    if cut is None:
        inner.pre_tokenizer = whole
    else:
        parts = pre_tokenizers.Split(Regex(cut), behavior="isolated")
        inner.pre_tokenizer = pre_tokenizers.Sequence([parts, whole])
    inner.decoder = decoders.ByteLevel()
    return inner


def _of_words(vocab: Mapping[str, int], merges: list[str]) -> Any:
    """CLIP's: the bytes of words in small letters, whose last piece says that it is the last."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    inner = Tokenizer(
        models.BPE(dict(vocab), _pairs(merges), unk_token=END_OF_TEXT, end_of_word_suffix=LAST)
    )
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), spaces, normalizers.Lowercase()])
    words = pre_tokenizers.Split(Regex(CLIP_CUT), behavior="removed", invert=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    inner.decoder = decoders.ByteLevel()
    _add_ends(inner, vocab[BEGIN_OF_TEXT], vocab[END_OF_TEXT])
    return inner


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    return [(first, second) for first, second in (line.split(" ", 1) for line in merges)]


def _of_pieces(facts: Mapping[str, Any]) -> Any:
    """SentencePiece's pieces: neighbours are joined whose whole has the best score, and what is no
    piece becomes bytes. (Kudo and Richardson, "SentencePiece", 2018.)"""
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocab = _numbered(facts)
    scores = facts.get("tokenizer.ggml.scores", [0.0] * len(vocab))
    unknown = facts.get("tokenizer.ggml.unknown_token_id", 0)
    inner = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_merges(vocab, scores),
            unk_token=facts["tokenizer.ggml.tokens"][unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefixed = facts.get("tokenizer.ggml.add_space_prefix", True)
    inner.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend(SPACE)] if prefixed else []), normalizers.Replace(" ", SPACE)]
    )
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if prefixed else []),
        ]
    )
    return inner


def _merges(vocab: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """The pairs of pieces that are pieces, best first."""
    pairs = [
        (-scores[number], vocab[piece[:cut]], vocab[piece[cut:]], (piece[:cut], piece[cut:]))
        for piece, number in vocab.items()
        for cut in range(1, len(piece))
        if piece[:cut] in vocab and piece[cut:] in vocab
    ]
    return [pair for *_, pair in sorted(pairs)]


def _numbered(facts: Mapping[str, Any]) -> dict[str, int]:
    return {token: number for number, token in enumerate(facts["tokenizer.ggml.tokens"])}


KINDS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "gpt2": _bytes_of_gguf,
    "llama": _of_pieces,
}
