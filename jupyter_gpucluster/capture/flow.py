"""Which names a cell reads from outside and which it assigns, followed along the ways that it can take.

A name is read from outside when it is used where the cell has not surely assigned it before. The ways are followed in
the tree of the cell's own statements (branches, loops, handlers); what functions, lambdas and comprehensions use of
their surroundings is read from their code, where Python itself has settled every scope. In doubt a name counts as read:
one too many costs some bytes, one too few the job.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpucluster.worker.namespace import GlobalNames, global_names

_COMPILE_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Flow(NamedTuple):
    """Names in the order of their first use.

    `reads` holds `perhaps`: names that the cell may have assigned itself before it uses them. `assigned`: names that the
    cell may have bound when it ends.
    """

    reads: tuple[str, ...]
    perhaps: frozenset[str]
    assigned: tuple[str, ...]
    stars: tuple[str, ...]  # modules of `from m import *`


def follow(tree: ast.Module) -> Flow:
    """What the statements of a cell read and assign."""
    walker = _Walker(_has_future_annotations(tree))
    walker.run(tree.body)
    return walker.finish()


class _State:
    """Where a way has come to: names surely bound, names possibly bound, and whether nothing follows any more.

    `touched`: all that was bound on the way, for ways that may be left in the middle.
    """

    def __init__(self, sure: Iterable[str] = (), possible: Iterable[str] = (), dead: bool = False) -> None:
        self.sure = set(sure)
        self.possible = set(possible)
        self.dead = dead
        self.touched: set[str] = set()

    def copy(self) -> _State:
        return _State(self.sure, self.possible, self.dead)

    def bind(self, name: str) -> None:
        self.sure.add(name)
        self.possible.add(name)

    def unbind(self, name: str) -> None:
        self.sure.discard(name)
        if not self.dead:
            self.possible.discard(name)


def _join(states: Sequence[_State]) -> _State:
    """After ways have met again."""
    alive = [state for state in states if not state.dead]
    if not alive:
        return _State(states[0].sure, set().union(*(state.possible for state in states)), dead=True)
    return _State(
        set.intersection(*(state.sure for state in alive)),
        set().union(*(state.possible for state in states)),
    )


class _Walker(ast.NodeVisitor):
    def __init__(self, future_annotations: bool) -> None:
        self._future_annotations = future_annotations
        self._state = _State()
        self._reads: dict[str, bool] = {}  # whether surely from outside
        self._assigned: dict[str, None] = {}
        self._stars: list[str] = []
        #: Functions and classes of the cell by name: what they use counts when they are first used.
        self._waiting: dict[str, list[GlobalNames]] = {}
        #: Names of the class bodies that are being executed, innermost last.
        self._class_bodies: list[set[str]] = []
        self._touched: set[str] = set()

    def run(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def finish(self) -> Flow:
        for name in list(self._waiting):
            self._use_waiting(name)
        assigned = tuple(name for name in self._assigned if name in self._state.possible)
        perhaps = frozenset(name for name, surely in self._reads.items() if not surely)
        return Flow(tuple(self._reads), perhaps, assigned, tuple(self._stars))

    # ---- names

    def _read(self, name: str) -> None:
        """Code of the cell itself, or of the class body that is being executed, which has its own names first."""
        if not (self._class_bodies and name in self._class_bodies[-1]):
            self._read_global(name)

    def _read_global(self, name: str) -> None:
        """Code with a scope of its own, which does not see the names of a class around it."""
        self._use_waiting(name)
        self._note_read(name)

    def _note_read(self, name: str) -> None:
        if name not in self._state.sure:
            surely = name not in self._state.possible
            self._reads[name] = surely or self._reads.get(name, False)

    def _use_waiting(self, name: str) -> None:
        for names in self._waiting.pop(name, ()):
            self._use(names)

    def _use(self, names: GlobalNames) -> None:
        """Code that runs now, or may from now on."""
        for name in names.reads:
            self._read_global(name)
        for name in names.writes:
            self._may_bind(name)

    def _may_bind(self, name: str) -> None:
        self._assigned.setdefault(name)
        self._touched.add(name)
        self._state.possible.add(name)

    def _bind(self, name: str) -> None:
        if self._class_bodies:
            self._class_bodies[-1].add(name)
            return
        self._assigned.setdefault(name)
        self._touched.add(name)
        self._state.bind(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
            return
        self._read(node.id)
        if isinstance(node.ctx, ast.Del):
            if self._class_bodies:
                self._class_bodies[-1].discard(node.id)
            else:
                self._state.unbind(node.id)

    # ---- ways

    def _way(self, start: _State, statements: Iterable[ast.stmt]) -> _State:
        """The state after `statements`, begun in `start`."""
        kept, self._state = self._state, start.copy()
        touched_before, self._touched = self._touched, set()
        self.run(statements)
        ended, self._state = self._state, kept
        ended.touched, self._touched = self._touched, touched_before | self._touched
        return ended

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        before = self._state
        self._state = _join([self._way(before, node.body), self._way(before, node.orelse)])

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._either(node.body, node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        first, *others = node.values
        self.visit(first)
        for value in others:
            self._either(value)

    def _either(self, *values: ast.expr) -> None:
        """One of these, or none when there is only one."""
        before = self._state
        states = [before] if len(values) == 1 else []
        for value in values:
            states.append(self._way(before, [ast.Expr(value)]))
        self._state = _join(states)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._loop([ast.Assign([node.target], ast.Constant(None)), *node.body], node.orelse)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._loop(node.body, node.orelse)

    def _loop(self, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        """The body may run never, or be left anywhere."""
        before = self._state
        after_body = self._way(before, body)
        ended = _State(before.sure - _deleted(body), before.possible | after_body.touched)
        after_else = self._way(ended, orelse)
        self._state = _join([ended, after_else]) if _breaks(body) else after_else

    def visit_Try(self, node: ast.Try) -> None:
        before = self._state
        after_body = self._way(before, node.body)
        fallen = _State(before.sure - _deleted(node.body), before.possible | after_body.touched)
        ways = [self._way(after_body, node.orelse)]
        for handler in node.handlers:
            ways.append(self._way(fallen, [handler]))  # type: ignore[list-item]
        self._state = _join(ways)
        if node.finalbody:
            self._finally(node.finalbody, [fallen, *ways])

    def _finally(self, body: list[ast.stmt], ways: list[_State]) -> None:
        """It runs wherever the rest was left, and goes on only from where the rest went on."""
        anywhere = _State(
            set.intersection(*(way.sure for way in ways)), set().union(*(way.possible for way in ways))
        )
        after = self._way(anywhere, body)
        gone = _deleted(body)
        self._state.sure = (self._state.sure - gone) | after.sure
        self._state.possible = (self._state.possible - gone) | after.possible
        self._state.dead |= after.dead

    visit_TryStar = visit_Try

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name:
            self._bind(node.name)
        self.run(node.body)
        if node.name:
            self._state.unbind(node.name)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self.visit(item.optional_vars)
        before = self._state
        after = self._way(before, node.body)
        if not any(_swallows_errors(item.context_expr) for item in node.items):
            self._state = after
            return
        left = _State(before.sure - _deleted(node.body), before.possible | after.touched)
        self._state = _join([left, after])

    visit_AsyncWith = visit_With

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        before = self._state
        ways = []
        for case in node.cases:
            guard = [] if case.guard is None else [ast.Expr(case.guard)]
            ways.append(self._way(before, [ast.Expr(case.pattern), *guard, *case.body]))  # type: ignore[arg-type]
        if not any(_takes_all(case) for case in node.cases):
            ways.append(before)
        self._state = _join(ways)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.generic_visit(node)
        if node.name:
            self._bind(node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        if node.name:
            self._bind(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        if node.rest:
            self._bind(node.rest)

    def _stop(self, node: ast.AST) -> None:
        self.generic_visit(node)
        self._state.dead = True

    visit_Raise = visit_Return = visit_Break = visit_Continue = _stop

    # ---- statements that bind

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read(node.target.id)
        self.visit(node.value)
        self.visit(node.target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if not self._future_annotations:
            self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self._stars.append("." * node.level + (node.module or ""))
            elif node.module != "__future__":
                self._bind(alias.asname or alias.name)

    def visit_Global(self, node: ast.Global) -> None:
        """At the top of a cell it says nothing."""

    def visit_TypeAlias(self, node: ast.AST) -> None:
        self._use(_compiled([node]))  # type: ignore[list-item]
        self.visit(node.name)  # type: ignore[attr-defined]

    # ---- scopes of their own

    def _visit_def(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if getattr(node, "type_params", ()):
            self._visit_generic(node)
            return
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_arguments(node.args)
        if node.returns is not None and not self._future_annotations:
            self.visit(node.returns)
        self._define(node.name, [_compiled([_bare(node)])])

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_def

    def _visit_generic(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """`def f[T](…)`, `class C[T]`: the compiler knows where T is seen, so all of it counts at once."""
        self._use(_compiled([node]))
        self._bind(node.name)

    def _visit_arguments(self, arguments: ast.arguments) -> None:
        """Defaults and annotations are evaluated outside the function."""
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self.visit(default)
        if self._future_annotations:
            return
        for argument in ast.iter_child_nodes(arguments):
            if isinstance(argument, ast.arg) and argument.annotation is not None:
                self.visit(argument.annotation)

    def _define(self, name: str, uses: list[GlobalNames]) -> None:
        """A function or class comes to be; what it uses counts when it is first used. Methods wait for their class."""
        self._bind(name)
        if self._class_bodies:
            self._waiting.setdefault(_IN_CLASS, []).extend(uses)
        else:
            self._waiting[name] = uses

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body runs at once, in a namespace of its own; its methods run later and do not see that namespace."""
        if getattr(node, "type_params", ()):
            self._visit_generic(node)
            return
        for expression in (*node.decorator_list, *(keyword.value for keyword in node.keywords)):
            self.visit(expression)
        inherited = [names for base in node.bases for names in self._inherit(base)]
        outer = self._waiting.pop(_IN_CLASS, [])
        self._class_bodies.append(set())
        self.run(node.body)
        self._class_bodies.pop()
        methods = self._waiting.pop(_IN_CLASS, [])
        if outer:
            self._waiting[_IN_CLASS] = outer
        self._define(node.name, [*inherited, *methods])

    def _inherit(self, base: ast.expr) -> list[GlobalNames]:
        """What a base of this cell uses waits on for the class that is made of it: it need not be complete by now."""
        if isinstance(base, ast.Name) and base.id in self._waiting:
            self._note_read(base.id)
            return self._waiting[base.id]
        self.visit(base)
        return []

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_arguments(node.args)
        self._use(_compiled_expression(ast.Lambda(_bare_arguments(node.args), node.body), node))

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        """What is iterated first is evaluated outside; `:=` inside binds outside, if it runs at all."""
        first, *others = node.generators
        self.visit(first.iter)
        fields = {name: value for name, value in ast.iter_fields(node)}
        nothing = ast.copy_location(ast.Tuple([], ast.Load()), first.iter)
        bare = ast.comprehension(first.target, nothing, first.ifs, first.is_async)
        fields["generators"] = [bare, *others]
        self._use(_compiled_expression(type(node)(**fields), node))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension


