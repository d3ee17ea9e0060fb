"""What several templates hold alike: the settings, what makes loader, loss and optimizer, a demo's data."""

PARTS = {
    "settings": """\
#: learning_rate
LEARNING_RATE = @LEARNING_RATE@

#: clip
CLIP_NORM = @CLIP_NORM@

#: total_steps
TOTAL_STEPS = @TOTAL_STEPS@

#: warmup_steps
WARMUP_STEPS = @WARMUP_STEPS@

#: weight_decay
WEIGHT_DECAY = 0.01

#: label_smoothing
LABEL_SMOOTHING = 0.1

#: batch_size
BATCH_SIZE = 8
""",
    "making": """\
def make_loader(dataset, batch_size=BATCH_SIZE):
    #: drop_last
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, drop_last=True)
    if len(loader) == 0:
        raise ValueError("@SAY_EMPTY@")
    return loader


def make_loss():
    return nn.CrossEntropyLoss(label_smoothing=LABEL_SMOOTHING)


def make_optimizer(model):
    #: adamw
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": others, "weight_decay": 0.0},
    ]
    #: epsilon
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, eps=1e-8)
""",
    "schedule_only": """\
def make_scheduler(optimizer):
    #: schedule_only
    return nanwatch.stabilise(
        optimizer, total_steps=TOTAL_STEPS, warmup_steps=WARMUP_STEPS, clip_norm=None
    )
""",
    "demo": """\
    #: demo
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    dataset = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
""",
}
