"""From the birth to the reason: facts, experiments, causes, remedies.

case.py          all that is known about one bad step, worked out when asked for
birth.py         the birth op and its operands, where its output is bad
mechanism.py     what the op itself did: divided by zero, left the range, …
lineage.py       every op of the step, so that an operand can be followed to where it came from
step_lineage.py  how that is found: the step again, and before it the program's own calls
experiments/     one file per experiment: when it applies, what it changes, what its outcome means
causes/          one file per cause: what it means, what speaks for and against it, its remedies
remedies/        changes that were tried on the step
diagnose.py      asks every cause, ranks the answers, tries the remedies
"""
