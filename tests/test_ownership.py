"""Whose process is it? The kill plan of each case from the field, decided from facts alone."""

from __future__ import annotations

from typing import Any

import pytest

from remote.ownership import AWAY, Ownership, Process, assess, news

OUR_UID, OTHER_UID = 1000, 2000


def process(pid: int, title: str, role: str | None, **more: Any) -> dict[str, Any]:
    return {
        "pid": pid,
        "starttime_ticks": pid * 10,
        "start_time": 1.0,
        "title": title,
        "argv": title.split(),
        "role": role,
        "user": "ops",
        "uid": OUR_UID,
        "ppid": 1,
        "sid": pid,
        "state": "S",
        **more,
    }


def facts(*processes: dict[str, Any], port: int | None = None, pid: int | None = None) -> dict[str, Any]:
    listeners = [{"port": port, "pid": pid, "uid": OUR_UID}] if port else []
    return {"processes": list(processes), "listeners": listeners}


def decide(procs: dict[str, Any], *, holders: list[dict[str, Any]] | None = None, **more: Any) -> Ownership:
    options: dict[str, Any] = {"port": 30000, "our_uid": OUR_UID, "our_gpus": None, **more}
    known = {"holders": holders or [], "holders_known": holders is not None}
    return assess(procs, known, **options)


def server(first: int, port: int, **more: Any) -> list[dict[str, Any]]:
    """A launcher and two ranks in its session."""
    title = f"python3 -m sglang.launch_server --port {port}"
    return [
        process(first, title, "launcher", **more),
        process(first + 1, "sglang::scheduler_TP0", "scheduler", ppid=first, sid=first, **more),
        process(first + 2, "sglang::scheduler_TP1", "scheduler", ppid=first, sid=first, **more),
    ]


def test_the_server_on_our_port_is_ours_with_all_its_processes() -> None:
    owned = decide(facts(*server(100, 30000), port=30000, pid=100))
    assert owned.server is not None
    assert owned.server.launcher is not None
    assert owned.server.launcher.pid == 100
    assert [rank.pid for rank in owned.server.ranks()] == [101, 102]
    assert owned.stale == ()
    assert owned.foreign == ()
    assert [each.pid for each in owned.to_end()] == [100, 101, 102]


def test_schedulers_re_parented_to_init_are_stale() -> None:
    """Case 052: four workers with PPID 1 hold 100 GB each; the plan lists exactly these."""
    pids = [2505781, 2505782, 2505783, 2505784]
    orphans = [
        process(pid, f"sglang::scheduler_DP{n}_TP{n}_EP{n}", "scheduler", sid=77)
        for n, pid in enumerate(pids)
    ]
    holders = [{"pid": pid, "gpu_index": n, "used_mib": 100998, "name": "x"} for n, pid in enumerate(pids)]
    owned = decide(facts(*orphans), holders=holders)
    assert [each.process.pid for each in owned.stale] == pids
    assert {each.why for each in owned.stale} == {"its launcher is gone"}
    assert [each.pid for each in owned.to_end()] == pids
    assert owned.foreign == ()


def test_orphans_on_gpus_that_are_not_ours_are_left() -> None:
    """One machine, two servers under one user: the other one's ranks are in the way of the other one only."""
    orphans = [process(pid, "sglang::scheduler_TP0", "scheduler", sid=pid) for pid in (300, 400)]
    holders = [
        {"pid": 300, "gpu_index": 1, "used_mib": 9, "name": "x"},
        {"pid": 400, "gpu_index": 5, "used_mib": 9, "name": "x"},
    ]
    owned = decide(facts(*orphans), holders=holders, our_gpus=frozenset({0, 1}))
    assert [each.process.pid for each in owned.stale] == [300]
    assert owned.foreign == ()


def test_a_zombie_launcher_leaves_orphans() -> None:
    zombie, *ranks = server(100, 30000)
    owned = decide(facts({**zombie, "state": "Z"}, *ranks))
    assert owned.server is None
    assert {each.process.pid for each in owned.stale} == {101, 102}


def test_what_is_left_of_a_server_of_ours_in_a_container_without_init_is_not_stale() -> None:
    """Nobody waits for orphans there: zombies stay for as long as the container does."""
    dead = [{**each, "state": "Z", "ppid": 1} for each in server(100, 30000)]
    booted = [(100, 1000)]
    assert decide(facts(*dead, *server(200, 30000), port=30000, pid=200), booted=booted).stale == ()
    stuck = {**dead[1], "threads_alive_of_zombie": True}
    owned = decide(facts(dead[0], stuck), booted=booted)
    assert [each.process.pid for each in owned.stale] == [101]


