"""The commands behind tasks.py: options in, exit code out. Each is parse, call, show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import bundles, cli, deploy, fitting, history, logs, runbook, status, steps, trusting, unlock, verify
from . import rollback as rollbacks
from .bundles import Bundle
from .cli import Options, Outcome, Plain
from .errors import ExitCode, LockedError, RefusedError, UsageError
from .inventory import Inventory, Node, practice_name
from .plan import Plan
from .render import history as render_history
from .render import logs as render_logs
from .render import runbook as render_runbook
from .render import show
from .render import status as render_status
from .reporting import Reporter
from .session import Session
from .work import Outdated

if TYPE_CHECKING:
    from .bench.command import Asked as BenchAsked

Verb = Callable[..., Any]
Changing = Callable[[Options, "Change"], NoReturn]

WATCH_EVERY_S = 5.0
# How often a plan is made anew because somebody else changed the node before it could begin.
PLANS = 5
# For an inventory without defaults.fix: the fix that this project ships.
DEFAULT_FIX = "eagle3-embedding-capture"


@dataclass(frozen=True)
class Change:
    """What the commands that change something take besides."""

    yes: bool = False
    dry_run: bool = False
    wait: bool = False

    @property
    def wait_s(self) -> float:
        """`--wait` waits for the lock as long as a deploy may take, an hour."""
        return 3600.0 if self.wait else 0.0


def chosen_bundles(found: Inventory, name: str | None, nodes: Sequence[Node]) -> Callable[[Session], Bundle]:
    """Each node's bundle: the one named, else its server's, else the inventory's. Read before any node is."""

    def of(node: Node) -> str:
        if name is not None:  # also the empty one, of an unset shell variable: it is no bundle
            return name
        return node.server.fix or found.default_fix or DEFAULT_FIX

    by_node = {node.name: bundles.find_bundle(of(node)) for node in nodes}
    return lambda session: by_node[session.node.name]


def _confirm(options: Options, change: Change, node: str) -> Callable[[Plan], bool]:
    def confirm(plan: Plan) -> bool:
        if not options.json or not change.yes:
            show.plan(options, node, cli.clean(plan))
        if change.yes or cli.ask(f"carry this out on {node}?"):
            return True
        hint = f"{options.again} --dry-run shows the plan, {options.again} --yes carries it out"
        raise RefusedError(f"{node}: not confirmed, nothing was changed", hint=hint, node=node)

    return confirm


def reading(
    options: Options,
    verb: Callable[[Session, Bundle], Any],
    view: Callable[[Any], None],
    *,
    in_group: Callable[[Any], None] | None = None,
    show_several: Callable[[Sequence[Any]], None] | None = None,
) -> NoReturn:
    """A command that only reads: all nodes of a group side by side.

    `in_group`: the view of a node that is one of several. `show_several`: one view of them all.
    """

    def body() -> ExitCode:
        found, nodes = cli.load_inventory(options)
        bundle = chosen_bundles(found, options.fix, nodes)
        return cli.on_nodes(
            options,
            nodes,
            lambda session, _: verb(session, bundle(session)),
            in_group if in_group is not None and len(nodes) > 1 else view,
            parallel=True,
            show_several=show_several,
        )

    cli.guarded(options, body)


def changing(
    options: Options, change: Change, verb: Verb, view: Callable[[Any], None], **more: Any
) -> NoReturn:
    """A command that changes the node: one node after another, confirmed, under the node's lock."""

    def body() -> ExitCode:
        cli.must_confirm(options, yes=change.yes, dry_run=change.dry_run)
        found, nodes = cli.load_inventory(options)
        bundle = chosen_bundles(found, options.fix, nodes)

        def each(session: Session, reporter: Reporter) -> Any:
            confirm = _confirm(options, change, session.node.name)
            for _ in range(PLANS):
                try:
                    return verb(
                        session,
                        bundle(session),
                        reporter,
                        confirm=confirm,
                        dry_run=change.dry_run,
                        wait_s=change.wait_s,
                        **more,
                    )
                except Outdated as since:
                    reporter.note(f"{since}: planning anew")
            raise LockedError(
                f"{session.node.name}: others change it faster than a plan can be made",
                hint=f"inv history --node {session.node.name}",
                node=session.node.name,
            )

        return cli.on_nodes(options, nodes, each, view, parallel=False, go_on=change.dry_run)

    cli.guarded(options, body)


