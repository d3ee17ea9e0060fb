"""The dispatch key that nanwatch has for itself. A leaf.

torch leads a call from key to key, down to the kernel of a device. `Fake` lies below autograd, autocast,
transforms, modes and subclasses of tensors, and right above the devices; torch keeps it for others and uses
it nowhere.
"""

from __future__ import annotations

import torch

NAME = "Fake"
OWN_KEY: torch._C.DispatchKey = torch._C._dispatch_key_parse(NAME)
JUST_OWN = torch._C.DispatchKeySet(OWN_KEY)
