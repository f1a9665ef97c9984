"""Noise functions: Q(t), the noise matrix of the recorded label given the true one, over a clock."""