def deploy_fix(options: Options, change: Change, from_pristine: bool, bench: bool = False) -> NoReturn:
    from .bench import plan

    load = plan.plan() if bench else None
    changing(options, change, deploy.deploy_fix, show.deployed, pristine=from_pristine, bench=load)


def verify_node(options: Options, verbose: bool) -> NoReturn:
    def view(result: verify.Verified) -> None:
        show.verified(result, verbose=verbose)

    reading(options, verify.verify, view, in_group=None if verbose else show.verified_in_group)


def diagnose_node(options: Options, verbose: bool) -> NoReturn:
    """Why an applied fix is not effective."""
    from .diagnose import diagnose
    from .render.diagnose import show as show_diagnosis

    def view(result: Any) -> None:
        show_diagnosis(result, verbose=verbose)

    reading(options, diagnose, view)


def bench_node(options: Options, asked: BenchAsked) -> NoReturn:
    """Measure each node's server, one node after another. On Ctrl-C what was measured is shown."""
    from .bench import command, run
    from .render.bench import show as show_bench

    def body() -> ExitCode:
        how = command.options_of(asked)
        found, nodes = cli.load_inventory(options)
        command.one_name(asked, nodes)
        bundle = chosen_bundles(found, options.fix, nodes)

        def each(session: Session, reporter: Reporter) -> Any:
            result = run.bench(session, bundle(session), reporter, how)
            if not result.interrupted:
                return result
            if not options.json:
                show_bench(cli.clean(result))
            raise command.interrupted(result)

        return cli.on_nodes(options, nodes, each, show_bench, parallel=False, go_on=True)

    cli.guarded(options, body)


def report_of(options: Options, deploy: str | None, output: str | None, as_text: bool) -> NoReturn:
    """Each node's page. With `as_text` the summary, and a page only where `output` says."""
    from .render import report as render_report
    from .report import gather

    def body() -> ExitCode:
        found, nodes = cli.load_inventory(options)
        bundle = chosen_bundles(found, options.fix, nodes)
        many, page = len(nodes) > 1, output is not None or not as_text

        def each(session: Session, _: Reporter) -> Any:
            report = gather.report(session, bundle(session), deploy)
            return render_report.write(report, cli.clean_text, output, page=page, many=many)

        def view(result: Any) -> None:
            render_report.show(result, as_text=as_text)

        return cli.on_nodes(options, nodes, each, view, parallel=True)

    cli.guarded(options, body)


def status_of(options: Options, watch: bool) -> NoReturn:
    if not watch:
        reading(options, status.status, render_status.show, show_several=render_status.show_several)

    def body() -> ExitCode:
        if options.json:
            raise UsageError(
                "--watch and --json do not go together", hint="run inv status --json again and again"
            )
        found, nodes = cli.load_inventory(options)
        bundle = chosen_bundles(found, options.fix, nodes)

        def each(session: Session, _: Reporter) -> Any:
            render_status.watched(lambda: cli.clean(status.status(session, bundle(session))), WATCH_EVERY_S)

        return cli.on_nodes(options, [cli.only(options, nodes, "--watch")], each, show.quiet, parallel=False)

    cli.guarded(options, body)


def _looking(
    options: Options, verb: Callable[[Session], Any], view: Callable[[Any], None], *, parallel: bool = True
) -> NoReturn:
    """A command on each node for which no fix matters."""

    def body() -> ExitCode:
        _, nodes = cli.load_inventory(options)
        return cli.on_nodes(options, nodes, lambda session, _: verb(session), view, parallel=parallel)

    cli.guarded(options, body)


def fixes_on(options: Options) -> NoReturn:
    """Every bundle, held against the node's files."""
    _looking(options, fitting.fitting, show.fitting)


def history_of(options: Options, limit: int) -> NoReturn:
    _looking(options, lambda session: history.history(session, limit), render_history.show)


def unlock_node(options: Options, yes: bool, dry_run: bool) -> NoReturn:
    def verb(session: Session) -> unlock.Unlocked:
        return unlock.unlock(session, release=yes, dry_run=dry_run)

    # One after another, and no further than the first that fails, only where something is changed.
    _looking(options, verb, show.unlocked, parallel=dry_run or not yes)


