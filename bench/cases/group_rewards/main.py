import torch
from torch import nn

VOCABULARY = 12


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.head = nn.Linear(24, VOCABULARY)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0]).log_softmax(-1)


@torch.no_grad()
def roll_out(policy, prompts, length=6):
    tokens = prompts
    for _ in range(length):
        tokens = torch.cat([tokens, torch.multinomial(policy(tokens)[:, -1].exp(), 1)], dim=1)
    return tokens


def judge(answer, call):
    """Score of the judge model; it does not answer in time now and then."""
    if call == 21:
        return None
    return float((answer == 3).sum()) - 0.1 * float((answer == 0).sum())


def advantages(rewards, group):
    grouped = rewards.view(-1, group)
    spread = grouped.std(dim=1, keepdim=True) + 1e-4
    return ((grouped - grouped.mean(dim=1, keepdim=True)) / spread).flatten()


torch.manual_seed(0)
policy, group, calls = Policy(), 4, 0
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for step in range(5):
    prompts = torch.randint(0, VOCABULARY, (2, 1)).repeat_interleave(group, dim=0)
    tokens = roll_out(policy, prompts)
    scores = []
    for answer in tokens[:, 1:]:
        score = judge(answer, calls)
        scores.append(float("nan") if score is None else score)
        calls += 1
    rewards = torch.tensor(scores)
    chosen = policy(tokens[:, :-1]).gather(2, tokens[:, 1:, None]).squeeze(2).sum(dim=1)
    loss = -(advantages(rewards, group) * chosen).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}  reward {rewards.mean().item():.3f}  loss {loss.item():.4f}")
