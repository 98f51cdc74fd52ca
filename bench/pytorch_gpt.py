#!/usr/bin/env python3
"""The reference GPT's training step in PyTorch, for bench/run.sh: prints one line `ms <milliseconds>` a step.

The shape is bench/gpt_reference.piper's: 4 layers, dim 256, 4 heads, seq 256, batch 8, vocab 256, f32, AdamW.
Runs on Debian's python3-torch; preload libopenblas0-openmp for a fair peer (bench/run.sh does).
"""
import argparse
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)
        self.gelu = nn.GELU(approximate="tanh")

    def forward(self, x, mask):
        batch, seq, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (dim // self.heads) ** -0.5
        mixed = scores.masked_fill(mask, float("-inf")).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq, dim))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, dim, heads, vocab, seq):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.wpe = nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.register_buffer("mask", torch.triu(torch.ones(seq, seq, dtype=torch.bool), 1))

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.norm(x) @ self.wte.weight.T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help="a step a line of standard input")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1337)
    model = Gpt(4, 256, 4, 256, 256)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    tokens = torch.randint(0, 256, (8, 257))

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()
        return (time.perf_counter() - begin) * 1e3

    for _ in range(2):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        print(f"ms {min(step() for _ in range(int(line)))}", flush=True)


if __name__ == "__main__":
    main()
