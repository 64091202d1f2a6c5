"""Statements of the interpreter."""

from __future__ import annotations

import ast

from . import expressions  # noqa: F401  (registers the expression handlers)
from .attributes import get_attribute
from .machine import (
    STATEMENTS,
    BreakSignal,
    ContinueSignal,
    Frame,
    ReturnSignal,
    Run,
    affordable,
    bounded,
    evaluate,
    execute,
    iterate,
    truth,
    type_name,
)
from .natives import EXCEPTIONS
from .operators import PYTHON_ERRORS, binary, python_error, subscript
from .values import (
    Buffer,
    Class,
    ExceptionType,
    ExceptionValue,
    Function,
    Instance,
    NothingCaptured,
    SourceError,
    Stub,
    Tensor,
    Unfollowed,
    View,
    show,
)


def assign(run: Run, frame: Frame, target: ast.expr, value: object) -> None:
    """`target = value`, with unpacking."""
    if isinstance(target, ast.Name):
        if target.id in frame.globals:
            frame.module.values[target.id] = value
        else:
            frame.names[target.id] = value
    elif isinstance(target, ast.Attribute):
        set_attribute(evaluate(run, frame, target.value), target.attr, value)
    elif isinstance(target, ast.Subscript):
        _set_item(run, evaluate(run, frame, target.value), evaluate(run, frame, target.slice), value)
    elif isinstance(target, ast.Tuple | ast.List):
        _unpack(run, frame, target.elts, value)
    else:
        raise Unfollowed(f"assignment to {type(target).__name__}, at {run.where}")


def set_attribute(receiver: object, name: str, value: object) -> None:
    """`receiver.name = value`."""
    if isinstance(receiver, Instance) and name in receiver.fixed:
        return
    if isinstance(receiver, Instance | Stub | Tensor | Class):
        receiver.attrs[name] = value
    else:
        raise SourceError("AttributeError", f"'{type_name(receiver)}' object has no attribute '{name}'")


def _set_item(run: Run, receiver: object, index: object, value: object) -> None:
    if isinstance(receiver, Stub):
        receiver.attrs[f"[{show(index)}]"] = value
    elif isinstance(receiver, list | dict) and not isinstance(index, Stub):
        affordable(run, index)
        try:
            receiver[index] = value  # type: ignore[call-overload]
        except (TypeError, IndexError, KeyError, ValueError) as error:
            raise SourceError(type(error).__name__, str(error)) from None
        bounded(run, receiver)
    else:
        raise Unfollowed(f"assignment to an element of {show(receiver)}, at {run.where}")


def _unpack(run: Run, frame: Frame, targets: list[ast.expr], value: object) -> None:
    starred = [i for i, target in enumerate(targets) if isinstance(target, ast.Starred)]
    if isinstance(value, Stub):
        for i, target in enumerate(targets):
            if isinstance(target, ast.Starred):
                assign(run, frame, target.value, Stub(f"{value.path}[*]"))
            else:
                assign(run, frame, target, subscript(run, value, i))
        return
    if isinstance(value, Tensor | Buffer | View):
        # A tensor unpacks along its tokens: the model's forward returned no captured states beside it.
        raise NothingCaptured("ValueError", f"too many values to unpack (expected {len(targets)})")
    items = list(iterate(run, value))
    if starred:
        head, tail = starred[0], len(targets) - starred[0] - 1
        star = targets[head]
        if len(items) < head + tail:
            few = f"expected at least {head + tail}, got {len(items)}"
            raise SourceError("ValueError", f"not enough values to unpack ({few})")
        if isinstance(star, ast.Starred):
            middle = items[head : len(items) - tail]
            targets = [*targets[:head], star.value, *targets[head + 1 :]]
            items = [*items[:head], middle, *items[len(items) - tail :]]
    if len(items) != len(targets):
        few = "not enough values to unpack" if len(items) < len(targets) else "too many values to unpack"
        got = f", got {len(items)}" if len(items) < len(targets) else ""
        raise SourceError("ValueError", f"{few} (expected {len(targets)}{got})")
    for target, item in zip(targets, items, strict=True):
        assign(run, frame, target, item)


def _assign(run: Run, frame: Frame, node: ast.Assign) -> None:
    value = evaluate(run, frame, node.value)
    for target in node.targets:
        assign(run, frame, target, value)


