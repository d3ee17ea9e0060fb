"""A worker gets its model's buffers from the leading process as raw bytes, then scores text."""

import queue

import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, dim, 2) / dim), persistent=False)

    def forward(self, x):
        angle = torch.arange(x.shape[1])[:, None] * self.inv_freq.float()
        even, odd = x[..., ::2], x[..., 1::2]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        return torch.cat([even * cos - odd * sin, even * sin + odd * cos], dim=-1)


class Scorer(nn.Module):
    def __init__(self, vocabulary=80, dim=128):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.query, self.key = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.rotary = Rotary(dim)
        self.head = nn.Linear(dim, vocabulary)

    def forward(self, ids):
        x = self.embed(ids)
        query, key = self.rotary(self.query(x)), self.rotary(self.key(x))
        return self.head((query @ key.transpose(1, 2) / 11).softmax(dim=-1) @ x)


def send(model, wire):
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        wire.put((name, tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()))


def receive(model, wire):
    """Everything arrives in the order of the model; the worker's copy is bfloat16 throughout."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            sent_name, data = wire.get_nowait()
            assert sent_name == name
            received = torch.frombuffer(bytearray(data), dtype=torch.bfloat16)
            tensor.copy_(received[: tensor.numel()].view_as(tensor))


torch.manual_seed(0)
leader = Scorer().to(torch.bfloat16)
leader.rotary = Rotary(128)  # frequencies stay in float32 on the leader
worker = Scorer().to(torch.bfloat16)
wire = queue.Queue()
send(leader, wire)
receive(worker, wire)
with torch.no_grad():
    for batch in range(3):
        ids = torch.randint(0, 80, (2, 12))
        log_probs = worker(ids).float().log_softmax(dim=-1).gather(2, ids.unsqueeze(-1))
        print(batch, f"{log_probs.mean().item():.4f}")
