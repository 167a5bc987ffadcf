"""The names of a cell, from its text."""

from __future__ import annotations

import sys

import pytest

from jupyter_gpucluster.capture import analyse


def reads(source: str) -> set[str]:
    """Names read from outside, less builtins."""
    names = set(analyse(source).reads)
    return {
        name for name in names if not hasattr(__builtins__, name) and name not in dir(__import__("builtins"))
    }


@pytest.mark.parametrize(
    ("source", "read", "assigned"),
    [
        ("y = x", "x", "y"),
        ("x += 1", "x", "x"),
        ("x[i] += v", "x i v", ""),
        ("x: int = y", "y", "x"),
        ("x: T", "T", ""),
        ("from __future__ import annotations\nx: T = 1", "", "x"),
        ("a = b = c", "c", "a b"),
        ("(p, *q), r.s[t] = u", "u r t", "p q"),
        ("x = 1\ny = x", "", "x y"),
        ("y = x\nx = 1", "x", "y x"),
        ("[i * k for i in data if i > m]", "k data m", ""),
        ("[x for x in x]", "x", ""),
        ("{a: b for a, b in z.items()}", "z", ""),
        ("[j for i in rows for j in i]", "rows", ""),
        ("g = (lambda v: v + w for v in vs)", "w vs", "g"),
        ("[y := f(x) for x in xs]\ny", "f xs y", "y"),
        ("if (n := len(a)) > 3: print(n)", "a", "n"),
        ("a and (b := c)\nb", "a b c", "b"),
        ("lambda a, *b, c=d, **e: a + b + c + e + f", "d f", ""),
        ("f'{a!r:>{w}} {b}'", "a b w", ""),
        ("for i in r:\n    t = i\nelse:\n    u = 1\nu", "r", "i t u"),
        ("for x.a in y: pass", "x y", ""),
        ("while c:\n    v = 1\nv", "c v", "v"),
        ("while (line := f()):\n    pass\nline", "f", "line"),
        ("for i in r:\n    if i: break\nelse:\n    d = 1\nd", "r d", "i d"),
        ("with o as f, g(f) as h: z = f\nz", "o g", "f h z"),
        ("from contextlib import suppress\nwith suppress(E): z = f()\nz", "E f z", "suppress z"),
        ("try:\n    import a.b\nexcept ImportError as e:\n    a = None\na.c", "", "a"),
        ("try:\n    v = f()\nexcept E:\n    pass\nv", "f E v", "v"),
        ("try:\n    v = f()\nexcept E:\n    raise\nv", "f E", "v"),
        ("try:\n    v = 1\nfinally:\n    w = v\nw", "v", "v w"),
        ("if c:\n    x = 1\nprint(x)", "c x", "x"),
        ("if c:\n    x = 1\nelse:\n    x = 2\nprint(x)", "c", "x"),
        ("if c:\n    raise E\nelse:\n    x = 2\nprint(x)", "c E", "x"),
        ("x = 1\ndel x\nx", "x", ""),
        ("del x", "x", ""),
        ("del x[0], y.a", "x y", ""),
        ("import os.path, sys as s\nfrom a.b import c as d, e", "", "os s d e"),
        ("from .m import *\nq", "q", ""),
        ("match q:\n    case {'a': A, **rest}: r = A\n    case [1, *more]: r = more\n    case _: r = 0\nr", "q", "A rest more r"),
        ("match q:\n    case P(x=B) | [B]: r = B\n    case {'k': K.v as w}: r = w\nr", "q P K r", "B w r"),
        ("match q:\n    case K.v if g: r = 1\nr", "q K g r", "r"),
        ("@deco(d)\ndef f(a: T, b=c, *, k=e) -> R:\n    return a + b + k + X", "deco d T c e R X", "f"),
        ("def f():\n    y = x\n    return y", "x", "f"),
        ("def f(n):\n    return f(n - 1)", "", "f"),
        ("def f(): return g()\ndef g(): return X\nf()", "X", "f g"),
        ("def f(): return late\nf()\nlate = 1", "late", "f late"),
        ("def f(): return late\nlate = 1\nf()", "", "f late"),
        ("def f():\n    global n\n    n = 1\nf()", "", "f n"),
        ("def f():\n    global n\n    n += 1", "n", "f n"),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x += 1\n        return x + y\n    return g", "y", "f"),
        ("def f():\n    try: pass\n    except E as e: raise e", "E", "f"),
        ("def f():\n    import os\n    return [os for _ in z]", "z", "f"),
        ("async def f():\n    async with a as b: return [x async for x in b]\nawait f()", "a", "f"),
        ("await g(h)", "g h", ""),
        ("class C(B, metaclass=M):\n    a = 1\n    b = a + q\n    def m(self): return a + w\n    def n(self): return __class__",
         "B M q a w", "C"),
        ("class C:\n    def make(self): return C()", "", "C"),
        ("class C:\n    x = [i for i in y]\n    z = [x for _ in x]", "x y", "C"),
        ("class C:\n    a = 1\n    f = lambda self: a\n    class D:\n        b = a", "a", "C"),
        ("class C:\n    a = 1\n    x = [a for _ in a]", "a", "C"),
        ("@dec\nclass C:\n    f: int = field()", "dec field", "C"),
        ("x = 1\nclass C:\n    x = x", "", "x C"),
        ("print(a if b else c)", "a b c", ""),
        ("global x\nx = 1", "", "x"),
        ("assert a, b", "a b", ""),
        ("raise E from f", "E f", ""),
        ("x = yield_ = 3\nx", "", "x yield_"),
        ("a.b.c(d=e, **f)", "a e f", ""),
        ("a[b:c, d]", "a b c d", ""),
    ],
)  # fmt: skip
def test_names_read_and_assigned(source: str, read: str, assigned: str) -> None:
    assert reads(source) - {"print"} == set(read.split())
    assert set(analyse(source).assigns) == set(assigned.split())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_type_parameters_are_names_of_their_own() -> None:
    source = (
        "def f[T: B](x: T) -> T: return X\nclass C[U](D):\n    def m(self): return Y\ntype A[V] = list[V] | Z"
    )
    assert reads(source) == {"B", "X", "D", "Y", "Z"}
    assert set(analyse(source).assigns) == {"f", "C", "A"}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="syntax of Python 3.11")
