"""`python -m tinygrad COMMAND`; see `cli`."""

import sys

from tinygrad.cli import main

sys.exit(main())
