"""Values that grow within one step: through many layers, or by one matrix that is applied again and again."""

from __future__ import annotations

from collections.abc import Callable

from nanwatch.records import Incident

IncidentOf = Callable[..., Incident]

PROGRAM = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)
            nn.init.normal_(self.linear.weight, std=0.7)

        def forward(self, x):
            return x + torch.relu(self.linear(x))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList({blocks})

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    torch.manual_seed(0)
    network = Network()
    state = {{name: value.clone() for name, value in network.state_dict().items()}}
    network.load_state_dict(state)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    loss = network(torch.randn(4, 8)).abs().mean()
    loss.backward()
    optimizer.step()
"""


def test_through_layers(incident_of: IncidentOf) -> None:
    incident = incident_of(PROGRAM.format(blocks="Block() for _ in range(220)"))
    assert (incident.cause.id, incident.cause.certainty) == ("divergence", "likely")
    assert incident.cause.why.startswith("Through "), incident.cause.why


def test_by_one_matrix(incident_of: IncidentOf) -> None:
    incident = incident_of(PROGRAM.format(blocks="[Block()] * 120"))
    assert (incident.cause.id, incident.cause.certainty) == ("divergence", "proved")
    assert incident.cause.why.startswith("Within this one step the same weights were applied ")


def test_before_any_update_no_setting_of_it_is_offered(incident_of: IncidentOf) -> None:
    incident = incident_of(PROGRAM.format(blocks="Block() for _ in range(220)"))
    assert [remedy.id for remedy in incident.remedies] == ["tame-growth"]


def test_weights_that_were_loaded_before_the_step_have_not_changed_since(incident_of: IncidentOf) -> None:
    incident = incident_of(PROGRAM.format(blocks="[Block()] * 120"), audit_seconds=0, audit_share=0)
    assert incident.located_by == "replay"
    assert incident.notes == ()
