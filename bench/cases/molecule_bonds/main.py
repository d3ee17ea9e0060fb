"""Predicts the boiling point of small molecules: atoms attend to the atoms they are bonded with."""

import torch
import torch.nn as nn

ELEMENTS = {"H": 0, "C": 1, "N": 2, "O": 3}


def molecule(formula, bonds):
    atoms = torch.tensor([ELEMENTS[a] for a in formula])
    adjacency = torch.eye(len(atoms))
    for a, b in bonds:
        adjacency[a, b] = adjacency[b, a] = 1
    return atoms, adjacency


DATA = [
    (molecule("OHH", [(0, 1), (0, 2)]), 100.0),
    (molecule("NHHH", [(0, 1), (0, 2), (0, 3)]), -33.0),
    (molecule("CHHHH", [(0, 1), (0, 2), (0, 3), (0, 4)]), -161.5),
    (molecule("COHHHH", [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5)]), 64.7),
]


class BondAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.source = nn.Linear(dim, 1)
        self.target = nn.Linear(dim, 1)
        self.message = nn.Linear(dim, dim)

    def forward(self, atoms, adjacency):
        scores = torch.nn.functional.leaky_relu(self.source(atoms) + self.target(atoms).T, 0.2)
        scores = scores * adjacency + (1 - adjacency) * float("-inf")
        return torch.relu(scores.softmax(dim=-1) @ self.message(atoms))


class BoilingPoint(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.elements = nn.Embedding(len(ELEMENTS), dim)
        self.bonds = BondAttention(dim)
        self.readout = nn.Linear(dim, 1)

    def forward(self, atoms, adjacency):
        return self.readout(self.bonds(self.elements(atoms), adjacency).sum(dim=0)).squeeze()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = BoilingPoint()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(3):
        for (atoms, adjacency), celsius in DATA:
            loss = (model(atoms, adjacency) - celsius / 100).abs()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(epoch, len(atoms), loss.item())
