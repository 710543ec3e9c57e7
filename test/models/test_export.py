"""Each model as ONNX is legal, and ONNX Runtime computes what the model computes."""

import numpy as np
import onnx
import onnxruntime
import pytest
from model_reference import ENCODER, SPEECH, floats, made, randomised, saved, tokens, transformers
from models.test_diffusion import UNET, UNet2DConditionModel, autoencoder
from models.test_forward import IMAGES, TEXTS

from tinygrad import Tensor
from tinygrad.models.bert import Bert
from tinygrad.models.clip import CLIP
from tinygrad.models.t5 import T5
from tinygrad.models.tiny import AnomalyAutoencoder, KeywordSpotting, ResNet8, VisualWakeWords
from tinygrad.models.unet import UNet
from tinygrad.models.vae import VAE
from tinygrad.models.whisper import Whisper
from tinygrad.models.yolo import YOLOConfig, YOLOv8
from tinygrad.nn.onnx import export_onnx

OPTIONS = onnxruntime.SessionOptions()
OPTIONS.log_severity_level = 3


def check(model, *inputs):
    """What ONNX Runtime gives for the exported model is what the model gives, to 1e-4."""
    tensors = [Tensor(x) for x in inputs]
    exported = export_onnx(model, tensors)
    onnx.checker.check_model(exported, full_check=True)
    session = onnxruntime.InferenceSession(exported.SerializeToString(), OPTIONS)
    names = [item.name for item in session.get_inputs()]
    found = session.run(None, dict(zip(names, inputs, strict=True)))
    results = model(*tensors)
    wanted = results if isinstance(results, (tuple, list)) else [results]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-4)


def loaded(ours, kind, config):
    return ours.from_pretrained(made(kind, config)[1])


def bert():
    config = transformers.BertConfig(vocab_size=97, max_position_embeddings=32, **ENCODER)
    return loaded(Bert, "BertModel", config)


def t5():
    config = transformers.T5Config(
        vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4
    )
    return loaded(T5, "T5ForConditionalGeneration", config)


def clip():
    text = dict(vocab_size=97, max_position_embeddings=16, bos_token_id=0, eos_token_id=96)
    config = transformers.CLIPConfig(
        text_config=ENCODER | text,
        vision_config=ENCODER | dict(image_size=16, patch_size=4),
        projection_dim=24,
    )
    return loaded(CLIP, "CLIPModel", config)


def whisper():
    kind = "WhisperForConditionalGeneration"
    return loaded(Whisper, kind, transformers.WhisperConfig(**SPEECH))


def unet():
    return UNet.from_pretrained(saved(randomised(UNet2DConditionModel(**UNET))))


MASK = np.ones((2, 11), np.int32)
OTHERS = {
    "BERT": (bert, tokens(2, 11), MASK, (tokens(2, 11) > 50).astype(np.int32)),
    "T5": (t5, tokens(2, 11), tokens(2, 7), MASK),
    "CLIP": (clip, floats(2, 3, 16, 16), tokens(3, 9)),
    "Whisper": (whisper, floats(2, 8, 20), tokens(2, 7)),
    "U-Net": (unet, floats(2, 4, 8, 8), np.array([3, 700], np.int32), floats(2, 7, 32)),
    "VAE": (lambda: VAE.from_pretrained(saved(autoencoder())).decode, floats(1, 4, 4, 4)),
    "YOLO": (lambda: YOLOv8(YOLOConfig(classes=7)), floats(1, 3, 64, 64)),
    "keywords": (KeywordSpotting, floats(2, 1, 49, 10)),
    "wake words": (VisualWakeWords, floats(1, 3, 96, 96)),
    "ResNet-8": (ResNet8, floats(2, 3, 32, 32)),
    "anomalies": (AnomalyAutoencoder, floats(2, 640)),
}
QUICK = ("GPT-2", "RWKV", "ResNet, two")


def rows(names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", rows(TEXTS))
def test_texts(name):
    check(loaded(*TEXTS[name]), tokens(2, 11))


@pytest.mark.parametrize("name", rows(IMAGES))
def test_images(name):
    check(loaded(*IMAGES[name]), floats(2, 3, 32, 32))


@pytest.mark.parametrize("name", rows(OTHERS))
@pytest.mark.filterwarnings("ignore")
def test_others(name):
    make, *inputs = OTHERS[name]
    check(make(), *inputs)
