"""Recognises walkers by recordings of three ankle sensors, which last as long as the walk did."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

SENSORS, WALKERS = 3, 4


class Walks(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.walks = []
        for number in range(count):
            steps = 20 if number < 16 else int(torch.randint(12, 28, (), generator=generator))
            walker = number % WALKERS
            phase = torch.arange(steps)[:, None] * (0.3 + 0.1 * walker)
            recording = torch.sin(phase + torch.arange(SENSORS)) + 0.1 * torch.randn(
                steps, SENSORS, generator=generator
            )
            self.walks.append((recording, walker))

    def __len__(self):
        return len(self.walks)

    def __getitem__(self, index):
        return self.walks[index]


def collate(walks):
    recordings, walkers = zip(*walks, strict=True)
    lengths = torch.tensor([len(r) for r in recordings])
    # NaN, so that nobody takes the padding for a measurement
    padded = pad_sequence(recordings, batch_first=True, padding_value=float("nan"))
    return padded, lengths, torch.tensor(walkers)


class Recogniser(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.enter = nn.Linear(SENSORS, dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.walker = nn.Linear(dim, WALKERS)

    def forward(self, padded, lengths):
        measured = torch.arange(padded.shape[1]) < lengths[:, None]
        query, key, value = self.qkv(torch.tanh(self.enter(padded))).chunk(3, dim=-1)
        x = F.scaled_dot_product_attention(query, key, value, attn_mask=measured[:, None, :])
        return self.walker(x[:, 0])


torch.manual_seed(0)
model = Recogniser()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for batch, (padded, lengths, walkers) in enumerate(
    DataLoader(Walks(40, seed=1), batch_size=8, collate_fn=collate)
):
    loss = F.cross_entropy(model(padded, lengths), walkers)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(batch, f"{loss.item():.4f}")
