import torch
from torch import nn

torch.use_deterministic_algorithms(True)


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=32, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.tie()

    def tie(self):
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def published():
    """The file holds a tied matrix once, under the name of the embedding."""
    torch.manual_seed(4)
    state = LanguageModel().state_dict()
    del state["head.weight"]
    return state


def load(state):
    with torch.device("meta"):  # no memory is needed until the file is read
        model = LanguageModel()
    model.to_empty(device="cpu")
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert set(missing) <= {"head.weight"} and not unexpected
    return model


def fine_tune(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        ids = torch.randint(0, 32, (4, 13))
        logits = model(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


fine_tune(load(published()), 3)
