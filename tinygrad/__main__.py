"""`python -m tinygrad COMMAND`; see `cli`."""

import sys

from tinygrad.cli import main
from tinygrad.command import run_command

sys.exit(run_command(main))
