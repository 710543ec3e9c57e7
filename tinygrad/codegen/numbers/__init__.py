"""Numbers and functions that a target lacks, made of those that it has."""