#: Under this key wait the methods of the class that is being read.
_IN_CLASS = "<class>"


def _compiled(statements: list[ast.stmt]) -> GlobalNames:
    """What statements use of the namespace around them, as the compiler sees it."""
    module = ast.Module(statements, type_ignores=[])
    code = compile(module, "<part>", "exec", flags=_COMPILE_FLAGS, dont_inherit=True)
    return global_names(code)


def _compiled_expression(expression: ast.expr, place: ast.expr) -> GlobalNames:
    statement = ast.copy_location(ast.Expr(ast.copy_location(expression, place)), place)
    return _compiled([ast.fix_missing_locations(statement)])


def _bare(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
    """The function without what is evaluated outside it."""
    fields = {name: value for name, value in ast.iter_fields(node)}
    fields.update(args=_bare_arguments(node.args), decorator_list=[], returns=None)
    return ast.copy_location(type(node)(**fields), node)


def _bare_arguments(arguments: ast.arguments) -> ast.arguments:
    def bare(argument: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(argument.arg), argument)

    return ast.arguments(
        posonlyargs=[bare(argument) for argument in arguments.posonlyargs],
        args=[bare(argument) for argument in arguments.args],
        vararg=bare(arguments.vararg) if arguments.vararg else None,
        kwonlyargs=[bare(argument) for argument in arguments.kwonlyargs],
        kw_defaults=[None] * len(arguments.kwonlyargs),
        kwarg=bare(arguments.kwarg) if arguments.kwarg else None,
        defaults=[],
    )


def _own_nodes(statements: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """All nodes of statements but those of functions and classes in them."""
    todo = list(statements)
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, (*_Function, ast.ClassDef, ast.Lambda)):
            todo.extend(ast.iter_child_nodes(node))


def _deleted(statements: Iterable[ast.AST]) -> set[str]:
    """Names that statements may unbind."""
    names = set()
    for node in _own_nodes(statements):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            names.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def _breaks(statements: Iterable[ast.AST]) -> bool:
    return any(isinstance(node, ast.Break) for node in _own_nodes(statements))


def _takes_all(case: ast.match_case) -> bool:
    return case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _swallows_errors(expression: ast.expr) -> bool:
    """`with suppress(…)` and the like go on after an error in the middle of the body."""
    function = expression.func if isinstance(expression, ast.Call) else expression
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("suppress", "raises", "assertRaises")


def _has_future_annotations(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
