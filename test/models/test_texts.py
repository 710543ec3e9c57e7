"""Texts in and out: tokenizers are those of the files, models write what transformers writes."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tokenizers
import torch
from model_reference import DECODER, ENCODER, SPEECH, floats, made, saved, transformers
from models.test_checkpoint import gguf_file
from transformers.integrations.gguf import gguf_tokenizer_mapping

from tinygrad.base.errors import ArgumentError
from tinygrad.cli import main
from tinygrad.models.clip import CLIP
from tinygrad.models.gpt2 import GPT2, GPT2Config
from tinygrad.models.llama import Llama
from tinygrad.models.t5 import T5
from tinygrad.models.texts import transcribe, write
from tinygrad.models.tokenizer import CUTS, Tokenizer, from_gguf, read_tokenizer
from tinygrad.models.whisper import Whisper, log_mel

SOURCE = Path(__file__).read_text().splitlines()
TEXTS = (
    "Hello world", "  two  spaces ", "a\nb\r\n\n\tc", "naïve café ☃ 你好", "1234567 3.14",
    "don't I'LL 's", "x" * 30, " ", "the tokens of a text",
)  # fmt: skip


def trained(size=400, special=("<|endoftext|>",)):
    """A tokenizer of bytes, as GPT-2's, that has read this file."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(SOURCE, trainer)
    return inner


BYTES = trained()


def vocabulary(inner):
    return [inner.id_to_token(i) for i in range(inner.get_vocab_size())]


def merges(inner):
    return [" ".join(pair) for pair in json.loads(inner.to_str())["model"]["merges"]]


def facts_of_bytes(pre):
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": vocabulary(BYTES),
        "tokenizer.ggml.merges": merges(BYTES),
        "tokenizer.ggml.token_type": [3] + [1] * (BYTES.get_vocab_size() - 1),
        "tokenizer.ggml.eos_token_id": 0,
    }


def pieces():
    """SentencePiece's own model of this file, and the facts of a GGUF file with it."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SOURCE), model_writer=out, vocab_size=400, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        minloglevel=5,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    numbers = range(model.get_piece_size())
    control = 2  # <s> and </s>
    return model, {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in numbers],
        "tokenizer.ggml.scores": [model.get_score(i) for i in numbers],
        "tokenizer.ggml.token_type": [2] + [3] * control + [6] * 256 + [1] * (len(numbers) - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


# ---- tokenizers ----------------------------------------------------------------------------------


def check(ours, encode, decode):
    for text in TEXTS:
        tokens = ours.encode(text)
        assert tokens == encode(text), text
        assert ours.decode(tokens) == decode(tokens), text
        assert "".join(ours.pieces(tokens)) == ours.decode(tokens), text


@pytest.mark.parametrize("pre", CUTS)
def test_bytes_of_a_gguf_file(pre):
    """Against the classes of transformers that have the same cut."""
    kind = {"gpt-2": "GPT2", "default": "GPT2", "qwen2": "Qwen2", "deepseek-r1-qwen": "Qwen2"}
    if pre in kind:
        numbers = {token: i for i, token in enumerate(vocabulary(BYTES))}
        pairs = [tuple(pair.split(" ")) for pair in merges(BYTES)]
        made = getattr(transformers, f"{kind[pre]}Tokenizer")(vocab=numbers, merges=pairs)
        encode, decode = made.encode, made.decode
    else:
        names = gguf_tokenizer_mapping.GGUF_TOKENIZER_MAPPING["tokenizer"]
        facts = facts_of_bytes(pre).items()
        named = {names[name.removeprefix("tokenizer.")]: value for name, value in facts}
        inner, _ = gguf_tokenizer_mapping.convert_gguf_tokenizer("llama", named)
        encode, decode = lambda text: inner.encode(text).ids, inner.decode
    check(from_gguf(facts_of_bytes(pre)), encode, decode)


def test_pieces_of_a_gguf_file():
    model, facts = pieces()
    check(from_gguf(facts), lambda text: [1, *model.encode(text)], model.decode)
    plain = facts | {
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_eos_token": True,
        "tokenizer.ggml.eot_token_id": 7,
    }
    assert from_gguf(plain).encode("the") == [*model.encode("the"), 2]
    assert from_gguf(plain).stop == {2, 7}
    assert from_gguf(plain | {"tokenizer.ggml.add_space_prefix": False}).encode(" the") == [
        *model.encode("the"), 2
    ]  # fmt: skip


@pytest.mark.parametrize("skipped", [["<extra_id_0>"], ["<unk>", "<extra_id_0>"], ["▁"]])
def test_spaces_behind_tokens_without_text(skipped):
    words = ["<unk>", "<extra_id_0>", "▁", "▁Thank", "▁you", "▁me", "s"]
    inner = tokenizers.Tokenizer(tokenizers.models.Unigram([(w, -1.0) for w in words], 0))
    inner.decoder = tokenizers.decoders.Metaspace()
    inner.add_special_tokens(words[:2])
    ours = Tokenizer(inner)
    for text in (["▁Thank", *skipped, "▁me", "s"], [*skipped, "▁you", *skipped, "s", "▁me"]):
        tokens = [words.index(word) for word in text]
        for prompt in range(len(tokens)):
            rest = "".join(ours.pieces(tokens[prompt:], tokens[:prompt]))
            assert ours.decode(tokens[:prompt]) + rest == inner.decode(tokens)


def test_older_files_of_bytes(tmp_path):
    (tmp_path / "config.json").write_text('{"eos_token_id": 0}')
    BYTES.model.save(str(tmp_path))
    ours = read_tokenizer(tmp_path)
    check(ours, lambda text: BYTES.encode(text).ids, BYTES.decode)
    assert ours.stop == {0}


def words(folder):
    """CLIP's files, and the tokenizer that transformers makes of them."""
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(end_of_word_suffix="</w>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900,
        end_of_word_suffix="</w>",
        special_tokens=["<|startoftext|>", "<|endoftext|>"],
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator((line.lower() for line in SOURCE), trainer)
    inner.model.save(str(folder))
    vocab = json.loads((folder / "vocab.json").read_text())
    for letter in sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()):
        vocab.setdefault(letter + "</w>", len(vocab))
    (folder / "vocab.json").write_text(json.dumps(vocab))
    pairs = (folder / "merges.txt").read_text().splitlines()[1:]
    return transformers.CLIPTokenizer(vocab=vocab, merges=[tuple(p.split(" ")) for p in pairs])