def test_groups_of_exceptions_are_followed_like_others() -> None:
    source = "try:\n    v = f()\nexcept* E as e:\n    w = e\nv, w"
    assert reads(source) == {"f", "E", "v", "w"}


def test_name_that_the_cell_may_have_assigned_is_read_perhaps() -> None:
    names = analyse("for epoch in range(3):\n    loss = step()\nprint(loss, net)")
    assert names.perhaps == {"loss"}
    assert set(names.reads) == {"range", "step", "print", "loss", "net"}


def test_name_read_before_the_loop_that_assigns_it_is_read_surely() -> None:
    assert "total" not in analyse("for x in xs:\n    total = total + x\ntotal").perhaps


def test_names_come_in_the_order_of_their_first_use() -> None:
    names = analyse("c = a(b)\nd = e")
    assert names.reads == ("a", "b", "e")
    assert names.assigns == ("c", "d")


def test_changes_that_the_code_shows_are_told() -> None:
    names = analyse(
        "x.a[0].b = 1\ny[0] += 2\ndel z.a\nnew = {}\nnew['k'] = 1\ndef f(): cfg['k'] = 2\nf(); q.append(1)"
    )
    assert set(names.mutates) == {"x", "y", "z", "cfg"}


def test_attributes_and_subscripts_are_told() -> None:
    names = analyse("np.linalg.norm(Out[3] + Out[-1]); a.b = 1")
    assert names.attributes["np"] == {("linalg", "norm")}
    assert 3 in names.subscripts["Out"]


# ---- IPython


@pytest.mark.parametrize(
    ("source", "read", "assigned"),
    [
        ("%time y = f(x)", "f x", "y"),
        ("y = %time f(x)", "f x", "y"),
        ("%timeit -n 10 -r3 y = f(x)", "f x", ""),
        ("%%time\ny = f(x)\nz = y", "f x", "y z"),
        ("%%timeit s = x\nf(s)", "f x", ""),
        ("%%capture --no-stderr out\ny = x", "x", "out y"),
        ("%%capture\n%time y = x", "x", "y"),
        ("%prun -s cumulative y = f(x)", "f x", "y"),
        ("lines = !ls\nlines", "", "lines"),
        ("%matplotlib inline\ny = x", "x", "y"),
        ("%%bash\necho $x {y}", "", ""),
        ("if c:\n    %time y = x", "c x", "y"),
        ("x?", "", ""),
    ],
)
def test_magics_are_read_as_what_they_run(source: str, read: str, assigned: str) -> None:
    names = analyse(source)
    assert set(names.reads) - {"get_ipython"} == set(read.split())
    assert set(names.assigns) == set(assigned.split())


