"""Results and models in formats of other programs."""