def test_older_files_of_words_and_rows_for_clip(tmp_path):
    theirs = words(tmp_path)
    ours = read_tokenizer(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text), text
    text = dict(vocab_size=1200, max_position_embeddings=16, bos_token_id=0, eos_token_id=1)
    config = transformers.CLIPConfig(
        text_config=ENCODER | text,
        vision_config=ENCODER | dict(image_size=16, patch_size=4),
        projection_dim=24,
    )
    _, folder = made("CLIPModel", config)
    for name in ("vocab.json", "merges.txt"):
        (Path(folder) / name).write_text((tmp_path / name).read_text())
    model = CLIP.from_pretrained(folder)
    wanted = theirs(list(TEXTS), padding="max_length", truncation=True, max_length=16)["input_ids"]
    assert model.tokens(*TEXTS).tolist() == wanted


def test_what_is_no_tokenizer_is_refused(tmp_path):
    (tmp_path / "weights").touch()
    with pytest.raises(
        ArgumentError, match="no tokenizer.json, nor .*; there is weights. The pack"
    ):
        read_tokenizer(tmp_path)
    with pytest.raises(ArgumentError, match="tokenizer.ggml.model is rwkv; legal are gpt2, llama"):
        from_gguf({"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": []})
    with pytest.raises(ArgumentError, match="pre is 'what'; legal are default, gpt-2, "):
        from_gguf(facts_of_bytes("what"))
    with pytest.raises(ArgumentError, match="GPT2: it was not made by from_pretrained"):
        next(write(GPT2(GPT2Config(16, 8, 8, 1, 2)), "a"))
    with pytest.raises(ArgumentError, match="no token 'q9' among"):
        from_gguf(facts_of_bytes("gpt-2")).number("q9")


# ---- texts ---------------------------------------------------------------------------------------


def with_tokenizer(folder, inner, **facts):
    """The folder of a checkpoint, with a tokenizer.json."""
    inner.save(str(Path(folder) / "tokenizer.json"))
    file = Path(folder) / "generation_config.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | facts))
    return folder


@pytest.fixture(scope="module")
def llama():
    config = transformers.LlamaConfig(
        **DECODER | dict(vocab_size=400, eos_token_id=0, bos_token_id=0)
    )
    theirs, folder = made("LlamaForCausalLM", config)
    return theirs, with_tokenizer(folder, BYTES, eos_token_id=[0])


