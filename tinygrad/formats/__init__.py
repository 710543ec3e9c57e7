"""Floor 8: file formats of other programs, read and written as NumPy arrays."""
