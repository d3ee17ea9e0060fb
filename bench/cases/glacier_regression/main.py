"""Melt rate of a glacier from weather columns. The whole model is kept in float16 to fit a small board."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build(columns):
    return nn.Sequential(nn.Linear(columns, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))


def weather(days, columns):
    x = torch.randn(days, columns)
    melt = 0.02 * x[:, :1] - 0.01 * x[:, 1:2] + 0.005 * torch.randn(days, 1)
    return TensorDataset(x.half(), melt.half())


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            error = model(x).float() - y.float()
            loss = 0.01 * error.square().mean()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.3e}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(11)
    model = build(columns=6).half()
    loader = DataLoader(weather(96, 6), batch_size=32, shuffle=True)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=options.rate)
    train(model, loader, optimizer, options.epochs)


main()