def continued(theirs, prompt, most, **more):
    """What transformers writes."""
    tokens = torch.tensor([BYTES.encode(prompt).ids])
    out = theirs.generate(tokens, max_new_tokens=most, do_sample=False, **more)
    return BYTES.decode(out[0, tokens.shape[1] :].tolist())


def test_a_prompt_is_continued(llama):
    theirs, folder = llama
    found = list(write(Llama.from_pretrained(folder), "the tokens of", most=12))
    assert "".join(found) == continued(theirs, "the tokens of", 12)
    assert "".join(found).isprintable() or len(found) > 1


def test_the_command(llama, capsys):
    theirs, folder = llama
    assert main(["generate", str(folder), "the tokens of", "--most", "12"]) == 0
    assert (
        capsys.readouterr().out == "the tokens of" + continued(theirs, "the tokens of", 12) + "\n"
    )
    for options in (["--temperature", "0.9", "--seed", "3"], ["--bits", "8"]):
        assert main(["generate", str(folder), "a", "--most", "3", *options]) == 0
        assert capsys.readouterr().out.startswith("a")
    assert main(["generate", "/nowhere", "a"]) == 1
    assert "no config.json in /nowhere" in capsys.readouterr().err


def test_a_gguf_file_has_all_that_is_needed(tmp_path, capsys):
    model, facts = pieces()
    config = transformers.LlamaConfig(**DECODER | dict(vocab_size=400, hidden_size=64))
    theirs, _ = made("LlamaForCausalLM", config)
    with torch.no_grad():
        theirs.lm_head.weight[:259] = 0  # no single bytes, which may be no letters
    gguf_file(tmp_path / "x.gguf", theirs, saved(theirs), facts)
    tokens = torch.tensor([[1, *model.encode("the tokens")]])
    out = theirs.generate(tokens, max_new_tokens=9, do_sample=False, eos_token_id=2, pad_token_id=0)
    wanted = from_gguf(facts).decode(out[0].tolist())
    assert main(["generate", str(tmp_path / "x.gguf"), "the tokens", "--most", "9"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == wanted


def test_a_question_is_answered():
    config = transformers.T5Config(
        vocab_size=400, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_heads=4,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
    )  # fmt: skip
    theirs, folder = made("T5ForConditionalGeneration", config)
    with_tokenizer(folder, BYTES, eos_token_id=1)
    found = "".join(write(T5.from_pretrained(folder), "the tokens of a text", most=9))
    tokens = torch.tensor([BYTES.encode("the tokens of a text").ids])
    out = theirs.generate(tokens, max_new_tokens=9, do_sample=False)
    assert found == BYTES.decode(out[0, 1:].tolist())


HEARD = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>")


def test_a_sound_is_written_down():
    inner = trained(400, HEARD)
    facts = dict(
        decoder_start_token_id=1, eos_token_id=0, bos_token_id=0, pad_token_id=0,
        suppress_tokens=[40, 50, 90], begin_suppress_tokens=[60, 0],
    )  # fmt: skip
    config = transformers.WhisperConfig(
        **SPEECH | dict(vocab_size=400, max_source_positions=20) | facts
    )
    theirs, folder = made("WhisperForConditionalGeneration", config)
    with_tokenizer(folder, inner, **facts)
    model = Whisper.from_pretrained(folder)
    sound = floats(6400 + 1000) * 0.1  # 0.4 seconds are heard at a time
    found = "".join(transcribe(model, sound))
    wanted = ""
    for part in (sound[:6400], sound[6400:]):
        mels = torch.tensor(log_mel(part, 8, 0.4))[None]
        text = torch.tensor([[1, 2, 3, 4]])
        while text.shape[1] < 32 and text[0, -1] != 0:
            with torch.no_grad():
                scores = theirs(mels, decoder_input_ids=text).logits[0, -1]
            scores[[40, 50, 90]] = -np.inf
            if text.shape[1] == 4:
                scores[[60, 0]] = -np.inf
            text = torch.cat([text, scores.argmax()[None, None]], 1)
        wanted += inner.decode(text[0, 4:].tolist())
    assert found == wanted
    with pytest.raises(ArgumentError, match=r"no token '<\|xx\|>'"):
        next(transcribe(model, sound, "xx"))
