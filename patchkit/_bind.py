"""Functions made from functions: with a first parameter bound, with one more, or just another one alike.

A patch is pleasant to write as ``def patched(original, a, b)``, and fast as a closure over ``original``. The
closure is compiled from the same source, at the same lines, so tracebacks, debuggers and coverage see the
author's function; its other free variables stay the author's own cells. Where that can't be done with
certainty (no source, source that is not what is running, a parameter that is assigned to), an ordinary
forwarding function does the same work at the price of one more call.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

from ._code import alike

__all__ = ["author_of", "closing_over", "taking_self", "taking_self_of_class", "twin_of"]

_ANYTHING = [
    inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
    inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
]
_FUTURE_FLAGS = 0x1FF0000  # the CO_FUTURE_* bits of code flags


def closing_over(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a maker: given a callable, it returns ``function`` with its first parameter bound to it."""
    code = _closure_code(function) if isinstance(function, types.FunctionType) else None
    if code is None:
        return functools.partial(_forwarding, function)
    assert isinstance(function, types.FunctionType)
    own = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    first = function.__code__.co_varnames[0]

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        cells = {**own, first: types.CellType(original)}
        closure = tuple(cells[name] for name in code.co_freevars)
        bound = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        bound.__kwdefaults__ = function.__kwdefaults__
        return bound

    return make


def _forwarding(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    def bound(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    async def bound_coroutine(*args: Any, **kwargs: Any) -> Any:
        return await function(original, *args, **kwargs)

    def bound_generator(*args: Any, **kwargs: Any) -> Any:
        return (yield from function(original, *args, **kwargs))

    # What a caller asks about the kind of the function must not get another answer.
    chosen: Callable[..., Any] = bound
    if inspect.iscoroutinefunction(function):
        chosen = bound_coroutine
    elif inspect.isgeneratorfunction(function):
        chosen = bound_generator
    elif inspect.isasyncgenfunction(function):
        chosen = _forwarding_async_generator(function, original)
    parameters = list(inspect.signature(function).parameters.values())
    takes_args = parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
    chosen.__signature__ = inspect.Signature(parameters if takes_args else parameters[1:])  # type: ignore[attr-defined]
    return chosen


def _forwarding_async_generator(function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    async def bound_async_generator(*args: Any, **kwargs: Any) -> Any:
        inner = function(original, *args, **kwargs)
        try:
            value = await inner.__anext__()
            while True:
                try:
                    sent = yield value
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as error:
                    value = await inner.athrow(error)
                else:
                    value = await inner.asend(sent)
        except StopAsyncIteration:
            return

    return bound_async_generator


def _closure_code(function: types.FunctionType) -> types.CodeType | None:
    code = function.__code__
    if code.co_argcount == 0:
        return None
    definition = _definition_of(function)
    if definition is None:
        return None
    plain = _compile(definition, function, outer=())
    if plain is None or not alike(plain, code):
        return None
    first = code.co_varnames[0]
    names = (node for node in ast.walk(definition) if isinstance(node, ast.Name) and node.id == first)
    if not all(isinstance(name.ctx, ast.Load) for name in names):
        return None
    arguments = definition.args
    (arguments.posonlyargs or arguments.args).pop(0)
    closed = _compile(definition, function, outer=(first,))
    return closed if closed is not None and first in closed.co_freevars else None


def _definition_of(function: types.FunctionType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Parse the function's source where it stands, so that lines and columns are the file's own."""
    try:
        lines, _ = inspect.getsourcelines(function)
        indented = lines[0][:1].isspace()
        # Taking the indentation away would change columns and multi-line strings.
        statement = ast.parse("".join(["if True:\n", *lines] if indented else lines)).body[0]
    except (OSError, SyntaxError, TypeError, IndexError):
        return None
    if isinstance(statement, ast.If):
        statement = statement.body[0]
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    statement.decorator_list = []
    ast.increment_lineno(statement, function.__code__.co_firstlineno - (2 if indented else 1))
    return statement


def _compile(
    definition: ast.FunctionDef | ast.AsyncFunctionDef, function: types.FunctionType, outer: tuple[str, ...]
) -> types.CodeType | None:
    """Compile ``definition`` inside a function whose parameters are the names that it may close over."""
    names = [*outer, *function.__code__.co_freevars]
    factory = ast.parse(f"def factory({', '.join(names)}): pass").body[0]
    assert isinstance(factory, ast.FunctionDef)
    factory.body = [definition]
    module = ast.fix_missing_locations(ast.Module(body=[factory], type_ignores=[]))
    flags = function.__code__.co_flags & _FUTURE_FLAGS
    try:
        compiled = compile(module, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    outermost = next(const for const in compiled.co_consts if isinstance(const, types.CodeType))
    found = [c for c in outermost.co_consts if isinstance(c, types.CodeType) and c.co_name == definition.name]
    if len(found) != 1:
        return None
    if sys.version_info >= (3, 11):
        # Profilers and the audit log show this name.
        return found[0].replace(co_qualname=function.__qualname__)
    return found[0]


def author_of(function: types.FunctionType) -> types.FunctionType:
    """Return the author's own function behind one that only forwards to it, otherwise the function itself."""
    if function.__globals__ is not globals():
        return function
    held = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)).get("function")
    return held.cell_contents if held and isinstance(held.cell_contents, types.FunctionType) else function


def twin_of(function: types.FunctionType) -> types.FunctionType:
    """Return another function that does, and says of itself, the same; what is written on it stays off the first."""
    twin = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(twin, function)
    del twin.__wrapped__  # type: ignore[attr-defined]
    return twin


def taking_self(raw: Any, owner: object) -> Callable[..., Any]:
    """Turn what an instance's own namespace holds, which is called without ``self``, into a function of ``self``."""
    if type(raw) is types.MethodType and raw.__self__ is owner:
        return raw.__func__

    def call(self: object, /, *args: Any, **kwargs: Any) -> Any:
        return raw(*args, **kwargs)

    return _passing_for(raw, call)


def taking_self_of_class(raw: Any) -> Callable[..., Any]:
    """Turn what a class holds into a function of ``self``: methods already are, other descriptors are bound late."""
    if inspect.isroutine(raw) and not isinstance(raw, (staticmethod, classmethod, types.BuiltinFunctionType)):
        return raw

    def call(self: object, /, *args: Any, **kwargs: Any) -> Any:
        bound = raw.__get__(self, type(self)) if hasattr(raw, "__get__") else raw
        return bound(*args, **kwargs)

    return _passing_for(raw.__get__(None, object) if isinstance(raw, (staticmethod, classmethod)) else raw, call)


def _passing_for(function: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    functools.update_wrapper(call, function, updated=())
    call.__signature__ = inspect.Signature(_ANYTHING)  # type: ignore[attr-defined]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return call
    name = "self" if "self" not in signature.parameters else "_self"
    this = inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
    call.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])  # type: ignore[attr-defined]
    return call
