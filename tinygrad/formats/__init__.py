"""Floor 8: files of others, read and written as NumPy arrays."""
