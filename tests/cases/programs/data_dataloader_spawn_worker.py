import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Prices(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        price = torch.tensor([float(i), 1.0, 2.0])
        return torch.log(price + (i > 0))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Prices(), batch_size=2, num_workers=1, multiprocessing_context="spawn")
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    for batch in loader:  # BIRTH
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())

# truth:
# {"phase": "data", "op": null, "module": null, "step": 0, "kind": "inf", "samples": [0], "cause": "bad-input", "exit": 3}
