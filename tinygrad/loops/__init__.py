"""A kernel into a better nest: primitives that never change meaning, recipes of them as data, and
the arithmetic on the machine's description that chooses one. `docs/architecture.md` has the order
in which one reads these files."""
