"""The commands: parse, call, render. What each does lies in remote/commands.py and behind it.

Nothing heavy is imported here: `inv --list` must answer at once.
"""

# Invoke reads each task's parameters from its signature, so they are spelled out.
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from invoke.collection import Collection
from invoke.context import Context
from invoke.tasks import Task, task

from remote.practice.tasks import collection as practice
from remote.practice.tasks import positional_if_given

if TYPE_CHECKING:
    from remote.cli import Options
    from remote.commands import Change
    from remote.practice.tasks import Body as PracticeBody
    from remote.practice.tasks import Given as PracticeGiven

NODE = {
    "node": "a node or a group of the inventory (default: defaults.node)",
    "inventory": "the inventory file (default: $FIXOPS_INVENTORY, else inventory.yaml)",
    "json": "exactly one JSON document on stdout, messages on stderr",
}
FIX = {"fix": "the fix bundle (default: defaults.fix of the inventory)"}
CHANGE = {
    "yes": "do not ask",
    "dry-run": "print the plan with its diffs and change nothing",
    "wait": "wait for the lock while another engineer holds it",
}


def _options(
    context: Context,
    command: str,
    node: str | None,
    inventory: str | None,
    json: bool,
    fix: str | None = None,
    *own: str,
) -> Options:
    from remote.cli import Options, refuse_invoke_dry

    options = Options(command, node, inventory, json, fix, own)
    refuse_invoke_dry(options, bool(context.config.run.dry))
    return options


def _given(options: dict[str, str | bool | None]) -> list[str]:
    """A command's own options as they were typed."""
    typed = ([flag] if value is True else [flag, str(value)] for flag, value in options.items() if value)
    return [word for words in typed for word in words]


def _change(yes: bool, dry_run: bool, wait: bool) -> Change:
    from remote.commands import Change

    return Change(yes, dry_run, wait)


@task(
    help={
        **NODE,
        **FIX,
        **CHANGE,
        "from-pristine": "start from the version's wheel, whatever the files hold now",
        "bench": "measure before a healthy old server is stopped, and after (inv bench's defaults)",
    }
)
def deploy_fix(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
    yes: bool = False,
    dry_run: bool = False,
    wait: bool = False,
    from_pristine: bool = False,
    bench: bool = False,
) -> None:
    """The whole procedure: push, purge, stop, free, start, wait, verify. Does only what is not so."""
    from remote import commands

    own = _given({"--from-pristine": from_pristine, "--bench": bench})
    commands.deploy_fix(
        _options(context, "deploy-fix", node, inventory, json, fix, *own),
        _change(yes, dry_run, wait),
        from_pristine,
        bench,
    )


@task(help={**NODE, **FIX, "verbose": "show the evidence of what passed too"})
def verify(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
    verbose: bool = False,
) -> None:
    """Check every claim about the node against evidence; changes nothing."""
    from remote import commands

    commands.verify_node(_options(context, "verify", node, inventory, json, fix), verbose)


@task(help={**NODE, **FIX, "verbose": "show the evidence of what was refuted too"})
def diagnose(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
    verbose: bool = False,
) -> None:
    """Applied but not effective, why? Wiring by forward mode, every known cause, and what to type."""
    from remote import commands

    commands.diagnose_node(_options(context, "diagnose", node, inventory, json, fix), verbose)


@task(
    help={
        **NODE,
        **FIX,
        "baseline": "compare with this one: a name given by --save-as, a run's id, or a file",
        "save-as": "keep this run as the baseline of this name",
        "prompts": "your own prompts: JSON lines {id, text}, or text with one per line",
        "requests": "how many (default: each prompt once; more are repeats, which count as one)",
        "concurrency": "how many at once (default 4)",
        "max-tokens": "of each answer (default 256)",
        "limit": "seconds after which what still runs is given up (default 900)",
        "client": "fixops, or sglang: its own client, as a second opinion on throughput",
        "anyway": "measure although verify fails",
    }
)
def bench(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
    baseline: str | None = None,
    save_as: str | None = None,
    prompts: str | None = None,
    requests: str | None = None,
    concurrency: str | None = None,
    max_tokens: str | None = None,
    limit: str | None = None,
    client: str = "fixops",
    anyway: bool = False,
) -> None:
    """Measure the running server: is the fix effective, and by how much?"""
    from remote import commands
    from remote.bench.command import Asked

    commands.bench_node(
        _options(context, "bench", node, inventory, json, fix),
        Asked(baseline, save_as, prompts, requests, concurrency, max_tokens, limit, client, anyway),
    )


@task(
    help={
        **NODE,
        **FIX,
        "deploy": "the deploy to report on (default: the last one; ids: inv history)",
        "output": "where the page goes: a file, or a folder (default: $XDG_STATE_HOME/fixops/reports)",
        "text": "print the summary for a chat message; a page only with --output",
    }
)
def report(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
    deploy: str | None = None,
    output: str | None = None,
    text: bool = False,
) -> None:
    """Write one HTML page of a deploy: what was done, what is proven, what it brought."""
    from remote import commands

    commands.report_of(_options(context, "report", node, inventory, json, fix), deploy, output, text)


@task(help={**NODE, **FIX, "watch": "again every few seconds, until Ctrl-C"})
def status(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
    watch: bool = False,
) -> None:
    """One screen: server, ranks, GPUs, fix, config, last deploy."""
    from remote import commands

    commands.status_of(_options(context, "status", node, inventory, json, fix), watch)


