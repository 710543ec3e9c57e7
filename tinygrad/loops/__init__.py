"""Floor 4: from a kernel to a better loop nest. A recipe is a list of primitives, which change
loops and never the meaning of a kernel. The heuristic chooses a recipe by arithmetic on the
machine's description. `docs/architecture.md` lists these files in reading order."""