def test_a_neighbour_on_our_gpu_is_named_and_not_ended() -> None:
    """Case 064: ours on GPU 2 with a stranger beside it, and our other server on a GPU not in our set."""
    ours = process(61001, "python3 -m sglang.launch_server --port 30000 --tp 4", "launcher")
    stranger = process(61055, "python3 train.py", None, user="other", uid=OTHER_UID)
    second = process(61077, "python3 -m sglang.launch_server --port 31000 --tp 2", "launcher")
    holders = [
        {"pid": 61001, "gpu_index": 2, "used_mib": 70000, "name": "python3"},
        {"pid": 61055, "gpu_index": 2, "used_mib": 4000, "name": "python3"},
        {"pid": 61077, "gpu_index": 5, "used_mib": 70000, "name": "python3"},
    ]
    owned = decide(facts(ours, stranger, second), holders=holders, our_gpus=frozenset({0, 1, 2, 3}))
    assert [each.pid for each in owned.to_end()] == [61001]
    assert [(each.pid, each.user) for each in owned.foreign] == [(61055, "other")]
    assert [group.launcher.pid for group in owned.others if group.launcher] == [61077]


def test_a_second_server_of_ours_on_our_gpus_is_foreign_to_this_one() -> None:
    second = server(200, 31000)
    holders = [{"pid": 201, "gpu_index": 0, "used_mib": 9, "name": "sglang::scheduler_TP0"}]
    owned = decide(facts(*second), holders=holders)
    assert owned.server is None
    assert owned.to_end() == []
    assert [each.pid for each in owned.foreign] == [201]


def test_every_entry_point_of_a_server_without_a_launcher_is_found() -> None:
    """Case 066: `sglang serve`, tokenizer workers and titles; an editor and a grep are not servers."""
    processes = [
        process(
            700, "/opt/sglang/bin/python3 /opt/sglang/bin/sglang serve --port 30000", "launcher", sid=700
        ),
        process(701, "sglang::scheduler_TP0", "scheduler", sid=700, ppid=700),
        process(702, "sglang::detokenizer", "detokenizer", sid=700, ppid=700),
        process(703, "sglang::tokenizer_worker:1", "tokenizer-worker", sid=703),
        process(704, "python3 -m sglang.launch_server --model-path m --port 30000", "launcher", sid=704),
        process(705, "vim deepseek_v2.py", None),
        process(706, "grep --color=auto sglang", None),
    ]
    owned = decide(facts(*processes, port=30000, pid=703))
    assert {each.pid for each in owned.to_end()} == {700, 701, 702, 703, 704}


def test_another_users_server_on_our_port_is_foreign() -> None:
    owned = decide(facts(*server(100, 30000, uid=OTHER_UID, user="other"), port=30000, pid=100))
    assert owned.server is None
    assert owned.to_end() == []
    assert [each.what for each in owned.foreign] == ["listens on port 30000"]


def test_a_listener_that_cannot_be_seen_is_foreign() -> None:
    owned = decide(facts(port=30000, pid=None))
    assert [(each.pid, each.what) for each in owned.foreign] == [(None, "listens on port 30000")]


def test_a_holder_in_another_container_is_foreign() -> None:
    """Case 059: the pid of nvidia-smi is of another namespace, and no such process is visible here."""
    owned = decide(facts(), holders=[{"pid": 4242, "gpu_index": 1, "used_mib": 500, "name": "python"}])
    assert [each.pid for each in owned.foreign] == [4242]
    assert "not visible" in owned.foreign[0].user


def test_schedulers_under_a_living_parent_of_their_session_are_left_alone() -> None:
    """An engine that embeds SGLang (dynamo, a notebook): its launcher has another name."""
    parent = process(500, "python3 -m dynamo.sglang", None, sid=500)
    rank = process(501, "sglang::scheduler_TP0", "scheduler", ppid=500, sid=500)
    owned = decide(facts(parent, rank))
    assert owned.to_end() == []


def test_a_server_that_we_started_is_ours_on_any_port() -> None:
    owned = decide(facts(*server(100, 31000)), booted=[(100, 1000)])
    assert [each.process.pid for each in owned.stale] == [100, 101, 102]


def test_a_reused_pid_is_not_the_server_that_we_started() -> None:
    owned = decide(facts(*server(100, 31000)), booted=[(100, 999)])
    assert owned.to_end() == []


def test_orphans_that_hold_neither_a_gpu_nor_our_port_are_left_alone() -> None:
    """Somebody's ranks on CPU, or of another container: not proven to be in our way, so not ended."""
    orphan = process(900, "sglang::scheduler_TP0", "scheduler")
    assert decide(facts(orphan), holders=[]).to_end() == []
    assert [each.pid for each in decide(facts(orphan)).to_end()] == [900]  # who holds what is not known


