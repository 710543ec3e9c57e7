"""Recipes for processors: products by tiles of vector registers, all else as memory runs."""
