"""Data that ships with the package, so that an example trains on real images without a download.

This floor returns NumPy arrays and knows nothing of the compiler.
"""