def test_to_a_server_on_the_cpu_it_is_all_the_same_who_holds_a_gpu() -> None:
    """Only its port can be in its way; orphans of another server are neither stale nor foreign to it."""
    orphan = process(200, "sglang::scheduler_TP0", "scheduler", sid=199)
    holders = [{"gpu_index": 0, "pid": 901, "name": "python3", "used_mib": 4000}]
    for known in (holders, None):
        owned = decide(
            facts(*server(100, 30000), orphan, port=30000, pid=100), holders=known, our_gpus=frozenset()
        )
        assert owned.server is not None
        assert (owned.stale, owned.foreign) == ((), ())
    left = decide(facts(orphan, port=30000, pid=200), our_gpus=frozenset())
    assert [each.process.pid for each in left.stale] == [200]


def test_a_server_on_our_port_is_ours_whatever_started_it() -> None:
    """The inventory's `command` was changed, or a wrapper started it: its ranks tell what it is."""
    launcher = process(100, "/opt/run_server.sh", None, sid=100)
    rank = process(101, "sglang::scheduler_TP0", "scheduler", ppid=100, sid=100)
    owned = decide(facts(launcher, rank, port=30000, pid=100))
    assert owned.server is not None
    assert [each.pid for each in owned.to_end()] == [100, 101]
    assert owned.foreign == ()
    stranger = process(100, "/opt/run_server.sh", None, sid=100, uid=OTHER_UID)
    assert decide(facts(stranger, rank, port=30000, pid=100)).to_end() == []


def test_the_default_port_is_sglangs_own() -> None:
    owned = decide(facts(process(100, "python3 -m sglang.launch_server --model-path m", "launcher")))
    assert owned.server is not None


def test_a_server_in_a_container_has_ports_of_its_own() -> None:
    """Root in somebody else's container, with the same port number and on our GPU, seen from the host."""
    ours, theirs = server(100, 30000, net="net:[1]"), server(200, 30000, net="net:[2]")
    orphan = process(300, "sglang::scheduler_TP0", "scheduler", net="net:[2]")
    holders = [{"pid": pid, "gpu_index": 0, "used_mib": 9, "name": "x"} for pid in (101, 201, 300)]
    procs = {**facts(*ours, *theirs, orphan, port=30000, pid=100), "self": {"net": "net:[1]"}}
    owned = decide(procs, holders=holders)
    assert [each.pid for each in owned.to_end()] == [100, 101, 102]
    assert [each.pid for each in owned.foreign] == [201, 300]
    down = decide({**procs, "processes": [*theirs, orphan], "listeners": []}, holders=holders[1:])
    assert (down.server, down.to_end()) == (None, [])
    assert decide(procs, booted=[(200, 2000)]).stale[0].process.pid == 200


def test_a_server_under_another_root_is_not_ours_though_it_has_our_port() -> None:
    """`docker run --network host`: the files that it loads are its image's, whatever their paths are."""
    theirs = server(200, 30000, root="0:57")
    procs = {**facts(*theirs, port=30000, pid=200), "self": {"root": "254:2"}}
    owned = decide(procs)
    assert (owned.server, owned.to_end()) == (None, [])
    assert [each.what for each in owned.foreign] == [f"listens on port 30000{AWAY}"]
    started_here = decide(procs, booted=[(200, 2000)])
    assert started_here.server is not None
    assert started_here.foreign == ()


def test_a_program_that_runs_an_engine_in_the_servers_session_is_no_part_of_it() -> None:
    """Both were started in one shell: an evaluation that uses sgl.Engine, and the server."""
    shell = process(90, "-bash", None, sid=90)
    ours = [{**each, "sid": 90} for each in server(100, 30000)]
    program = process(200, "python3 offline_eval.py", None, ppid=90, sid=90)
    engine = [
        process(201, "sglang::scheduler_TP0", "scheduler", ppid=200, sid=90),
        process(
            202, "python3 -c from multiprocessing.resource_tracker", "resource-tracker", ppid=200, sid=90
        ),
    ]
    owned = decide(facts(shell, {**ours[0], "ppid": 90}, *ours[1:], program, *engine, port=30000, pid=100))
    assert [each.pid for each in owned.to_end()] == [100, 101, 102]
    assert owned.server is not None
    assert len(owned.server.ranks()) == 2
    left = decide(facts(shell, program, *engine))
    assert left.to_end() == []
    lost = [{**each, "ppid": 1} for each in ours[1:]]
    assert [each.pid for each in decide(facts(shell, program, *engine, *lost)).to_end()] == [101, 102]


