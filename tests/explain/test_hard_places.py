"""Where a value was born, in places that are easily mistaken, and the cause that goes with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nanwatch.records import Incident

IncidentOf = Callable[..., Incident]


def line_of(incident: Incident) -> str:
    return incident.birth.code


ASKED = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def forward(self, x):
            size = x.square().sum(1)
            marks = {marks}
            return marks * size

    model = Net()
    for scale in (1.0, 1e25):
        model(torch.full((3, 2), scale))
"""


def test_an_infinity_that_was_asked_about_is_not_the_birth(incident_of: IncidentOf) -> None:
    for marks in ("size.isinf().logical_not()", "size.isfinite()"):
        incident = incident_of(ASKED.format(marks=marks))
        assert (incident.birth.op, line_of(incident)) == ("aten.mul.Tensor", "return marks * size")
        assert (incident.cause.id, incident.cause.certainty) == ("inf-arithmetic", "proved")


def test_an_infinity_that_nobody_asked_about_is(incident_of: IncidentOf) -> None:
    incident = incident_of(ASKED.format(marks="torch.zeros(3)"))
    assert line_of(incident) == "size = x.square().sum(1)" and incident.kind == "inf"


def test_statistics_that_a_forward_spoiled_are_born_there(incident_of: IncidentOf) -> None:
    incident = incident_of("""
        import torch
        from torch import nn

        class Spread(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))
                self.register_buffer("var", torch.ones(3))

            def forward(self, x):
                if self.training:
                    with torch.no_grad():
                        self.var.lerp_(x.var(dim=0), 0.1)
                    return x * self.weight
                return x * self.weight / self.var.sqrt()

        model = nn.Sequential(Spread())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for count in (4, 1, 4):
            optimizer.zero_grad()
            model(torch.randn(count, 3)).sum().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(torch.randn(4, 3))
    """)
    assert (incident.phase, incident.birth.op, incident.birth.module) == (
        "forward",
        "aten.var.correction",
        "0",
    )


def test_an_enumeration_is_no_total(incident_of: IncidentOf) -> None:
    source = """
        import torch
        from torch import nn

        model = nn.Linear(1, 1)
        with torch.no_grad():
            for n in (3, 1):
                steps = {made}
                model(steps.div_({count}).view(-1, 1))
    """
    made = "torch.arange(n, dtype=torch.float)"
    assert incident_of(source.format(made=made, count="n - 1")).cause.id == "divide-by-zero"
    made = "torch.randn(n - 1, 4).sum().reshape(1)"
    assert incident_of(source.format(made=made, count="n - 1")).cause.id == "empty-selection"


INNER = """
    import torch
    from torch import nn
    from torch.func import functional_call, grad

    class Unrolled(nn.Module):
        def __init__(self):
            super().__init__()
            self.examples = nn.Parameter(torch.randn(4, 3))
            self.student = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2))

        def inner(self, weights):
            return functional_call(self.student, weights, (self.examples,)).square().sum()

        def forward(self, x):
            weights = {k: v.detach() for k, v in self.student.named_parameters()}
            for _ in range(12):
                slopes = grad(self.inner)(weights)
                weights = {k: w - RATE * slopes[k] for k, w in weights.items()}
            return functional_call(self.student, weights, (x,)).square().mean()

    torch.manual_seed(0)
    model = Unrolled()
    optimizer = torch.optim.Adam([model.examples], lr=0.02)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).backward()
        optimizer.step()
"""


def test_a_derivative_inside_a_forward_has_its_line_and_module(incident_of: IncidentOf) -> None:
    incident = incident_of(INNER.replace("RATE", "0.3"))
    assert line_of(incident).startswith("return functional_call(self.student, weights, (self.examples,))")
    assert incident.birth.module is not None and incident.birth.module.startswith("student."), incident.birth
    assert incident.cause.id == "divergence" and "ran" in incident.cause.why, incident.cause


def test_what_this_rank_sent_to_the_others_is_its_own(incident_of: IncidentOf, tmp_path: Path) -> None:
    incident = incident_of(f"""
        import torch
        import torch.distributed as dist
        from torch import nn

        class Together(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                x = x.clone()
                dist.all_reduce(x)
                return x

            @staticmethod
            def backward(ctx, grad):
                return grad

        class Norm(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

            def forward(self, x):
                mean = x.mean(dim=0)
                return x * (self.weight * Together.apply(mean))

        dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=0, world_size=1)
        try:
            model = Norm()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for count in (4, 0):
                optimizer.zero_grad()
                model(torch.randn(count, 3)).sum().backward()
                optimizer.step()
        finally:
            dist.destroy_process_group()
    """)
    assert incident.seen_in == "gradients"
    assert (incident.phase, line_of(incident)) == ("forward", "mean = x.mean(dim=0)")
    assert incident.cause.id == "empty-selection" and incident.birth.samples == ()


ONE_BY_ONE = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(3, 3)
            {weight}

        def forward(self, x):
            return {forward}

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Block() for _ in range(3))

    decoder = Decoder()
    {more}
    with torch.no_grad():
        x = torch.ones(2, 3)
        for number, layer in enumerate(decoder.layers):
            x = layer(x * (number < 2))
