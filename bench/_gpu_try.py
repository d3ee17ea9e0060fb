"""Sweep: kernel settings on the device. Temporary."""
import itertools, os, sys, time, math
sys.path.insert(0, "src")
import torch
from nanwatch.tensors import cuda, cuda_norm, norm_and_verdict, statistics
dev = "cuda"
def ms(f, n=15):
    for _ in range(3): f()
    torch.cuda.synchronize()
    ts = []
    for _ in range(n):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); f(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    return sorted(ts)[n // 2]
def host_us(f, n=100):
    for _ in range(5): f()
    torch.cuda.synchronize(); s = time.perf_counter()
    for _ in range(n): f()
    e = time.perf_counter() - s; torch.cuda.synchronize()
    return e / n * 1e6
print(torch.__version__, torch.cuda.get_device_name())
x = torch.randn(1 << 30, device=dev, dtype=torch.bfloat16)
gb = x.numel() * 2 / 1e9
base = ms(lambda: x.sum()); print(f"sum bf16 {gb/base:.0f} GB/s (x1000)  {base:.3f} ms")
results = []
grid = [(tb, u, w, p, s) for tb in (4096, 8192) for u in (2, 4, 8) for w in (4, 8, 16) for p in (2, 4, 8) for s in (32,)
        if not (tb // (w * 32) > 32 or (w == 16 and tb == 4096) or w * p > 64 or w * p < 8)]
deadline = time.time() + 110
for tb, u, w, p, s in grid:
    if time.time() > deadline: print("sweep cut"); break
    cuda.TILE_BYTES, cuda.UNROLL, cuda.WARPS, cuda.PROGRAMS_PER_PROCESSOR, cuda.MOST_STEPS = tb, u, w, p, s
    try: t = ms(lambda: cuda._statistics_by_triton(x), 7)
    except Exception as e: print("fail", tb, u, w, p, repr(e)[:200]); continue
    results.append((t, tb, u, w, p, s))
results.sort()
for r in results[:10] + results[-3:]: print(f"{base/r[0]:.3f} of sum", r)
best = results[0]
_, cuda.TILE_BYTES, cuda.UNROLL, cuda.WARPS, cuda.PROGRAMS_PER_PROCESSOR, _ = best
for s in (8, 16, 64, 128):
    cuda.MOST_STEPS = s; t = ms(lambda: cuda._statistics_by_triton(x), 7); print("steps", s, f"{base/t:.3f}")
cuda.MOST_STEPS = 32
bad = x.clone(); bad[5] = math.nan; t = ms(lambda: cuda._statistics_by_triton(bad)); print("one nan", f"{base/t:.3f}"); 
bad.fill_(-math.inf); t = ms(lambda: cuda._statistics_by_triton(bad), 5); print("all -inf", f"{base/t:.3f}"); del bad
top = results[:6]
for dtype in (torch.float32, torch.float16):
    y = torch.randn(1 << 29, device=dev).to(dtype); b2 = ms(lambda: y.sum())
    for r in top:
        _, cuda.TILE_BYTES, cuda.UNROLL, cuda.WARPS, cuda.PROGRAMS_PER_PROCESSOR, _ = r
        print(dtype, r[1:], f"{b2/ms(lambda: cuda._statistics_by_triton(y), 7):.3f} of sum")
    del y
_, cuda.TILE_BYTES, cuda.UNROLL, cuda.WARPS, cuda.PROGRAMS_PER_PROCESSOR, _ = best
small = torch.randn(4, 1024, 768, device=dev, dtype=torch.bfloat16)
print("small: stat gpu ms", ms(lambda: statistics(small)), "host us", host_us(lambda: statistics(small)), "sum host us", host_us(lambda: small.sum()))
del x
def gpt(L, d, V=50304, T=1024):
    s = [(V, d), (T, d)]
    for _ in range(L): s += [(d,), (d,), (3*d, d), (3*d,), (d, d), (d,), (d,), (d,), (4*d, d), (4*d,), (d, 4*d), (d,)]
    return s + [(d,), (d,)]
for name, L, d in (("124M", 12, 768), ("355M", 24, 1024)):
    for dtype in (torch.float32, torch.bfloat16):
        gs = [torch.randn(s, device=dev, dtype=dtype) for s in gpt(L, d)]
        bytes_ = sum(g.numel() * g.element_size() for g in gs)
        def fe(): return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gs, 2)))
        def gtn(): return torch.nn.utils.get_total_norm(gs)
        ref = torch.cat([g.reshape(-1).float() for g in gs]).double().norm()
        print(name, dtype, len(gs), f"{bytes_/1e6:.0f} MB; foreach {ms(fe):.3f} ms host {host_us(fe):.0f} us;", f"get_total_norm host {host_us(gtn):.0f} us")
        for chunk in (1 << 15, 1 << 16, 1 << 17):
            for u in (2, 4, 8):
                for w in (4, 8):
                    cuda_norm.CHUNK, cuda_norm.UNROLL, cuda_norm.WARPS = chunk, u, w; cuda_norm._tables.clear()
                    t = ms(lambda: norm_and_verdict(gs))
                    if w == 8 and u == 4 or t < bytes_ / 3.6e9: print(f"   chunk {chunk} u {u} w {w}: {t:.3f} ms, {bytes_/t/1e6:.0f} GB/s")
        print("   host us", round(host_us(lambda: norm_and_verdict(gs))), "rel err", abs(norm_and_verdict(gs)[0].item() / ref.item() - 1))
        cuda_norm.TABLES_KEPT = 0
        print("   host us, no table kept", round(host_us(lambda: norm_and_verdict(gs)))); cuda_norm.TABLES_KEPT = 16
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g): out = fe()
        print("   graph foreach ms", ms(g.replay))
