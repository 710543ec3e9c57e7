"""Arithmetic and functions that a target lacks, made of what it has."""