def test_users_own_transformation_is_used() -> None:
    names = analyse("y <- x", transform=lambda text: text.replace("<-", "="))
    assert (names.reads, names.assigns) == (("x",), ("y",))


# ---- hidden names


@pytest.mark.parametrize(
    ("source", "hidden"),
    [
        ("eval('x + y')", "x, y: used only inside eval(…) in line 1, so not sent; add --in x,y"),
        ("a = 1\ndf.query('age > @limit and @b.c')", "limit, b: used only inside .query(…) in line 2"),
        ("df.eval(f'a = {z} + @k')", "k: used only inside .eval(…)"),
        ("pd.eval('u * v')", "u, v: used only inside .eval(…)"),
        ("duckdb.sql('select * from frame')", "frame"),
        ("!cp {src} $dst", "src, dst: used only inside !cp in line 1"),
        ("%cd {folder}", "folder: used only inside %cd in line 1"),
        ("globals()['g']", "g: used only inside globals() in line 1"),
        ("locals().get('l')", "names inside locals() in line 1 were not searched"),
        (
            "globals()['g'] = 1",
            "g: assigned only inside globals() in line 1, so not brought back; add --out g",
        ),
        ("get_ipython().user_ns['u']", "u: used only inside get_ipython().user_ns"),
        ("get_ipython().ev('w')", "w: used only inside .ev(…)"),
        ("exec('q = p')", "p: used only inside exec(…)"),
        ("exec('q = p')", "q: assigned only inside exec(…) in line 1, so not brought back; add --out q"),
        (
            "exec(code)",
            "names inside exec(…) in line 1 were not searched; add those it needs with --in, and those it assigns",
        ),
        ("%run train.py", "names inside %run in line 1 were not searched"),
        ("%%unknown\nx", "names inside %%unknown in line 1 were not searched"),
    ],
)
def test_names_hidden_in_strings_are_warned_about(source: str, hidden: str) -> None:
    assert any(hidden in warning for warning in analyse(source).warnings), analyse(source).warnings


@pytest.mark.parametrize(
    "source", ["df.query('a > 1')", "session.query(User)", "net.eval()", "re.eval(x)", "!ls -l", "%%bash\nls"]
)
def test_what_hides_nothing_is_not_warned_about(source: str) -> None:
    assert analyse(source).warnings == ()


# ---- syntax errors


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        ("x = 1\ny = (2", 2, "y = (2"),
        ("\n\n!ls \\\n  -l\nx = = 2", 5, "x = = 2"),
        ("return 3", 1, "return 3"),
        ("x = 1\nbreak", 2, "break"),
        ("%time x = 1\nfor a in b:\nc", 3, "c"),
        ("a = 1\n  b = 2", 2, "  b = 2"),
        ("f(**a, *b)", 1, "f(**a, *b)"),
        ("x = '\0'", 1, "x = '\0'"),
    ],
)
def test_syntax_error_tells_the_line_as_it_was_typed(source: str, line: int, text: str) -> None:
    for first_line in (1, 2):
        with pytest.raises(SyntaxError) as raised:
            analyse(source, first_line=first_line)
        assert (raised.value.lineno, raised.value.text) == (line + first_line - 1, text)


def test_syntax_error_shifts_lines_that_its_message_names() -> None:
    with pytest.raises(SyntaxError, match="on line 2"):
        analyse("for a in b:\nc", first_line=2)


def test_warnings_of_the_compiler_are_left_to_the_job(recwarn: pytest.WarningsRecorder) -> None:
    analyse("x = '\\d'\nx is 3")
    assert not recwarn.list


def test_module_read_as_a_cell_needs_nothing_from_outside() -> None:
    import argparse
    import dataclasses
    import inspect

    for module in (argparse, dataclasses):
        source = inspect.getsource(module)
        names = analyse(source, transform=lambda text: text)
        unknown = set(names.reads) - names.perhaps - set(dir(__import__("builtins")))
        assert unknown <= {"__name__", "__file__", "__doc__", "__spec__"}, (module, unknown)
        assert set(names.assigns) >= {
            name for name in getattr(module, "__all__", []) if name in source.split()
        }
