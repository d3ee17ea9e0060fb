"""Warnings before the NaN: a rise that will overflow, a spike, little room left in a dtype, a falling loss
scale.

Fed with one `StepFacts` per step. What counts as usual is learned from the run itself (`curve.py`): a value
must leave everything behind that the run has seen since it began, so falling rates, curricula, noise and the
spikes at the end of an epoch say nothing. No torch: it only reads numbers that are there anyway.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Protocol

from nanwatch.act.alarm import HEADROOM, OVERFLOW, SCALE, SPIKE, Alarm
from nanwatch.act.curve import Curve
from nanwatch.records import StepFacts

LOSS_LIMIT = 38.5
NORM_LIMIT = 19.2
"""log10 of what float32 holds, and of its root: norms are squared on the way to clipping and in Adam."""
HORIZON = 500
"""An overflow that is further away than so many steps may never come."""
VERY_NEAR = 30
"""The same for a rise that slows down."""
LOSS_MARGIN = 1.0
NORM_MARGIN = 2.0
WEIGHT_MARGIN = 1.0
RANGE_MARGIN = 1.0
"""How far a rise must be above all that was before, in orders of magnitude."""
SPIKE_ORDERS = 2.0
FEWEST_STEPS = 20
"""Before so many steps a spike is not known to be one."""
RANGE_SEEN = -1.7
"""log10 of the share of its dtype from which on a module's rise matters: logits grow in every good
training."""
NEAR = 0.25
"""A module that uses this share of its dtype has little room left."""
FULL = 0.99
"""The lowest number of a dtype, as masks have it: put there on purpose."""
FALLS = 5
FIRST_FALLS = 14
"""Steps that a GradScaler skips in a row: later in a run, and while it looks for its first scale."""
USUAL_SCALE = 16
"""log2 of the scale that GradScaler begins with."""
OTHER_OPTIMIZER = 2.5
"""Rates this many times apart, and coming in turns, belong to several optimizers."""
MOST_WAITING = 16
"""Steps that are looked at together when none of them stands out: one by one they cost five times as much."""
WATCHFUL = 8
"""So many steps after one that stood out are looked at each by itself: no rise is told of later."""
RATE_DROP = 0.7
MOST_TURNS = 4
MOST_MODULES = 64
MOST_GIVEN = 64
EXPLAINS = 0.5
"""The part of a rise that must go with what the program gives its steps."""


class Given(Protocol):
    """Who knows what the program has given a step: how much data, which factors."""

    def given_to(self, step: int) -> Mapping[Hashable, float]: ...


class Turn:
    """The steps of one optimizer, where several take turns."""

    def __init__(self, shape: tuple[int, ...], facts: StepFacts, others: list[Turn]) -> None:
        self.shape = shape
        self.lr = facts.lr
        self.loss: Curve = Curve(max((t.loss.highest for t in others), default=-math.inf))
        self.norm: Curve = Curve(max((t.norm.highest for t in others), default=-math.inf))
        self.weights = Curve()
        self.given: deque[tuple[int, Mapping[Hashable, float]]] = deque(maxlen=MOST_GIVEN)
        """In the steps that were above all before them."""
        self.first_layers: dict[str, float] = {}
        self.layers: dict[str, float] = {}

    def add(self, facts: StepFacts) -> None:
        if self.lr and facts.lr and facts.lr[0] < RATE_DROP * self.lr[0]:
            self.begin_anew(facts.step)
        self.lr = facts.lr
        for curve, value in ((self.loss, facts.loss), (self.norm, facts.grad_norm)):
            if isinstance(value, (int, float)) and math.isfinite(value) and value != 0:
                curve.add(facts.step, math.log10(abs(value)))
        layers = facts.facts.get("layers")
        if layers:
            self._add_layers(facts.step, layers)

    def note_given(self, step: int, given: Given) -> None:
        if self.loss.last > self.loss.before or self.norm.last > self.norm.before:
            self.given.append((step, given.given_to(step)))

    def is_scheduled(self, curve: Curve) -> bool:
        """Whether the program itself has given its steps more and more, as the curve rose: longer sequences,
        a larger weight of a term of the loss."""
        known = [(step, given) for step, given in self.given if step >= curve.since]
        if len(known) < 2:
            return False
        (began, first), (_, last) = known[0], known[-1]
        rise = curve.last - curve.at(began)
        grown = (math.log10(last[key] / first[key]) for key in first if key in last and first[key] > 0)
        return any(growth >= EXPLAINS * rise > 0 for growth in grown)

    def begin_anew(self, step: int) -> None:
        for curve in (self.loss, self.norm, self.weights):
            curve.begin_anew(step)

    def _add_layers(self, step: int, layers: dict[str, Any]) -> None:
        norms = {name: pair[0] for name, pair in layers.items() if math.isfinite(pair[0])}
        total = math.hypot(*norms.values()) if len(norms) == len(layers) else 0.0
        if total > 0 and math.isfinite(total):
            self.weights.add(step, math.log10(total))
            self.layers = norms
            self.first_layers = self.first_layers or norms

    def leading_layer(self) -> str | None:
        """The parameter that has grown most, by what it adds to all weights; of those that were there before:
        another model may have come meanwhile."""
        first = self.first_layers
        grown = {name: norm - first[name] for name, norm in self.layers.items() if name in first}
        name = max(grown, key=lambda n: grown[n], default=None)
        return name if name is not None and grown[name] > 0.1 * first[name] else None


class EarlyWarning:
    """`for alarm in warning.see(facts): …` after each step."""

    def __init__(self) -> None:
        self.episodes = 0
        self._turns: list[Turn] = []
        self._by_calls = True
        self._ranges: dict[str, Curve] = {}
        self._room = math.inf
        """Orders of magnitude that were left to the nearest module, when last seen."""
        self._loss_then = 0.0
        self._open: dict[tuple[str, int], int] = {}
        """Rises that have been told of: (kind, id of the curve) -> number of the rise."""
        self._falling = False
        self._scaler_has_stepped = False
        self._quiet_until = 0
        self._waiting: list[StepFacts] = []
        self._highest_loss = self._highest_norm = 0.0
        self._watchful = 0

    def see(self, facts: StepFacts, given: Given | None = None) -> tuple[Alarm, ...]:
        """The warnings that this step gives rise to: as if each step were looked at when it comes. `given` is
        asked only in a step that is above all before it."""
        waiting = self._waiting
        waiting.append(facts)
        if len(waiting) < MOST_WAITING and not self._stands_out(facts):
            return ()
        self._waiting = []
        return tuple(alarm for each in waiting for alarm in self._see(each, given if each is facts else None))

    def begin_anew(self, step: int) -> None:
        """From this step on the rate is lower, because of what another rank has seen: what rises from here
        on is another episode."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._see(each)
        for turn in self._turns:
            turn.begin_anew(step)

    def _stands_out(self, facts: StepFacts) -> bool:
        """Whether a step may give rise to a warning: it, or one just before it, is above all that were."""
        loss, norm = facts.loss, facts.grad_norm
        if facts.facts or facts.scale is not None or len(self._turns) != 1 or not self._by_calls:
            return True
        if type(loss) is not float or type(norm) is not float:
            return True
        if abs(loss) > self._highest_loss or norm > self._highest_norm:
            self._highest_loss = max(self._highest_loss, abs(loss) if math.isfinite(loss) else 0.0)
            self._highest_norm = max(self._highest_norm, norm if math.isfinite(norm) else 0.0)
            self._watchful = WATCHFUL
        self._watchful -= 1
        return self._watchful >= 0 or "scaler-step" in facts.events

    def _see(self, facts: StepFacts, given: Given | None = None) -> tuple[Alarm, ...]:
        turn = self._turn_of(facts)
        turn.add(facts)
        if given is not None:
            turn.note_given(facts.step, given)
        ranges = facts.facts.get("range_used")
        if ranges:
            self._see_ranges(facts.step, ranges, turn)
        alarms = self._overflow(facts, turn) or self._spike(facts, turn)
        if ranges:
            alarms = alarms or self._headroom(facts, turn, ranges)
        if facts.scale is not None or "scaler-step" in facts.events:
            alarms += self._scale(facts, turn)
        return alarms

    # Whose step it is

    def _turn_of(self, facts: StepFacts) -> Turn:
        events = facts.events
        shape = (len(facts.lr), events.count("forward"), events.count("backward"))
        if not self._by_calls:
            shape = (*shape[:1], 0, 0)
        rate = facts.lr[0] if facts.lr else 0.0
        for turn in self._turns:
            if turn.shape == shape and _alike(rate, turn.lr[0] if turn.lr else 0.0):
                return turn
        if len(self._turns) >= MOST_TURNS:
            # no pattern: one turn for all, with what it has learned
            self._by_calls = False
            longest = max(self._turns, key=lambda t: t.loss.count + t.norm.count)
            longest.shape = (len(facts.lr), 0, 0)
            self._turns = [longest]
            return longest
        turn = Turn(shape, facts, self._turns)
        self._turns.append(turn)
        return turn

    # A rise that will overflow

    def _overflow(self, facts: StepFacts, turn: Turn) -> tuple[Alarm, ...]:
        rises = [
            (_steps_left(limit, curve.last, curve.slope()), of, curve)
            for of, curve, limit in self._rises(facts, turn)
            if _steps_left(limit, curve.last, curve.steady_slope())
            <= (HORIZON if curve.keeps_pace() else VERY_NEAR)
            and not (of in ("loss", "grad_norm") and turn.is_scheduled(curve))
        ]
        if not rises:
            return ()
        told = self._still_open(OVERFLOW)
        for _, _, curve in rises:
            self._open[(OVERFLOW, id(curve))] = curve.rise
        if told:
            return ()
        left, of, curve = min(rises, key=lambda r: r[0])
        layer = self._module_of(curve) if of == "range" else turn.leading_layer()
        return (self._alarm(OVERFLOW, facts, turn, of, curve, steps_left=max(1, round(left)), layer=layer),)

    def _rises(self, facts: StepFacts, turn: Turn) -> Iterator[tuple[str, Curve, float]]:
        loss, norm = turn.loss, turn.norm
        if loss.climbs and loss.rising(LOSS_MARGIN):
            yield "loss", loss, min(LOSS_LIMIT, self._loss_then + self._room)
        # on the way out of a saddle the gradients grow by orders of magnitude too, and the loss falls
        if norm.climbs and norm.rising(NORM_MARGIN) and (loss.usual is None or loss.last >= loss.usual):
            yield "grad_norm", norm, NORM_LIMIT
        if "layers" in facts.facts and turn.weights.rising(WEIGHT_MARGIN):
            yield "weights", turn.weights, NORM_LIMIT
        for module in facts.facts.get("range_used", ()):
            curve = self._ranges.get(module)
            if curve is not None and curve.last > RANGE_SEEN and curve.rising(RANGE_MARGIN):
                yield "range", curve, 0.0

    def _still_open(self, kind: str) -> bool:
        """Whether a rise of this kind that was told of still goes on."""
        curves = {id(c): c for t in self._turns for c in (t.loss, t.norm, t.weights)}
        curves |= {id(c): c for c in self._ranges.values()}
        for key in [k for k in self._open if k[0] == kind]:
            curve = curves.get(key[1])
            if curve is None or curve.rise != self._open[key]:
                del self._open[key]
        return any(k[0] == kind for k in self._open)

    # One step far above all others

    def _spike(self, facts: StepFacts, turn: Turn) -> tuple[Alarm, ...]:
        clipped = "clip" in facts.events  # then a large gradient does no harm
        for of, curve in (("loss", turn.loss), ("grad_norm", turn.norm)):
            above = curve.last - curve.before
            if above < SPIKE_ORDERS or curve.count < FEWEST_STEPS or curve.usual is None:
                continue
            if above < 10 * curve.spread or facts.step < self._quiet_until or (of == "grad_norm" and clipped):
                continue
            self._quiet_until = facts.step + FEWEST_STEPS
            return (self._alarm(SPIKE, facts, turn, of, curve, first=curve.usual),)
        return ()

    # How near modules are to the limits of their dtype

    def _see_ranges(self, step: int, ranges: dict[str, float], turn: Turn) -> None:
        shares = {m: s for m, s in ranges.items() if 0 < s < FULL}
        for module, share in shares.items():
            curve = self._ranges.get(module)
            if curve is None and len(self._ranges) < MOST_MODULES:
                curve = self._ranges[module] = Curve()
            if curve is not None:
                curve.add(step, math.log10(share))
        if shares and turn.loss.count:
            self._room = -math.log10(max(shares.values()))
            self._loss_then = max(turn.loss.last, 0.0)

    def _module_of(self, curve: Curve) -> str:
        return next(module for module, c in self._ranges.items() if c is curve)

    def _headroom(self, facts: StepFacts, turn: Turn, ranges: dict[str, float]) -> tuple[Alarm, ...]:
        for module in ranges:
            curve = self._ranges.get(module)
            if curve is None or curve.last < math.log10(NEAR) or curve.count < 4 or curve.climbs < 2:
                continue
            key, told = (HEADROOM, id(curve)), self._open.get((HEADROOM, id(curve)))
            if curve.height >= 0.3 and curve.jump <= 0.8 * curve.height and told != curve.rise:
                self._open[key] = curve.rise
                return (self._alarm(HEADROOM, facts, turn, "range", curve, layer=module),)
        return ()

    # The loss scale

    def _scale(self, facts: StepFacts, turn: Turn) -> tuple[Alarm, ...]:
        fell = int(facts.facts.get("scale_fell", 0))
        if not fell:
            if "scaler-skip" not in facts.events:
                self._falling, self._scaler_has_stepped = False, True
            return ()
        if self._falling or fell < (FALLS if self._scaler_has_stepped else FIRST_FALLS):
            return ()
        self._falling = True
        scale = facts.scale if facts.scale else 2.0 ** (USUAL_SCALE - fell)
        left = max(1, math.ceil(math.log2(max(scale, 2.0))))
        alarm = Alarm(
            SCALE,
            self._next_episode(),
            facts.step,
            "scale",
            facts.step - fell + 1,
            scale * 2.0**fell,
            scale,
            0.5,
            left,
            rate=_two_digits(max(facts.lr) / 2) if facts.lr and max(facts.lr) > 0 else None,
            clip=_usual_norm(turn),
        )
        return (alarm,)

    # The alarm

    def _alarm(
        self,
        kind: str,
        facts: StepFacts,
        turn: Turn,
        of: str,
        curve: Curve,
        steps_left: int | None = None,
        layer: str | None = None,
        first: float | None = None,
    ) -> Alarm:
        slope = max(curve.slope(), 0.0)
        return Alarm(
            kind,
            self._next_episode(),
            facts.step,
            of,
            curve.since if first is None else facts.step,
            _power(curve.base if first is None else first),
            _power(curve.last),
            _power(slope),
            steps_left,
            layer,
            rate=_calmer_rate(facts, slope if of != "loss" else slope / 2),
            clip=_usual_norm(turn),
        )

    def _next_episode(self) -> int:
        self.episodes += 1
        return self.episodes


def _alike(rate: float, other: float) -> bool:
    if not (rate > 0 and other > 0):
        return True
    return other / OTHER_OPTIMIZER <= rate <= other * OTHER_OPTIMIZER


def _steps_left(limit: float, value: float, slope: float) -> float:
    return max(0.0, limit - value) / slope if slope > 0 else math.inf


def _calmer_rate(facts: StepFacts, slope: float) -> float | None:
    """On a parabola a step multiplies the error by 1 - rate * curvature. From the factor that was seen
    follows the curvature, and from that the rate at which the error no longer grows; half of that is on the
    safe side."""
    rate = max(facts.lr, default=0.0)
    if not rate > 0 or not math.isfinite(rate):
        return None
    return _two_digits(rate / min(1 + _power(slope), 100.0))


def _usual_norm(turn: Turn) -> float | None:
    """The middle norm of the run before this rise; without enough steps, the norm where it began."""
    norm = turn.norm
    if not norm.count:
        return None
    return _two_digits(_power(norm.usual if norm.usual is not None else norm.base))


def _power(orders: float) -> float:
    return math.pow(10.0, max(-300.0, min(orders, 300.0)))


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
