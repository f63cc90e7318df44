# SPDX-License-Identifier: MIT
"""Gated delta nets, a token at a time: S ← γS, δ = β(v − Sᵀk), S ← S + k⊗δ, o = Sᵀq / sqrt(d)."""
import numpy as np


class ShortConv:
    """Σ_k conv[k]·x at p − (K−1−k)·dilation, zeros before the start; weight {K, channels}."""

    def __init__(self, weight, dilation=1):
        self.weight, self.dilation, self.past = weight, dilation, []

    def __call__(self, x):
        self.past.append(x)
        n = self.weight.shape[1]
        y = np.zeros_like(x)
        for k in range(n):
            at = len(self.past) - 1 - (n - 1 - k) * self.dilation
            if at >= 0:
                y += self.weight[:, k] * self.past[at]
        return y


class DeltaHead:
    def __init__(self, d):
        self.s = np.zeros((d, d))

    def __call__(self, q, k, v, gamma, beta):
        """gamma: a number, or one for each key."""
        self.s *= np.reshape(gamma, (-1, 1))
        self.s += np.outer(k, beta * (v - self.s.T @ k))
        return self.s.T @ q / np.sqrt(len(q))


def unit(x, eps):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + eps)
