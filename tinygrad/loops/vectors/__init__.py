"""Recipes for processors: matrix products by tiles of vector registers, everything else in the
order of memory."""