def _annotated(run: Run, frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign(run, frame, node.target, evaluate(run, frame, node.value))


def _augmented(run: Run, frame: Frame, node: ast.AugAssign) -> None:
    before = evaluate(run, frame, node.target)
    added = evaluate(run, frame, node.value)
    if isinstance(before, list) and isinstance(node.op, ast.Add):
        before.extend(iterate(run, added))
        bounded(run, before)
        return
    assign(run, frame, node.target, binary(run, before, added, type(node.op)))


def _if(run: Run, frame: Frame, node: ast.If) -> None:
    execute(run, frame, node.body if truth(run, evaluate(run, frame, node.test)) else node.orelse)


def _for(run: Run, frame: Frame, node: ast.For) -> None:
    for item in iterate(run, evaluate(run, frame, node.iter)):
        assign(run, frame, node.target, item)
        if not _goes_on(run, frame, node.body):
            return
    execute(run, frame, node.orelse)


def _while(run: Run, frame: Frame, node: ast.While) -> None:
    while True:
        run.step()
        test = evaluate(run, frame, node.test)
        if isinstance(test, Stub):
            # How often an unknown condition holds cannot be told.
            raise Unfollowed(f"a while loop over {test.path}, at {run.where}")
        if not truth(run, test):
            break
        if not _goes_on(run, frame, node.body):
            return
    execute(run, frame, node.orelse)


def _goes_on(run: Run, frame: Frame, body: list[ast.stmt]) -> bool:
    """Run a loop's body once: does the loop go on after it?"""
    try:
        execute(run, frame, body)
    except ContinueSignal:
        return True
    except BreakSignal:
        return False
    return True


def _with(run: Run, frame: Frame, node: ast.With) -> None:
    for item in node.items:
        value = evaluate(run, frame, item.context_expr)
        if item.optional_vars is not None:
            entered = value if isinstance(value, Instance) else Stub(f"{show(value)}.__enter__()")
            assign(run, frame, item.optional_vars, entered)
    execute(run, frame, node.body)


def _return(run: Run, frame: Frame, node: ast.Return) -> None:
    raise ReturnSignal(None if node.value is None else evaluate(run, frame, node.value))


def _raise(run: Run, frame: Frame, node: ast.Raise) -> None:
    if node.exc is None:
        current = frame.names.get("<handled>")
        raise (
            current
            if isinstance(current, SourceError)
            else SourceError("RuntimeError", "No active exception")
        )
    value = evaluate(run, frame, node.exc)
    if isinstance(value, ExceptionValue):
        raise SourceError(value.kind, value.message)
    if isinstance(value, ExceptionType):
        raise SourceError(value.name, "")
    raise SourceError("Exception", show(value))


def _assert(run: Run, frame: Frame, node: ast.Assert) -> None:
    test = evaluate(run, frame, node.test)
    if isinstance(test, Stub):
        # An assertion on something unknown holds on a server that runs at all.
        return
    if not truth(run, test):
        message = "" if node.msg is None else show(evaluate(run, frame, node.msg))
        raise SourceError("AssertionError", message)


def _handles(run: Run, frame: Frame, handler: ast.ExceptHandler, error: SourceError) -> bool:
    if handler.type is None:
        return True
    kinds = evaluate(run, frame, handler.type)
    raised = EXCEPTIONS.get(error.kind, Exception)
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if isinstance(kind, ExceptionType) and issubclass(raised, EXCEPTIONS[kind.name]):
            return True
    return False


def _try(run: Run, frame: Frame, node: ast.Try) -> None:
    try:
        try:
            execute(run, frame, node.body)
        except SourceError as error:
            handler = next((h for h in node.handlers if _handles(run, frame, h, error)), None)
            if handler is None:
                raise
            if handler.name is not None:
                frame.names[handler.name] = ExceptionValue(error.kind, error.message)
            frame.names["<handled>"] = error
            execute(run, frame, handler.body)
        else:
            execute(run, frame, node.orelse)
    finally:
        execute(run, frame, node.finalbody)


def _import(run: Run, frame: Frame, node: ast.Import | ast.ImportFrom) -> None:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        frame.names[name] = run.modules.imported(run, node, name)


def _function(_run: Run, frame: Frame, node: ast.FunctionDef) -> None:
    frame.names[node.name] = Function(node.name, node, frame.module, frame, frame.owner)


def _delete(run: Run, frame: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            frame.names.pop(target.id, None)
        elif isinstance(target, ast.Attribute):
            receiver = evaluate(run, frame, target.value)
            if isinstance(receiver, Instance | Stub | Tensor):
                receiver.attrs.pop(target.attr, None)
        elif isinstance(target, ast.Subscript):
            _delete_item(run, frame, target)
        else:
            raise Unfollowed(f"del of {type(target).__name__}, at {run.where}")


def _delete_item(run: Run, frame: Frame, target: ast.Subscript) -> None:
    receiver, index = evaluate(run, frame, target.value), evaluate(run, frame, target.slice)
    parts = (index.start, index.stop, index.step) if isinstance(index, slice) else (index,)
    if not isinstance(receiver, list | dict) or any(isinstance(part, Stub) for part in parts):
        raise Unfollowed(f"del of an element of {show(receiver)}, at {run.where}")
    affordable(run, index)
    try:
        del receiver[index]  # type: ignore[arg-type]
    except PYTHON_ERRORS as error:
        raise python_error(error) from None


def _expression(run: Run, frame: Frame, node: ast.Expr) -> None:
    evaluate(run, frame, node.value)


def _break(_run: Run, _frame: Frame, _node: ast.Break) -> None:
    raise BreakSignal


def _continue(_run: Run, _frame: Frame, _node: ast.Continue) -> None:
    raise ContinueSignal


def _nothing(_run: Run, _frame: Frame, _node: ast.stmt) -> None:
    return


STATEMENTS.update(
    {
        ast.Expr: _expression,
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.If: _if,
        ast.For: _for,
        ast.While: _while,
        ast.With: _with,
        ast.Return: _return,
        ast.Raise: _raise,
        ast.Assert: _assert,
        ast.Try: _try,
        ast.Import: _import,
        ast.ImportFrom: _import,
        ast.FunctionDef: _function,
        ast.ClassDef: lambda _run, frame, node: frame.names.update({node.name: Stub(node.name)}),
        ast.Delete: _delete,
        ast.Pass: _nothing,
        ast.Break: _break,
        ast.Continue: _continue,
        ast.Global: lambda _run, frame, node: frame.globals.update(node.names),
        ast.Nonlocal: _nothing,
    }
)

__all__ = ["assign", "get_attribute", "set_attribute"]
