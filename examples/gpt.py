"""Trains a small GPT on real text that every machine has: the sources of Python's standard library, byte by byte.

Needs: pip install torch. Run it with: horo run -n 4 python examples/gpt.py
On GPUs, one for each rank: horo run -n 8 python examples/gpt.py --layers 12 --width 768 --batch 8 --length 1024
"""

import argparse
import pathlib
import sysconfig
import time

import torch
from torch import nn

import horo.torch as horo
from horo import zero

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=128, help="of a token, a multiple of 64 (%(default)s)")
parser.add_argument("--length", type=int, default=128, help="tokens that the model sees (%(default)s)")
parser.add_argument("--batch", type=int, default=4, help="sequences of a rank in a step (%(default)s)")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--zero", type=int, default=0, choices=range(4), help="stage of ZeRO (docs/sharding.md)")
parser.add_argument("--peak-tflops", type=float, help="of the device, for the share of it that the model uses (MFU)")
options = parser.parse_args()

horo.init()
device = torch.device("cpu")
if torch.cuda.is_available():
    torch.cuda.set_device(horo.local_rank() % torch.cuda.device_count())
    device = torch.device("cuda")
torch.manual_seed(0)

sources = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in sources)), dtype=torch.uint8)
split = len(text) * 9 // 10


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, 64)).transpose(1, 2) for part in parts)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, layers, width, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.tokens(tokens) + self.places)))


def batch_of(generator, begin, end):
    """Sequences of the text between two places, and the bytes that follow each."""
    starts = torch.randint(begin, end - options.length - 1, (options.batch,), generator=generator)
    rows = torch.stack([text[start : start + options.length + 1] for start in starts.tolist()]).long().to(device)
    return rows[:, :-1], rows[:, 1:]


def loss_of(tokens, following):
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits = model(tokens)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), following.flatten())


model = GPT(options.layers, options.width, options.length).to(device)
horo.broadcast_parameters(model.state_dict(), root_rank=0)
if options.zero > 1:
    model = zero.fully_shard(model, Block, stage=options.zero)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if options.zero < 2:
    wrap = zero.DistributedOptimizer if options.zero else horo.DistributedOptimizer
    optimizer = wrap(optimizer, named_parameters=model.named_parameters())

mine = torch.Generator().manual_seed(1 + horo.rank())  # each rank reads other parts of the text
warm_up, begun = min(10, options.steps - 1), None
for step in range(options.steps):
    if step == warm_up:
        if device.type == "cuda":
            torch.cuda.synchronize()
        horo.barrier()
        begun = time.perf_counter()
    optimizer.zero_grad()
    loss_of(*batch_of(mine, 0, split)).backward()
    optimizer.step()
if device.type == "cuda":
    torch.cuda.synchronize()
seconds = time.perf_counter() - begun

same = torch.Generator().manual_seed(0)
with torch.no_grad():
    losses = [loss_of(*batch_of(same, split, len(text))).item() for _ in range(10)]
if horo.rank() == 0:
    tokens = (options.steps - warm_up) * options.batch * options.length * horo.size() / seconds
    count = sum(parameter.numel() for parameter in model.parameters())
    flops = 6 * count * tokens / horo.size() / 1e12  # of a rank, forward and backward
    share = f", {flops / options.peak_tflops:.1%} of the peak" if options.peak_tflops else ""
    print(f"{count / 1e6:.1f} M parameters, {tokens:,.0f} tokens/s, {flops:.2f} TFLOP/s a rank{share}")
    print(f"loss on unseen text {sum(losses) / len(losses):.3f} nats a byte")
