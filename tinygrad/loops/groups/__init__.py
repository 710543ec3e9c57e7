"""Recipes for devices with groups of lanes: products by pieces in shared memory, rows, all else."""