def practice(
    options: Options, body: Callable[[Callable[[str], None]], tuple[dict[str, Any], list[str]]]
) -> NoReturn:
    """The practice node's own commands: their answer, and what they say while they work.

    They need no inventory. One that is named, or a node, has to be about the practice node.
    """

    def run() -> ExitCode:
        name = "practice"
        if options.node is not None or options.inventory is not None:
            name = practice_name(options.inventory, options.node)
        entry, lines = body(show.message)
        if options.json:
            return cli.finish(options, [Outcome(name, Plain({**entry, "node": name}), None)])
        for line in lines:
            show.line(line)
        if entry["dry_run"]:
            show.dry_run(name)
        return ExitCode.OK

    cli.guarded(options, run)


def _step(name: str) -> Changing:
    def run(options: Options, change: Change) -> NoReturn:
        changing(options, change, steps.run_step, show.stepped, name=name)

    return run


def _verb(verb: Verb, view: Callable[[Any], None] = show.stepped) -> Changing:
    def run(options: Options, change: Change) -> NoReturn:
        changing(options, change, verb, view)

    return run


# The commands that take nothing but what every changing command takes.
CHANGING: dict[str, Changing] = {
    **{name: _step(name) for name in steps.STEPS},
    "free-gpus": _verb(steps.free),
    "start": _verb(steps.start_only, show.started),
    "stop": _verb(steps.stop),
    "restart": _verb(steps.restart),
}


def health(options: Options) -> NoReturn:
    def body() -> ExitCode:
        found, nodes = cli.load_inventory(options)
        bundle = chosen_bundles(found, options.fix, nodes)
        return cli.on_nodes(
            options,
            nodes,
            lambda session, reporter: steps.health(session, bundle(session), reporter),
            show.quiet,
            parallel=False,
        )

    cli.guarded(options, body)


def rollback(options: Options, change: Change, to: str | None, force: bool) -> NoReturn:
    changing(options, change, rollbacks.rollback, show.rolled_back, to=to, force=force)


def trust_node(options: Options, yes: bool, replaces: bool, dry_run: bool) -> NoReturn:
    """The host keys on the way to each node; with `yes` the unknown one is recorded, with `replaces` also one
    that contradicts a known one. In a dry run none is."""

    def of(node: Node) -> Outcome:
        outcome = cli.without_session(
            node,
            lambda node: trusting.trust_node(node, record=yes, replace=replaces, dry_run=dry_run),
        )
        if not isinstance(outcome.result, trusting.Trusted):
            return outcome
        told = cli.shown(options, outcome, show.trusted)
        return replace(told, error=told.error or outcome.result.error)

    def body() -> ExitCode:
        _, nodes = cli.load_inventory(options)
        return cli.finish(options, [of(node) for node in nodes])

    cli.guarded(options, body)


def logs_of(
    options: Options, asked: logs.Asked, *, file: str | None, follow: bool, errors: bool, args: bool
) -> NoReturn:
    """The boots and lines of a node's log, or of a local file."""

    def view(result: logs.Logs) -> None:
        render_logs.show(result, errors=errors, args=args)

    def body() -> ExitCode:
        if file is not None:
            result = logs.of_file(Path(file), asked)
            if not options.json:
                view(cli.clean(result))
            return cli.finish(options, [Outcome(file, result, None)])
        _, nodes = cli.load_inventory(options)
        if follow:
            if options.json:
                raise UsageError("--follow and --json do not go together", hint="leave one of them out")
            node = cli.only(options, nodes, "--follow")
            return cli.on_nodes(
                options, [node], lambda session, _: _follow(session, asked), show.quiet, parallel=False
            )
        return cli.on_nodes(
            options, nodes, lambda session, _: logs.of_node(session, asked), view, parallel=True
        )

    cli.guarded(options, body)


def runbook_of(options: Options, symptom: str | None) -> NoReturn:
    """The runbook, or one entry of it. It needs no node and no inventory: both only complete its commands."""

    def body() -> ExitCode:
        text = runbook.aimed(runbook.page(), node=options.node, inventory=options.inventory)
        entries = runbook.entries(text)
        chosen = [runbook.find(symptom, entries)] if symptom else entries
        if not options.json and symptom:
            render_runbook.show_entry(chosen[0])
        elif not options.json:
            render_runbook.show_page(text, chosen)
        return cli.finish(options, [], more={"entries": [asdict(entry) for entry in chosen]})

    cli.guarded(options, body)


def _follow(session: Session, asked: logs.Asked) -> Plain:
    logs.follow(session, asked, lambda text: show.raw(cli.clean_text(text)))
    return Plain({"node": session.node.name})
