"""The docstrings of everything that docs/stability.md calls public."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import srfca.methods
from srfca.methods import METHODS, Method

ROOT = Path(__file__).resolve().parents[2]


class Public(NamedTuple):
    """A public function or class, or a public method of a public class."""

    name: str
    item: Any
    owner: type | None = None


def public_parts() -> list[str]:
    """Return the modules and names in the row "Python" of docs/stability.md."""
    text = (ROOT / "docs" / "stability.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| Python |"))
    return re.findall(r"`(srfca[\w.]*)`", row)


def public_items() -> dict[int, Public]:
    """Return public functions and classes, each once."""
    items: dict[int, Public] = {}
    for part in public_parts():
        for name, item in members(part):
            if inspect.isclass(item) or inspect.isfunction(item):
                items.setdefault(id(item), Public(name, item))
    for method in METHODS.items().values():
        if method.__module__.startswith("srfca."):
            items.setdefault(id(method), Public(f"srfca.methods.{method.__name__}", method))
    return items


def members(part: str) -> Iterator[tuple[str, Any]]:
    try:
        module = importlib.import_module(part)
    except ModuleNotFoundError:
        parent, _, name = part.rpartition(".")
        yield part, getattr(importlib.import_module(parent), name)
        return
    defined = [name for name, item in vars(module).items() if vars_module(item) == part]
    for name in getattr(module, "__all__", defined):
        yield f"{part}.{name}", getattr(module, name)


def vars_module(item: Any) -> str | None:
    return getattr(item, '__module__', None)


def methods_of(public: Public) -> Iterator[Public]:
    """Yield the public methods that a class defines, without those that its bases document."""
    for name, item in vars(public.item).items():
        function = item.__func__ if isinstance(item, classmethod | staticmethod) else item
        inherited = any(name in vars(base) for base in public.item.__mro__[1:])
        if inspect.isfunction(function) and not name.startswith("_") and not inherited:
            yield Public(f"{public.name}.{name}", function, public.item)


ITEMS = sorted(public_items().values())if False else list(public_items().values())
CLASSES = [public for public in ITEMS if inspect.isclass(public.item)]
FUNCTIONS = [public for public in ITEMS if inspect.isfunction(public.item)]
CLASS_METHODS = [method for public in CLASSES for method in methods_of(public)]

def section(doc, name):
    m = re.search(rf"^{name}:\n((?:[ ]+.*\n?|\n)*)", doc, re.M)
    return m.group(1) if m else ""
def entries(text):
    return set(x.strip("*") for line in re.findall(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: \([^)]*\))?:", text, re.M) for x in line.split(", "))

def own_doc(o): return inspect.cleandoc(o.__doc__ or "")
def raises(o):
    try: tree=ast.parse(textwrap.dedent(inspect.getsource(o)))
    except Exception: return False
    f=tree.body[0]
    for n in ast.walk(f):
        if isinstance(n, ast.Raise) and n.exc is not None:
            return True
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id.startswith("require"): return True
    return False

def check_function(p, example=True):
    f=p.item; d=own_doc(f); bad=[]
    s=inspect.signature(f)
    if not d: return ["no doc"]
    first=d.split()[0]
    if not re.fullmatch(r"[A-Z][a-z]+",first) or (first.endswith("s") and not first.endswith("ss")) or first in ("The","A","An","Whether","How","What"): bad.append(f"first word {first!r}")
    params=[n for n in s.parameters if n not in("self","cls")]
    miss=set(params)-entries(section(d,"Args"))
    if miss: bad.append(f"args {sorted(miss)}")
    extra=entries(section(d,"Args"))-set(params)
    if extra: bad.append(f"extra args {extra}")
    r=str(s.return_annotation)
    if r not in ("None","NoReturn"):
        brief = not example and not params and re.match("(Return|Yield|Make|Draw)", d)
        if brief: pass
        elif not section(d,"Returns") and not section(d,"Yields"): bad.append("returns")
        if re.search("Tensor|NDArray",r) and "[" not in (d if brief else section(d,"Returns")+section(d,"Yields")): bad.append("shape")
    if raises(f) and not section(d,"Raises"): bad.append("raises")
    if example and ">>>" not in d and "::\n" not in d: bad.append("example")
    return bad
def check_class(p):
    c=p.item; d=own_doc(c); bad=[]
    if not d or d.startswith(c.__name__+"("): return ["no doc"]
    have=set()
    for b in c.__mro__:
        bd=own_doc(b); have|=entries(section(bd,"Args"))|entries(section(bd,"Attributes"))
        i=b.__dict__.get("__init__")
        if i is not None and inspect.isfunction(i): have|=entries(section(own_doc(i),"Args"))
    try: params=[n for n,v in inspect.signature(c).parameters.items() if v.kind not in (v.VAR_POSITIONAL,v.VAR_KEYWORD)]
    except Exception: params=[]
    miss=set(params)-have
    if miss and not issubclass(c,Exception): bad.append(f"args {sorted(miss)}")
    if ">>>" not in d and "::\n" not in d: bad.append("example")
    return bad
if __name__=="__main__":
    import sys
    n=0
    groups={}; f=lambda i: inspect.getsourcefile(inspect.unwrap(i))
    for p in ITEMS:
        b=check_class(p) if inspect.isclass(p.item) else check_function(p)
        if b: groups.setdefault(f(p.item),[]).append((p.name,b)); n+=1
    for p in CLASS_METHODS:
        b=check_function(p,False)
        if b: groups.setdefault(f(p.item),[]).append((p.name,b)); n+=1
    for g in sorted(groups):
        print(g.replace(str(ROOT)+"/src/srfca/",""))
        for name,b in groups[g]: print("   ",name.replace("srfca.",""),"|","; ".join(b))
    print(n, len(ITEMS), len(CLASS_METHODS))
