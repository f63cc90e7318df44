# SPDX-License-Identifier: MIT
"""Parts of graphs in double precision, one token at a time, as the formulas stand."""
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0, x)


def rms(x, weight=None, eps=0.0):
    y = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    return y if weight is None else y * weight


def layer_norm(x, weight, bias, eps):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt(np.mean(c * c, axis=-1, keepdims=True) + eps) * weight + bias


def softmax(x, axis=-1):
    p = np.exp(x - x.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


class Rope:
    """`pairs`: neighbours ("norm") or halves ("neox") of n_rot elements from `start` on; `still`: pairs that no text
    turns."""

    def __init__(self, n_rot, base, pairs, start=0, yarn=None, magnitude=True, linear=1.0, still=(), factors=None):
        i = np.arange(n_rot // 2)
        angle = base ** (-2.0 * i / n_rot)
        if factors is not None:
            angle = angle / factors[:len(angle)]
        self.magnitude = 1.0
        if yarn is not None:
            factor, n_orig = yarn
            ends = [n_rot * np.log(n_orig / (turns * 2 * np.pi)) / (2 * np.log(base)) for turns in (32, 1)]
            low, high = max(0, np.floor(ends[0])), min(n_rot - 1, np.ceil(ends[1]))
            mix = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)
            angle = angle / factor * (1 - mix) + angle * mix
            if magnitude:
                self.magnitude = 1 + 0.1 * np.log(factor)
        angle = angle / linear
        self.angle = np.array([0.0 if k in still else a for k, a in enumerate(angle)])
        self.still = np.array([k in still for k in i])
        self.pairs, self.start, self.n_rot = pairs, start, n_rot

    def __call__(self, x, position):
        """The last axis of x turns by the angles of a position, which may be negative."""
        x = np.array(x)
        part = x[..., self.start:self.start + self.n_rot].copy()
        a = np.arange(self.n_rot // 2) * (2 if self.pairs == "norm" else 1)
        c = a + (1 if self.pairs == "norm" else self.n_rot // 2)
        m = np.where(self.still, 1.0, self.magnitude)
        cos, sin = m * np.cos(position * self.angle), m * np.sin(position * self.angle)
        left, right = part[..., a].copy(), part[..., c].copy()
        part[..., a] = left * cos - right * sin
        part[..., c] = left * sin + right * cos
        x[..., self.start:self.start + self.n_rot] = part
        return x


def rope_scaling(model):
    """(linear factor, YaRN of factor and original context), of which at most one counts."""
    kind = model.key("rope.scaling.type", "none")
    if kind == "linear":
        return model.key("rope.scaling.factor"), None
    if kind == "yarn":
        return 1.0, (model.key("rope.scaling.factor"),
                     model.key("rope.scaling.original_context_length", model.key("context_length")))
    return 1.0, None


def best(scores, k):
    """Places of the k largest, the lower place first where they are equal."""
    return sorted(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k])


def attend(q, keys, values, scale, sink=None):
    """One head: q against rows of keys."""
    if len(keys) == 0:
        return np.zeros(values.shape[-1])
    s = keys @ q * scale
    m = max(s.max(), -np.inf if sink is None else sink)
    p = np.exp(s - m)
    return p @ values / (p.sum() + (0 if sink is None else np.exp(sink - m)))


def choose_experts(z, bias, k, gating, normalize, scale, n_group=0, n_group_used=0):
    """(experts, weights) of router logits z."""
    p = {1: softmax, 2: sigmoid, 4: lambda x: np.sqrt(softplus(x))}[gating](z)
    select = p if bias is None else p + bias
    if n_group > 1:
        groups = select.reshape(n_group, -1)
        kept = best(np.sort(groups, axis=1)[:, -2:].sum(1), n_group_used)
        select = np.where(np.isin(np.arange(n_group), kept)[:, None], groups, -np.inf).reshape(-1)
    chosen = sorted(range(len(z)), key=lambda i: (-select[i], i))[:k]
    return chosen, weigh(p[chosen], normalize, scale)


def weigh(w, normalize, scale):
    if normalize:
        w = w / max(w.sum(), 6.1e-5)
    return w * scale if scale not in (0, 1) else w


def experts(model, block, x, chosen, weights, n_expert, width, act, n_out=None, fused=False):
    """Σ w · down(act(gate, up))."""
    n = len(x)
    n_out = n if n_out is None else n_out
    if fused:
        both = model.tensor(block + "ffn_gate_up_exps.weight", n, 2 * width, n_expert)
        gate, up = both[:, :width], both[:, width:]
    else:
        gate = model.tensor(block + "ffn_gate_exps.weight", n, width, n_expert)
        up = model.tensor(block + "ffn_up_exps.weight", n, width, n_expert)
    down = model.tensor(block + "ffn_down_exps.weight", width, n_out, n_expert)
    return sum(w * (down[e] @ act(gate[e] @ x, up[e] @ x)) for e, w in zip(chosen, weights))


def gated(model, block, suffix, x, width, act):
    n = len(x)
    gate = model.tensor(f"{block}ffn_gate{suffix}.weight", n, width)
    up = model.tensor(f"{block}ffn_up{suffix}.weight", n, width)
    return model.tensor(f"{block}ffn_down{suffix}.weight", width, n) @ act(gate @ x, up @ x)


def silu_gate(gate, up):
    return silu(gate) * up


def clamped_before(limit):
    """silu(min(g, c)) · clamp(u, ±c)."""
    if not limit > 1e-6:
        return silu_gate
    return lambda g, u: silu(np.minimum(g, limit)) * np.clip(u, -limit, limit)


def oai_swiglu(g, u):
    g, u = np.minimum(g, 7), np.clip(u, -7, 7)
    return g * sigmoid(1.702 * g) * (u + 1)


def small_keys(arch, more, marks):
    """Keys of a model of four small layers, and what `more` says otherwise; `marks` are no keys but say which tensors a
    model has."""
    base = {"vocab_size": 64, "context_length": 512, "embedding_length": 32, "block_count": 4,
            "feed_forward_length": 40, "attention.head_count": 4, "attention.head_count_kv": 2,
            "attention.layer_norm_rms_epsilon": 3e-3, "rope.freq_base": 10000.0, "attention.key_length": 12,
            "attention.value_length": 12, "rope.dimension_count": 12}
    named = {**base, **{k: v for k, v in more.items() if k not in marks}}
    return {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in named.items()},
            **{k: v for k, v in more.items() if k in marks}}
