"""The steps that people take by hand to corner a NaN, each done on the step that failed: the report says what
came of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from nanwatch.explain.case import Case, Outcome
from nanwatch.explain.checklist import BAD, FINE, OPEN
from nanwatch.explain.text import Text
from nanwatch.records import Check
from nanwatch.replay.tracer import measurable
from nanwatch.tensors import is_finite

AMP = Text("Turn mixed precision off.", "关闭混合精度。")
NO_AMP = Text("None was on.", "本来就没有开启。")
RATE = Text("Lower the learning rate.", "降低学习率。")
NO_RISE = Text(
    "Nothing rises: this step fails whatever the rate was.", "数值没有上升：这一步与学习率无关，照样失败。"
)
DATA = Text("Try another batch.", "换一批数据。")
MODEL = Text("Shrink the model.", "缩小模型。")
ONE_OP = Text(
    "The op {op} alone, with the operands it had, gives the same value: see repro.py.",
    "单独运行 op {op} 并使用当时的操作数，得到同样的值：见 repro.py。",
)
NOT_ALONE = Text("The op {op} alone does not give it again.", "单独运行 op {op} 不再出现该值。")
NO_OP = Text("No op is known to have made it.", "没有已知的 op 产生该值。")
CPU = Text("Use the CPU instead of the device.", "改用 CPU 运行。")
ON_CPU = Text("It ran on the CPU.", "本来就在 CPU 上运行。")
NOT_TRIED = Text("Could not be tried on this step.", "无法在这一步上尝试。")


def debugging(case: Case) -> tuple[Check, ...]:
    """Five steps. "bad": the trouble goes away with it, or comes back by itself: it lies there; "fine": this
    changes nothing."""
    steps: tuple[Callable[[Case], Check], ...] = (_amp, _rate, _data, _model, _device)
    return tuple(step(case) for step in steps)


def _check(question: Text, outcome: Outcome, instead: Text = NOT_TRIED) -> Check:
    if outcome.finite is None:
        return Check(question.say(), OPEN, outcome.text or instead.say())
    return Check(question.say(), BAD if outcome.finite else FINE, outcome.text)


def _amp(case: Case) -> Check:
    if not any(enabled for e in case.tape.entries for _, enabled, _ in e.context.autocast):
        return Check(AMP.say(), FINE, NO_AMP.say())
    return _check(AMP, case.outcome("autocast-off"))


def _rate(case: Case) -> Check:
    outcome = case.outcome("lower-rate")
    if outcome.finite is None and outcome.text:
        return Check(RATE.say(), FINE, NO_RISE.say())
    return _check(RATE, outcome)


def _data(case: Case) -> Check:
    return _check(DATA, case.outcome("another-batch"))


def _model(case: Case) -> Check:
    if case.birth is None:
        return Check(MODEL.say(), OPEN, NO_OP.say())
    made = case.birth.again()
    if made is None:
        return Check(MODEL.say(), OPEN, NOT_TRIED.say())
    again = any(not is_finite(t) for t in made if measurable(t))
    text = ONE_OP if again else NOT_ALONE
    return Check(MODEL.say(), BAD if again else FINE, text.say(op=case.birth.op.name))


def _device(case: Case) -> Check:
    weights = [p for m in case.models for p in m.parameters()]
    if all(p.device == torch.device("cpu") for p in weights):
        return Check(CPU.say(), FINE, ON_CPU.say())
    return _check(CPU, case.outcome("on-cpu"))
