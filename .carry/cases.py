import os, sys, json, shutil, time, importlib.util
sys.path.insert(0,'tests/cases')
import torch, nanwatch.adapters.plain, nanwatch.cli.main
import truth as T
from pathlib import Path
extra=[a for a in sys.argv[1:] if a.startswith('--')]
names=[a for a in sys.argv[1:] if not a.startswith('--')]
progs=sorted(T.PROGRAMS.glob('*.py'))
if names: progs=[p for p in progs if any(n in p.stem for n in names)]
def one(p, out):
    d=out/p.stem; shutil.rmtree(d,ignore_errors=True); d.mkdir(parents=True)
    pid=os.fork()
    if pid==0:
        fd=os.open(d/'stdout',os.O_CREAT|os.O_WRONLY); os.dup2(fd,1); fd2=os.open(d/'stderr',os.O_CREAT|os.O_WRONLY); os.dup2(fd2,2)
        import faulthandler; faulthandler.dump_traceback_later(60, exit=True)
        try: nanwatch.cli.main.main(['run','--dir',str(d/'run'),*[x for e in extra for x in e.split('=')],str(p)])
        except SystemExit as e: rc=e.code or 0
        except BaseException as e:
            import traceback; traceback.print_exc(); rc=99
        sys.stdout.flush(); sys.stderr.flush(); os._exit(rc)
    return pid,p,d
def check(t,d,rc):
    bad=[]
    if rc!=t.exit: bad.append(f'exit {rc}!={t.exit}')
    f=d/'run/incidents/0001/incident.json'
    if t.healthy:
        if f.exists():
            i=json.load(open(f)); bad.append(f"FALSE ALARM {i['phase']} {i['birth']['op']} {i['birth']['line']}")
    elif not f.exists(): bad.append('no incident')
    else:
        i=json.load(open(f)); b=i['birth']
        for k,v,w in (('phase',i['phase'],t.phase),('op',b['op'],t.op),('line',b['line'],(t.line,)),('module',b['module'],t.module),('step',i['step'],t.step),('kind',i['kind'],t.kind)):
            if v not in w: bad.append(f'{k}={v}!={w}')
        if t.samples is not None and tuple(b['samples'])!=t.samples: bad.append(f"samples={b['samples']}!={t.samples}")
        if b['file'] and os.path.basename(b['file'])!=t.path.name: bad.append('file='+b['file'])
    e=(d/'stderr').read_text()
    if 'error of its own' in e: bad.append([l for l in e.splitlines() if 'error of its own' in l][0][:300])
    return bad
out=Path('/tmp/out'+''.join(extra).replace('=','_').replace('-','')); t0=time.time(); running={}; results={}; todo=list(progs)
while todo or running:
    while todo and len(running)<12:
        p=todo.pop(0); pid,p,d=one(p,out); running[pid]=(p,d)
    pid,st=os.wait(); p,d=running.pop(pid); rc=os.waitstatus_to_exitcode(st)
    try: t=T.read(p)
    except Exception as e: print(p.name,'TRUTH?',e); continue
    results[p.stem]=check(t,d,rc)
ok=sum(not v for v in results.values())
for k,v in sorted(results.items()):
    if v: print(k,v)
print(ok,'of',len(results),'right', round(time.time()-t0,1),'s')
