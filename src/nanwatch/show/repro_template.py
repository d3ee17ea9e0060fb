"""The text around the call in repro.py. `@NAME@` is filled in by `repro_source`."""

TEMPLATE = '''@HEADER@
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

KIND = @KIND@
OPERANDS = @TENSORS@
RNG = @RNG@
HELD_BY = @MUTATED@


def call():
    return @CALL@


def stored(name):
    if not FILES:
        FILES.update(load_file(Path(__file__).with_name("tensors.safetensors")))
    return FILES[name]


def operand(name):
    """The tensor as the op had it: dtype, strides and, where it exists here, device."""
    if name not in LOADED:
        LOADED[name] = rebuild(name, OPERANDS[name])
    return LOADED[name]


def rebuild(name, spec):
    dtype, shape = getattr(torch, spec["dtype"]), spec["shape"]
    where = device(spec["device"])
    if spec["stored"] == "sparse":
        return sparse(spec, [operand(part) for part in spec["parts"]]).to(where)
    strides = spec.get("stride") or [1] * len(shape)
    expanded = [n > 1 and s == 0 for n, s in zip(shape, strides)]
    small = [1 if e else n for n, e in zip(shape, expanded)]
    data = stored(name).clone()  # a mapped file is aligned too loosely for complex numbers
    if spec["stored"] != "plain":
        data = data.view(dtype)
    data = data.reshape(small).to(where)
    return laid_out(data, shape, strides) if "stride" in spec else data


def laid_out(data, shape, strides):
    if 0 in strides:
        return data.expand(shape)
    try:
        return torch.empty_strided(shape, strides, dtype=data.dtype, device=data.device).copy_(data)
    except RuntimeError:  # overlapping windows: the values are right, the layout is not
        return data


def sparse(spec, parts):
    if spec["layout"] == "sparse_coo":
        return torch.sparse_coo_tensor(*parts, spec["shape"], check_invariants=False)
    layout = getattr(torch, spec["layout"])
    return torch.sparse_compressed_tensor(*parts, spec["shape"], layout=layout, check_invariants=False)


def device(name):
    if name not in DEVICES:
        DEVICES[name] = name
        try:
            torch.empty(1, device=name)
        except (RuntimeError, AssertionError, NotImplementedError):
            print(name, @SAY_DEVICE@)
            DEVICES[name] = "cpu"
    return torch.device(DEVICES[name])


def unrecorded(sentence):
    print(sentence)
    return None


def restore_rng():
    """Whether the generator that the op drew from could be put back."""
    done = False
    for name, state in RNG.items():
        where = device(name)
        if name == "cpu":
            torch.set_rng_state(stored(state))
        elif where.type != "cpu":
            getattr(torch, where.type).set_rng_state(stored(state), where)
        done = done or where.type == name.split(":")[0]
    return done


def numbers(label, name, tensor):
    if tensor.layout != torch.strided:
        tensor = tensor.coalesce().values() if tensor.is_sparse else tensor.values()
    text = f"{label} {name}: {list(tensor.shape)} {str(tensor.dtype)[6:]}"
    if not (tensor.is_floating_point() or tensor.is_complex()):
        print(text)
        return set()
    wide = tensor.detach().cpu()
    wide = torch.view_as_real(wide.resolve_conj()) if wide.is_complex() else wide
    wide = wide.double()
    finite = wide[wide.isfinite()]
    counts = {"nan": wide.isnan(), "+inf": wide.isposinf(), "-inf": wide.isneginf()}
    counts = {key: int(mask.sum()) for key, mask in counts.items()}
    text += "".join(f" {key}={count}" for key, count in counts.items())
    if finite.numel():
        text += f" min={finite.min():.4g} max={finite.max():.4g} mean={finite.mean():.4g}"
    kinds = {key[-3:] for key, count in counts.items() if count}
    print(text + ("   <- " + @SAY_NONFINITE@ if kinds else ""))
    return kinds


def written(op, result):
    """What the op gave back, and the operands it wrote to."""
    found = list(tensors_in("result", result))
    seen = {id(tensor) for _, tensor in found}
    for position, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for name in HELD_BY.get(position, HELD_BY.get(argument.name, [])):
                if id(operand(name)) not in seen:
                    found.append((name, operand(name)))
    return found


def tensors_in(name, value):
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from tensors_in(f"{name}.{index}", item)


def attempt(op):
    LOADED.clear()
    for name in OPERANDS:
        operand(name)
    return restore_rng(), written(op, call())


def outcome(op):
    """A random op whose generator was not recorded is drawn again, up to 1000 times."""
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    for _ in range(1000 if is_random else 1):
        same_draw, outputs = attempt(op)
        if same_draw or any(is_bad(tensor) for _, tensor in outputs):
            break
    return outputs


def is_bad(tensor):
    values = tensor.to_dense() if tensor.layout != torch.strided else tensor
    values = torch.view_as_real(values.resolve_conj()) if values.is_complex() else values
    return values.is_floating_point() and not bool(values.double().isfinite().all())


def main():
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        op = @OP@
    except AttributeError:
        print(@SAY_NO_OP@)
        return 1
    op = op if hasattr(op, "_schema") else op.default
    print(op)
    inner = {part for spec in OPERANDS.values() for part in spec.get("parts", [])}
    try:
        for name in OPERANDS:
            if name not in inner:
                numbers(@SAY_INPUT@, name, operand(name))
        outputs = outcome(op)
    except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
        print(@SAY_FAILED@, error)
        return 1
    kinds = set()
    for name, tensor in outputs:
        kinds |= numbers(@SAY_OUTPUT@, name, tensor)
    print(@SAY_SEEN@ if KIND in kinds else @SAY_NOT_SEEN@)
    return 0 if KIND in kinds else 1


FILES, LOADED, DEVICES = {}, {}, {}

if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
'''