@task(
    help={
        **NODE,
        **FIX,
        **CHANGE,
        "to": "the deploy to undo (default: the last one; ids: inv history)",
        "force": "also over files changed since",
    }
)
def rollback(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
    yes: bool = False,
    dry_run: bool = False,
    wait: bool = False,
    to: str | None = None,
    force: bool = False,
) -> None:
    """Put back what the last deploy replaced, restart, verify."""
    from remote import commands

    own = _given({"--to": to, "--force": force})
    commands.rollback(
        _options(context, "rollback", node, inventory, json, fix, *own),
        _change(yes, dry_run, wait),
        to,
        force,
    )


def _changing(name: str, does: str) -> Task[Any]:
    """A command that takes what every changing command takes, and nothing else."""

    def run(
        context: Context,
        node: str | None = None,
        inventory: str | None = None,
        json: bool = False,
        fix: str | None = None,
        yes: bool = False,
        dry_run: bool = False,
        wait: bool = False,
    ) -> None:
        from remote import commands

        commands.CHANGING[name](
            _options(context, name, node, inventory, json, fix), _change(yes, dry_run, wait)
        )

    run.__doc__ = does
    made: Task[Any] = task(name=name, help={**NODE, **FIX, **CHANGE})(run)
    return made


CHANGING = [
    _changing("push-fix", "Write the fix's code and configuration, and read them back."),
    _changing("purge-pycache", "Remove bytecode that the interpreter would believe."),
    _changing("kill-stale", "End stale servers and orphaned ranks, by pid and start time."),
    _changing("free-gpus", "Wait until the GPUs' memory is back."),
    _changing("start", "Start the server where none runs; the log is this boot's own."),
    _changing("stop", "End the server and what is stale beside it."),
    _changing("restart", "Stop, free the GPUs, start, wait until it generates."),
]


@task(help={**NODE, **FIX})
def health(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    fix: str | None = None,
) -> None:
    """Wait until the running server is ready and generates, with live progress."""
    from remote import commands

    commands.health(_options(context, "health", node, inventory, json, fix))


@task(help={**NODE})
def fixes(
    context: Context, node: str | None = None, inventory: str | None = None, json: bool = False
) -> None:
    """The fix bundles, and which of them fit the node."""
    from remote import commands

    commands.fixes_on(_options(context, "fixes", node, inventory, json))


@task(
    help={
        **NODE,
        "grep": "only lines of the last boot that match this regular expression",
        "lines": "how many lines, the last ones (default 40)",
        "follow": "go on as the log grows, until Ctrl-C",
        "errors": "the first cause of the last boot's failure",
        "args": "the last boot's effective server arguments",
        "file": "a log on this machine instead of a node's",
    }
)
def logs(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    grep: str | None = None,
    lines: int = 40,
    follow: bool = False,
    errors: bool = False,
    args: bool = False,
    file: str | None = None,
) -> None:
    """The boots in the server's log, and the last one's lines."""
    from remote import commands
    from remote.logs import Asked

    commands.logs_of(
        _options(context, "logs", node, inventory, json),
        Asked(grep, lines),
        file=file,
        follow=follow,
        errors=errors,
        args=args,
    )


@task(help={**NODE, "limit": "how many entries, the last ones (default 100)"})
def history(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    limit: int = 100,
) -> None:
    """What was done to the node, by whom, when, with what outcome."""
    from remote import commands

    commands.history_of(_options(context, "history", node, inventory, json), limit)


@task(
    help={
        **NODE,
        "yes": "release the lock",
        "dry-run": "only show the lock, and whether --yes would release it; also together with --yes",
    }
)
def unlock(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    yes: bool = False,
    dry_run: bool = False,
) -> None:
    """Show the lock's holder; release it with --yes."""
    from remote import commands

    commands.unlock_node(_options(context, "unlock", node, inventory, json), yes, dry_run)


@task(
    help={
        **NODE,
        "yes": "record the key in known_hosts",
        "dry-run": "only show the key, and whether --yes would record it; also together with --yes",
        "replace": "with --yes: also in place of another key of the host",
    }
)
def trust(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    yes: bool = False,
    dry_run: bool = False,
    replace: bool = False,
) -> None:
    """Show the node's host key fingerprint; record it with --yes."""
    from remote import commands

    commands.trust_node(_options(context, "trust", node, inventory, json), yes, replace, dry_run)


@task(
    positional=positional_if_given(
        "runbook", "symptom", sys.argv, valued=("-n", "--node", "-i", "--inventory")
    ),
    help={
        "node": "a node to put into the commands that are shown",
        "inventory": "an inventory file to put into the commands that are shown",
        "json": "exactly one JSON document on stdout, messages on stderr",
        "symptom": "a symptom, a check's id or a failure's code; without it, the whole page",
    },
)
def runbook(
    context: Context,
    node: str | None = None,
    inventory: str | None = None,
    json: bool = False,
    symptom: str | None = None,
) -> None:
    """The on-call runbook: what you see, what to type, how to read it, when to escalate."""
    from remote import commands

    commands.runbook_of(_options(context, "runbook", node, inventory, json), symptom)


def _show_practice(context: Context, command: str, given: PracticeGiven, body: PracticeBody) -> None:
    from remote import commands

    commands.practice(_options(context, command, given.node, given.inventory, given.json), body)


namespace = Collection(
    *CHANGING,
    deploy_fix,
    verify,
    diagnose,
    bench,
    report,
    status,
    rollback,
    health,
    fixes,
    logs,
    history,
    unlock,
    trust,
    runbook,
)
namespace.add_collection(practice(_show_practice), "practice")
