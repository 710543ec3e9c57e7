"""Recipes for devices with groups of lanes (GPUs): matrix products with pieces of operands in
shared memory, rows that are kept, and everything else."""
