"""Floor 8: numerical methods made of tensors: linear algebra's long tail, Fourier transforms."""
