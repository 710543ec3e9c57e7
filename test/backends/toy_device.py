"""The TOY device: the code of docs/new_backend.md, block after block, as one module."""

import hashlib
import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "new_backend.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
SOURCE = "\n".join(BLOCKS)

exec(compile(SOURCE, str(PAGE), "exec"))
ToyCompiler.version = hashlib.sha256(SOURCE.encode()).hexdigest()  # noqa: F821  the page's