def test_a_process_that_ended_while_it_was_read_makes_no_server_foreign() -> None:
    """A compiler for a moment, the tracker of a launcher that was killed, something setuid."""
    gone = process(110, "[ptxas]", "member", ppid=101, sid=100, uid=None, user=None)
    tracker = process(111, "python3 -c ...", "resource-tracker", sid=100, uid=None, user=None)
    setuid = process(112, "nvidia-modprobe", "member", ppid=101, sid=100, uid=0, user="root")
    owned = decide(facts(*server(100, 30000), gone, tracker, setuid, port=30000, pid=100))
    assert owned.server is not None
    ranks = [{**each, "ppid": 1} for each in server(100, 30000)[1:]]
    assert {each.process.pid for each in decide(facts(*ranks, tracker)).stale} == {101, 102, 111}
    unknown = process(500, "sglang::scheduler_TP0", "scheduler", uid=None, user=None)
    assert decide(facts(unknown)).to_end() == []


def test_a_wrapper_that_we_started_is_the_launcher_before_it_listens() -> None:
    """`command` of the inventory is a script: its interpreter comes first in its command line."""
    wrapper = process(100, "/usr/bin/python3 /opt/run.py --port 30000", None, sid=100)
    rank = process(101, "sglang::scheduler_TP0", "scheduler", ppid=100, sid=100)
    holders = [{"pid": 101, "gpu_index": 0, "used_mib": 9, "name": "x"}]
    owned = decide(facts(wrapper, rank), holders=holders, booted=[(100, 1000)])
    assert owned.server is not None
    assert owned.server.launcher is not None
    assert owned.server.launcher.pid == 100
    assert owned.foreign == ()
    assert [each.pid for each in owned.to_end()] == [100, 101]


def test_a_wrapper_that_we_started_and_that_runs_a_launcher_is_not_one_itself() -> None:
    wrapper = process(99, "/bin/sh /opt/run.sh --port 30000", "member", sid=99)
    inner = [{**each, "sid": 99} for each in server(100, 30000)]
    owned = decide(
        facts(wrapper, {**inner[0], "ppid": 99}, *inner[1:], port=30000, pid=100), booted=[(99, 990)]
    )
    assert owned.server is not None
    assert owned.server.launcher is not None
    assert owned.server.launcher.pid == 100


UP = facts(*server(100, 30000), port=30000, pid=100)
LOADING = facts(*server(100, 30000))
NOTHING = facts()
RANK = process(103, "sglang::scheduler_TP2", "scheduler", ppid=100, sid=100)
COMPILER = process(104, "cicc", "member", ppid=101, sid=100)
STRANGER = process(900, "python -m http.server", None, uid=OTHER_UID)
ORPHAN = process(800, "sglang::scheduler_TP0", "scheduler")


def beside(procs: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    return {**procs, "processes": [*procs["processes"], *more]}


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (UP, UP, None),
        (UP, beside(UP, COMPILER), None),
        (beside(UP, RANK), UP, None),
        (UP, beside(UP, RANK), "pid 103 sglang::scheduler_TP2 is there now"),
        (UP, facts(*server(200, 30000), port=30000, pid=200), "pid 200 is the server now"),
        (NOTHING, UP, "pid 100 is the server now"),
        (NOTHING, LOADING, "pid 100 is the server now"),
        (UP, NOTHING, "the server has gone"),
        (LOADING, UP, "pid 100 listens now"),
        (NOTHING, facts(STRANGER, port=30000, pid=900), "pid 900 listens now"),
        (
            NOTHING,
            {**NOTHING, "listeners": [{"port": 30000, "pid": None, "uid": OTHER_UID}]},
            "another listener",
        ),
        (UP, beside(UP, ORPHAN), "pid 800 sglang::scheduler_TP0 is there now"),
    ],
)
def test_what_a_plan_that_ends_the_server_does_not_know(
    before: dict[str, Any], now: dict[str, Any], told: str | None
) -> None:
    was = decide(before)
    found = news(was, decide(now), was.to_end())
    assert found is None if told is None else told in (found or "")


@pytest.mark.parametrize(
    ("more", "told"), [(RANK, None), (ORPHAN, "pid 800 sglang::scheduler_TP0 is there now")]
)
def test_to_a_plan_that_leaves_the_server_its_own_ranks_are_no_news(
    more: dict[str, Any], told: str | None
) -> None:
    """One that is waited for starts them one after another."""
    none: tuple[Process, ...] = ()
    assert news(decide(LOADING), decide(beside(LOADING, more)), none) == told
