"""Read number plates with a small convolutional network and CTC."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIGNS = "-0123456789ABCDEFGHJKLMNPRSTUVWXYZ"
PLATES = "K7A902 B12X84 M3R551 H20L67 T48C93 A5D316 S77720 P10Z45 E64F82 G9B030 L31K58 D82M19 N46T07 R05S63".split()


class Plates(Dataset):
    """Every sign is a column pattern of its own, with noise."""

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        patterns = torch.rand(len(SIGNS), 16, 4, generator=generator)
        self.labels = [torch.tensor([SIGNS.index(sign) for sign in plate]) for plate in PLATES]
        self.images = [torch.cat(list(patterns[label]), dim=1) for label in self.labels]

    def __len__(self):
        return len(PLATES)

    def __getitem__(self, index):
        return self.images[index][None] + 0.1 * torch.randn(1, 16, 24), self.labels[index]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.columns = nn.Sequential(
            nn.Conv2d(1, 16, (16, 3), padding=(0, 1)), nn.ReLU(), nn.MaxPool2d((1, 2)),
            nn.Conv2d(16, 32, (1, 3), padding=(0, 1)), nn.ReLU(), nn.MaxPool2d((1, 2)),
        )  # fmt: skip
        self.signs = nn.Linear(32, len(SIGNS))

    def forward(self, image):
        features = self.columns(image).squeeze(2).permute(2, 0, 1)
        return self.signs(features).log_softmax(dim=-1)


torch.manual_seed(0)
reader, criterion = Reader(), nn.CTCLoss()
optimizer = torch.optim.Adam(reader.parameters(), lr=5e-3)
for image, label in DataLoader(Plates(), batch_size=2):
    log_prob = reader(image)
    lengths = torch.full((len(image),), log_prob.shape[0])
    loss = criterion(log_prob, label, lengths, torch.full((len(image),), label.shape[1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
