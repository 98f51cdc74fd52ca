#!/usr/bin/env python3
"""Generates the golden numbers of tests/model_pytorch_test.cpp with PyTorch in f64 (Debian's python3-torch).

    python3 tests/golden/pytorch_goldens.py

writes gpt2.safetensors and llama.safetensors beside this file. Each holds, for a small block stack on one fixed
batch: the initial parameters ("param.NAME"), the batch ("batch.tokens", "batch.targets"; targets of -1 do not
count), the loss ("loss"), every gradient ("grad.NAME"), and, for each training recipe, the losses of three steps
("RECIPE.losses"), the gradient norms before clipping ("RECIPE.norms"), the learning rates ("RECIPE.lr") and the
parameters after the steps ("RECIPE.NAME"). The tests need only the files.
"""
import json
import math
import os
import struct

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, SEQ, EMBED, HEADS, KV_HEADS, HEAD_DIM, VOCAB, HIDDEN, LAYERS = 4, 6, 8, 4, 2, 4, 13, 20, 2
STEPS = 3


def write_safetensors(path, tensors):
    """Sorted by descending alignment, then name; the header padded with spaces to 8 bytes."""
    kinds = {torch.float64: ("F64", 8), torch.int32: ("I32", 4)}
    header, chunks, offset = {}, [], 0
    for name in sorted(tensors, key=lambda n: (-kinds[tensors[n].dtype][1], n)):
        tensor = tensors[name].detach().contiguous()
        data = tensor.numpy().tobytes()
        header[name] = {
            "dtype": kinds[tensor.dtype][0],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        chunks.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for chunk in chunks:
            file.write(chunk)


def make_parameters(shapes):
    generator = torch.Generator().manual_seed(20240607)
    parameters = {}
    for name, shape in shapes.items():
        value = 0.3 * torch.randn(shape, generator=generator)
        if name.endswith(".gamma"):
            value = 1.0 + value
        parameters[name] = value
    return parameters


def make_batch():
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(0, VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    targets = torch.randint(0, VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    targets[1, 2] = -1
    targets[3, 0] = -1
    return tokens, targets


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.reshape(-1, VOCAB), targets.long().reshape(-1), ignore_index=-1)


def causal_attention(q, k, v):
    """[batch, seq, heads, head_dim]; consecutive query heads share a key head."""
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[3])
    mask = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def gpt2_shapes():
    shapes = {"wte": (VOCAB, EMBED), "wpe": (SEQ, EMBED)}
    for i in range(LAYERS):
        shapes.update({
            f"blocks.{i}.ln1.gamma": (EMBED,), f"blocks.{i}.ln1.beta": (EMBED,),
            f"blocks.{i}.wqkv": (EMBED, 3, HEADS, HEAD_DIM), f"blocks.{i}.bqkv": (3, HEADS, HEAD_DIM),
            f"blocks.{i}.wo": (HEADS, HEAD_DIM, EMBED), f"blocks.{i}.bo": (EMBED,),
            f"blocks.{i}.ln2.gamma": (EMBED,), f"blocks.{i}.ln2.beta": (EMBED,),
            f"blocks.{i}.w1": (EMBED, HIDDEN), f"blocks.{i}.b1": (HIDDEN,),
            f"blocks.{i}.w2": (HIDDEN, EMBED), f"blocks.{i}.b2": (EMBED,),
        })
    shapes.update({"lnf.gamma": (EMBED,), "lnf.beta": (EMBED,)})
    return shapes


def gpt2_loss(p, tokens, targets):
    x = F.embedding(tokens.long(), p["wte"]) + p["wpe"]
    for i in range(LAYERS):
        b = f"blocks.{i}."
        h = F.layer_norm(x, (EMBED,), p[b + "ln1.gamma"], p[b + "ln1.beta"], eps=1e-5)
        q, k, v = (torch.einsum("bse,ethd->bsthd", h, p[b + "wqkv"]) + p[b + "bqkv"]).unbind(dim=2)
        x = x + torch.einsum("bshd,hde->bse", causal_attention(q, k, v), p[b + "wo"]) + p[b + "bo"]
        h = F.layer_norm(x, (EMBED,), p[b + "ln2.gamma"], p[b + "ln2.beta"], eps=1e-5)
        # The tanh form of GELU, written out: this PyTorch may lack the argument.
        h = h @ p[b + "w1"] + p[b + "b1"]
        h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * h**3)))
        x = x + h @ p[b + "w2"] + p[b + "b2"]
    x = F.layer_norm(x, (EMBED,), p["lnf.gamma"], p["lnf.beta"], eps=1e-5)
    return cross_entropy(x @ p["wte"].T, targets)


def llama_shapes():
    shapes = {"embed": (VOCAB, EMBED)}
    for i in range(LAYERS):
        shapes.update({
            f"layers.{i}.norm1.gamma": (EMBED,),
            f"layers.{i}.wq": (EMBED, HEADS, HEAD_DIM),
            f"layers.{i}.wk": (EMBED, KV_HEADS, HEAD_DIM), f"layers.{i}.wv": (EMBED, KV_HEADS, HEAD_DIM),
            f"layers.{i}.wo": (HEADS, HEAD_DIM, EMBED),
            f"layers.{i}.norm2.gamma": (EMBED,),
            f"layers.{i}.gate": (EMBED, HIDDEN), f"layers.{i}.up": (EMBED, HIDDEN),
            f"layers.{i}.down": (HIDDEN, EMBED),
        })
    shapes.update({"norm.gamma": (EMBED,), "head": (EMBED, VOCAB)})
    return shapes


