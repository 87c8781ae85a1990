"""The models that are trained: tokens in, an `Encoding` out."""