"""
BIRTH = "self.up(x) / x.norm()"


def test_a_part_that_was_called_by_itself_has_its_path_in_the_whole(incident_of: IncidentOf) -> None:
    incident = incident_of(ONE_BY_ONE.format(weight="pass", forward=BIRTH, more="pass"))
    assert (incident.birth.module, incident.birth.within) == ("", "layers.2")
    weight = "self.up.weight.data[0, 0] = float('nan')"
    incident = incident_of(ONE_BY_ONE.format(weight=weight, forward="self.up(x)", more="pass"))
    assert (incident.birth.module, incident.birth.within) == ("up", "layers.0.up")


def test_a_part_of_two_wholes_has_none(incident_of: IncidentOf) -> None:
    more = "other = nn.Sequential(decoder.layers[2])"
    incident = incident_of(ONE_BY_ONE.format(weight="pass", forward=BIRTH, more=more))
    assert (incident.birth.module, incident.birth.within) == ("", None)


def test_a_whole_has_no_larger_one(incident_of: IncidentOf) -> None:
    incident = incident_of(ASKED.format(marks="torch.zeros(3)"))
    assert (incident.birth.module, incident.birth.within) == ("", None)


PROTOTYPES = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Linear(4, 8)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    prototypes = {}
    for step in range(100):
        x, y = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 1, 0])
        features = net(x)
        if step == 2:
            with torch.no_grad():
                prototypes = {k: features[(y * 0) == k].mean(0) for k in (0, 1)}
        loss = features.square().mean()
        if step >= 90:
            loss = (features - torch.stack([prototypes[int(k)] for k in y])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_what_was_kept_since_before_the_record_is_not_said_to_be_the_batch(incident_of: IncidentOf) -> None:
    incident = incident_of(PROTOTYPES, audit_seconds=0.0, audit_share=0.0)
    assert incident.step == 90 and incident.birth.op is None
    assert incident.cause.certainty not in ("proved", "likely")
    assert any("what made it is not known" in note for note in incident.notes)


def test_a_cache_is_left_as_it_was(incident_of: IncidentOf) -> None:
    source = """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)
                self.tables = {}
                self.calls = 0

            def forward(self, x):
                if "b" not in self.tables:
                    self.tables["a"] = torch.ones(4)
                    self.tables["b"] = 1 / torch.arange(4)
                    self.tables["c"] = torch.ones(4)
                self.calls += 1
                return self.layer(x) * self.tables["b" if self.calls > 3 else "a"]

        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for step in range(6):
            if step == 3:
                tables = list(net.tables.items())
            loss = net(torch.ones(3, 4)).square().mean()
            if step == 4:
                assert [k for k, _ in tables] == list(net.tables)
                assert all(net.tables[k] is v for k, v in tables)
                break
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    incident = incident_of(source, policy="skip", audit_seconds=0.0, audit_share=0.0)
    assert line_of(incident) == 'self.tables["b"] = 1 / torch.arange(4)'
    assert (incident.phase, incident.birth.module) == ("forward", "")


def test_missing_labels_that_nanmean_leaves_out_come_in_through_the_gradient(incident_of: IncidentOf) -> None:
    incident = incident_of("""
        import torch
        from torch import nn

        torch.manual_seed(0)
        net = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        x, y = torch.randn(6, 4), torch.randn(6, 3)
        y[1, 2] = y[4, 0] = float("nan")
        error = (net(x) - y).square()
        error.nanmean().backward()
        optimizer.step()
    """)
    assert (incident.phase, line_of(incident)) == ("backward", "error = (net(x) - y).square()")
    assert (incident.cause.id, incident.birth.samples) == ("where-gradient", (1, 4))


MISH = """
    import torch
    from torch import nn

    class Mish(nn.Module):
        def forward(self, x):
            return x * torch.tanh(torch.log(1 + torch.exp(x)))

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), Mish(), nn.Linear(8, 1)).to({dtype})
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    x = torch.randn(6, 4).to({dtype})
    x[2] = net[0].weight[1].detach() * {size} / net[0].weight[1].detach().square().sum()
    net(x).float().square().mean().backward()
    optimizer.step()
"""


def test_an_overflow_that_tanh_hides_is_the_cause_of_the_bad_gradient(incident_of: IncidentOf) -> None:
    incident = incident_of(MISH.format(dtype="torch.float32", size=90))
    assert (incident.phase, incident.cause.id) == ("backward", "overflow")
    incident = incident_of(MISH.format(dtype="torch.float16", size=14))
    assert (incident.phase, incident.cause.id) == ("backward", "half-overflow")


WRITTEN_UNSEEN = """
    import numpy
    import torch
    from torch import nn

    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(4):
        out = net(torch.randn(6, 4))
        seen = {output}
        if step == 2:
            seen[0] = {of_output}
        optimizer.zero_grad()
        out.square().mean().backward()
        seen = net.weight.grad.numpy()
        if step == 3:
            seen[1] = float("nan")
        optimizer.step()
"""


def test_what_numpy_has_written_is_no_fault_of_the_machine(incident_of: IncidentOf) -> None:
    gradient = WRITTEN_UNSEEN.format(output="out.detach().clone()", of_output="1.0")
    output = WRITTEN_UNSEEN.format(output="numpy.asarray(out.detach())", of_output="float('nan')")
    for source, phase, line in (
        (gradient, "backward", "seen = net.weight.grad.numpy()"),
        (output, "loss", "seen = numpy.asarray(out.detach())"),
    ):
        incident = incident_of(source)
        assert (incident.phase, line_of(incident), incident.birth.op) == (phase, line, None)
        assert incident.cause.id == "unknown"
        assert any("NumPy" in note for note in incident.notes)
        assert any(said.startswith("transient-fault: the memory") for said in incident.cause.ruled_out)