def rms_norm(x, gamma):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * gamma


def rope(x):
    """Element i of a head turns with element i + head_dim / 2."""
    half = x.shape[3] // 2
    frequency = 10000.0 ** (-torch.arange(half) / half)
    angle = torch.arange(x.shape[1])[:, None] * frequency[None, :]
    cos, sin = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def llama_loss(p, tokens, targets):
    x = F.embedding(tokens.long(), p["embed"])
    for i in range(LAYERS):
        l = f"layers.{i}."
        h = rms_norm(x, p[l + "norm1.gamma"])
        q = rope(torch.einsum("bse,ehd->bshd", h, p[l + "wq"]))
        k = rope(torch.einsum("bse,ehd->bshd", h, p[l + "wk"]))
        v = torch.einsum("bse,ehd->bshd", h, p[l + "wv"])
        x = x + torch.einsum("bshd,hde->bse", causal_attention(q, k, v), p[l + "wo"])
        h = rms_norm(x, p[l + "norm2.gamma"])
        x = x + (F.silu(h @ p[l + "gate"]) * (h @ p[l + "up"])) @ p[l + "down"]
    return cross_entropy(rms_norm(x, p["norm.gamma"]) @ p["head"], targets)


def adamw(groups):
    return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95), eps=1e-3, weight_decay=0.1)


def one_group(parameters):
    return [{"params": list(parameters.values())}]


def matrices_decay(parameters):
    """Weight decay on tensors of two or more dimensions only."""
    return [
        {"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0},
    ]


def warmup(step):
    """Linear from 0 over two steps."""
    return min(1.0, (step + 1) / 2)


def cosine(step):
    """After one step of warm-up a cosine from the peak to a tenth of it at step 4."""
    if step < 1:
        return (step + 1) / 1
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - 1) / (4 - 1))))


def constant(step):
    return 1.0


# name -> (optimizer of the parameters, learning-rate factor of the step, bound of the gradient norm)
RECIPES = {
    "adamw": (lambda p: adamw(one_group(p)), constant, None),
    "adamw_groups": (lambda p: adamw(matrices_decay(p)), constant, None),
    "adamw_clip_warmup": (lambda p: adamw(one_group(p)), warmup, 0.5),
    "adamw_cosine": (lambda p: adamw(one_group(p)), cosine, None),
    "sgd": (lambda p: torch.optim.SGD(one_group(p), lr=0.1), constant, None),
    "sgd_momentum": (lambda p: torch.optim.SGD(one_group(p), lr=0.1, momentum=0.9, weight_decay=0.01), constant, None),
    "sgd_nesterov": (lambda p: torch.optim.SGD(one_group(p), lr=0.1, momentum=0.9, nesterov=True), constant, 0.5),
}


def train(shapes, loss_of, tokens, targets, recipe):
    parameters = {n: v.clone().requires_grad_() for n, v in make_parameters(shapes).items()}
    make, factor, clip = RECIPES[recipe]
    optimizer = make(parameters)
    peak = optimizer.param_groups[0]["lr"]
    losses, norms, rates = [], [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = peak * factor(step)
        rates.append(peak * factor(step))
        optimizer.zero_grad()
        loss = loss_of(parameters, tokens, targets)
        loss.backward()
        bound = clip if clip is not None else float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(list(parameters.values()), bound).item()
                     if clip is not None else
                     math.sqrt(sum(p.grad.pow(2).sum().item() for p in parameters.values())))
        losses.append(loss.item())
        optimizer.step()
    result = {f"{recipe}.{n}": v for n, v in parameters.items()}
    result[f"{recipe}.losses"] = torch.tensor(losses)
    result[f"{recipe}.norms"] = torch.tensor(norms)
    result[f"{recipe}.lr"] = torch.tensor(rates)
    return result


def generate(name, shapes, loss_of, recipes):
    tokens, targets = make_batch()
    parameters = {n: v.requires_grad_() for n, v in make_parameters(shapes).items()}
    loss = loss_of(parameters, tokens, targets)
    loss.backward()
    tensors = {"batch.tokens": tokens, "batch.targets": targets, "loss": loss.reshape(1)}
    tensors.update({f"param.{n}": v for n, v in parameters.items()})
    tensors.update({f"grad.{n}": v.grad for n, v in parameters.items()})
    for recipe in recipes:
        tensors.update(train(shapes, loss_of, tokens, targets, recipe))
    write_safetensors(os.path.join(HERE, name + ".safetensors"), tensors)


if __name__ == "__main__":
    generate("gpt2", gpt2_shapes(), gpt2_loss, list(RECIPES))
    generate("llama", llama_shapes(), llama_loss, ["adamw"])
