"""`superworkflow sweep`: many trials of a superworkflow in parallel, without repeating work."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from superworkflow.arguments import add_request_arguments, request_from, tables_from
from superworkflow.infra.base.errors import SuperworkflowError, UserError
from superworkflow.infra.base.extras import require_extra
from superworkflow.infra.base.masking import has_password
from superworkflow.infra.config.config_files import parse_assignments, read_yaml
from superworkflow.infra.config.request import Request, default_store
from superworkflow.infra.contract.code_file import INPUT
from superworkflow.infra.contract.registration import Registration
from superworkflow.infra.process.interrupt import Interrupted, interruptible
from superworkflow.infra.storage.location import Location

if TYPE_CHECKING:
    from superworkflow.infra.tracking.sweeps import SweepRecord
    from superworkflow.sweeps.storage import StudyStorage
    from superworkflow.sweeps.study import SweepStudy
    from superworkflow.sweeps.summary import SweepReport

ACTIONS = {
    "status": "trials so far, what they cost, and what reuse saved",
    "best": "the best trial, or the Pareto front",
    "plot": "draw the study's pictures",
    "resume": "resume a study",
}


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments: those of an action on a study, or those of a new sweep."""
    action = next((text for text in given if text in ACTIONS or not text.startswith("-")), None)
    parser.epilog = "Or: superworkflow sweep " + "|".join(ACTIONS) + " STUDY"
    if action in ACTIONS:
        parser.add_argument("action", choices=list(ACTIONS), help="; ".join(f"{k}: {v}" for k, v in ACTIONS.items()))
        parser.add_argument("study", metavar="STUDY", help="name of the study")
        parser.add_argument("--store", default=default_store(), metavar="URI", help="store whose study it is")
        if action == "plot":
            parser.add_argument(
                "--out", metavar="FOLDER", default=".", help="where to write the pictures; default the current folder"
            )
    else:
        parser.set_defaults(action="run")
        add_request_arguments(parser, given, ACTIONS)
        _add_search_arguments(parser)
    parser.add_argument(
        "--storage", metavar="URL", help="database, sqlite:///PATH or postgresql://…; default SQLite in the store"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document on standard output at the end")
    if action == "resume":
        parser.add_argument("--code", metavar="FILE", help="file that defines the superworkflow, such as ./mine.py")
    if action in (None, "resume") or action not in ACTIONS:
        _add_run_arguments(parser)


def _add_search_arguments(parser: argparse.ArgumentParser) -> None:
    from superworkflow.sweeps.names import PRUNERS, SAMPLERS

    parser.add_argument("--space", metavar="FILE", help="YAML file that narrows or replaces the declared ranges")
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument(
        "--objective", metavar="NAME", help="quality, cost, seconds or NODE.METRIC; -NODE.METRIC is minimized"
    )
    goal.add_argument("--objectives", metavar="NAME,NAME", help="several, with their Pareto front: quality,cost")
    parser.add_argument(
        "--sampler",
        choices=SAMPLERS,
        help="search algorithm; by default chosen by the numbers of trials and objectives",
    )
    parser.add_argument("--pruner", choices=PRUNERS, help="early stopping; median by default with one objective")
    parser.add_argument("--seed", type=int, help="seed of the sampler; with --parallel 1 stages also get one thread")
    parser.add_argument(
        "--group",
        metavar="STAGE=N",
        help="N trials share the parameters of STAGE and the stages before it",
    )
    parser.add_argument("--trial-budget-usd", type=float, metavar="USD", help="constraint on the full cost of a trial")
    parser.add_argument(
        "--study",
        metavar="NAME",
        help="by default named by what is searched, so that re-running the command resumes it",
    )


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="trials of the study in total, the first one with the defaults; default 20, or the whole grid",
    )
    parser.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="concurrent trials in this process; default 1"
    )
    parser.add_argument("--cores", type=int, metavar="N", help="processors shared by concurrent trials; default all")
    parser.add_argument("--budget-usd", type=float, metavar="USD", help="stop the sweep once it has cost this much")
    parser.add_argument(
        "--max-failures", type=int, default=5, metavar="N", help="stop after this many failures in a row; default 5"
    )
    parser.add_argument(
        "--publish",
        choices=["best"],
        help="register the best trial's model at the end, and promote it if it is good enough",
    )
    parser.add_argument("--no-tracking", action="store_true", help="record nothing in MLflow")


def run(options: argparse.Namespace) -> int:
    """Run; the exit status is 0, 1 (stopped early) or 2 (bad input)."""
    require_extra("sweep")
    if options.action in ("run", "resume"):
        require_extra("flow")
    if options.action == "run":
        return _run(options, *new_study(options))
    from superworkflow.sweeps.study import SweepStudy

    study = SweepStudy.open(_storage(options, Location.of(options.store)), options.study)
    if options.action == "resume":
        return _run(options, study, _restored(study, options), _target(options, study))
    from superworkflow.dashboards.sweep_terminal import print_best, print_sweep
    from superworkflow.sweeps.summary import report

    found = report(study)
    if options.action == "plot":
        path = str(_draw(study, Path(options.out)))
        print(json.dumps([path]) if options.json else path)
    elif options.json:
        document = found.document()
        print(json.dumps(document["best"] if options.action == "best" else document, indent=1))
    else:
        (print_best if options.action == "best" else print_sweep)(found.document(), result=True)
    return 0


def new_study(options: argparse.Namespace) -> tuple[SweepStudy, Request, int]:
    """The study of a new sweep, or of the one that the same arguments began; its request, and the trials in total.

    Raises:
        UserError: the first invalid argument.
    """
    from superworkflow.sweeps.setup import Wishes, describe, set_up
    from superworkflow.sweeps.study import SweepStudy

    _check_numbers(options)
    superworkflow, request = request_from(options)
    if options.publish and not superworkflow.registered:
        raise UserError(f"{superworkflow.name} registers no model", where="--publish", value=options.publish)
    set_names = parse_assignments(options.set)
    config = read_yaml(Path(options.config)) if options.config else {}
    fixed = {f"{p}.{name}" for values in (set_names, config) for p, entries in values.items() for name in entries or ()}
    goals = (options.objectives or options.objective or "quality").split(",")
    setup = set_up(
        request,
        Wishes(
            objectives=goals, trials=options.trials, space=options.space, fixed=frozenset(fixed),
            sampler=options.sampler, pruner=options.pruner, seed=options.seed, group=_group(options.group),
            trial_budget_usd=options.trial_budget_usd,
        ),
    )  # fmt: skip
    request.store.check_writable()
    launch = {
        "sources": {name: _absolute(source.uri) for name, source in request.sources.items()},
        "profile": _file(options.profile), "store": _absolute(request.store.uri), "prices": _file(options.prices),
    }  # fmt: skip
    spec = replace(setup.spec, launch=launch)
    given = frozenset(name for name in ("sampler", "pruner", "seed") if getattr(options, name) is not None)
    storage = _storage(options, request.store.root)
    study = SweepStudy.create(storage, options.study or spec.name(), spec, given)
    for line in describe(replace(setup, spec=study.spec), study.objectives):
        print(line, file=sys.stderr)
    return study, setup.request, study.set_target(setup.trials)


def _run(options: argparse.Namespace, study: SweepStudy, request: Request, trials: int) -> int:
    resume = _resume_command(options, study)
    try:
        found = carry_out(options, study, request, trials, f"Finished trials are kept. To resume:\n    {resume}")
    except (SuperworkflowError, Interrupted) as error:
        print(f"\n{error}\nFinished trials are kept. To resume:\n    {resume}", file=sys.stderr)
        return error.exit_code
    from superworkflow.dashboards.sweep_terminal import print_sweep

    print_sweep(found.document())
    if found.note:
        print(f"\nStopped early: {found.note.rstrip('.')}.\nTo resume:\n    {resume}", file=sys.stderr)
    if options.json:
        print(json.dumps(found.document(), indent=1))
    return 1 if found.note or not found.best else 0


def carry_out(
    options: argparse.Namespace, study: SweepStudy, request: Request, trials: int, last_words: str = ""
) -> SweepReport:
    """Run the trials that are missing; the report of all.

    Args:
        options: of the command.
        study: to which they belong.
        request: that they vary.
        trials: in total.
        last_words: printed when signals end the process at once.

    Raises:
        SuperworkflowError: a server cannot be reached; finished trials are kept.
        Interrupted: by a signal; likewise.
    """
    _check_numbers(options)
    from superworkflow.infra.orchestration.local_run import needs_no_server

    api = None
    if request.profile.launcher != "process" or not needs_no_server(request):
        from superworkflow.infra.orchestration.server import connect

        api = connect()  # while it starts, the other libraries are imported
    from superworkflow.infra.orchestration.trial_host import TrialHost
    from superworkflow.sweeps.summary import report
    from superworkflow.sweeps.sweep import Sweep, SweepLimits, tag_best
    from superworkflow.sweeps.trial import shared_profile

    cores = options.cores
    if cores is None and options.parallel == 1 and getattr(options, "seed", None) is not None:
        cores = 1
        print("cores      1: with several threads the trials would not be reproducible", file=sys.stderr)
    profile, parallel = shared_profile(request.profile, options.parallel, cores)
    if parallel < options.parallel:
        print(f"parallel   {parallel}: limited by the number of processors", file=sys.stderr)
    limits = SweepLimits(trials, parallel, options.budget_usd, options.max_failures)
    if api is not None:
        api.result()
    record = _record(options, study, request)
    print(f"study      {study.name} in {study.storage}, {trials} trials, {parallel} at once", file=sys.stderr)

    def body(host: TrialHost) -> str:
        if url := record.url():
            host.link(url)
        return Sweep(study, replace(request, profile=profile), limits, record, host).run()

    parameters = {"trials": trials, "parallel": parallel, "space": study.spec.space, "sampler": study.spec.sampler}
    with interruptible(last_words):
        if api is None:
            note = body(TrialHost())
        else:
            from superworkflow.infra.orchestration.sweep_flow import run_as_flow

            note = run_as_flow(request.superworkflow, study.name, parameters, body)
        model = _publish(options, study, request) if options.publish and not note else ""
    found = report(study, note, model)
    tag_best(record, found.trials, found.best)
    _keep(record, study, found)
    return found


def _record(options: argparse.Namespace, study: SweepStudy, request: Request) -> SweepRecord:
    """The sweep's record; the first process of a study opens its run."""
    from superworkflow.infra.tracking.sweeps import MlflowSweepRecord, SweepRecord
    from superworkflow.infra.tracking.uris import default_tracking_uri
    from superworkflow.sweeps.study import RUN

    if options.no_tracking:
        return SweepRecord()
    record = MlflowSweepRecord(default_tracking_uri(request.store.root))
    params: dict[str, Any] = {"superworkflow": study.spec.superworkflow, "sampler": study.spec.sampler}
    params |= {"pruner": study.spec.pruner, "seed": study.spec.seed, "objectives": study.spec.objectives}
    params |= {f"space.{name}": entry for name, entry in study.spec.space.items()}
    record.run_id = study.once(RUN, lambda: record.begin(study.name, params))
    record.resume()
    return record


def _keep(record: SweepRecord, study: SweepStudy, found: SweepReport) -> None:
    """Totals and report in the sweep's record."""
    import tempfile

    if not record.run_id:
        return
    with tempfile.TemporaryDirectory(prefix="superworkflow-report-") as folder:
        totals: Mapping[str, float] = {
            "sweep/trials": found.finished, "sweep/paid_usd": found.paid_usd,
            "sweep/without_reuse_usd": found.without_reuse_usd, "sweep/saved_usd": found.saved_usd,
        }  # fmt: skip
        record.finish(totals, [_draw(study, Path(folder))], complete=found.finished >= found.target)


def _draw(study: SweepStudy, folder: Path) -> Path:
    from superworkflow.dashboards.web.report import SWEEP_REPORT, write_sweep_report
    from superworkflow.sweeps.summary import report

    folder.mkdir(parents=True, exist_ok=True)
    write_sweep_report(study.optuna, report(study).document(), folder / SWEEP_REPORT)
    return folder / SWEEP_REPORT


def _publish(options: argparse.Namespace, study: SweepStudy, request: Request) -> str:
    """Run the whole pipeline with the best parameters; only stages that trials leave out are computed."""
    from superworkflow.execution import Execution
    from superworkflow.sweeps.summary import report
    from superworkflow.sweeps.trial import trial_request

    best = report(study).best
    if not best:
        return ""
    registration = Registration(name=request.superworkflow.registered[0].name)
    chosen = replace(trial_request(request, best[0].params, ()), registration=registration)
    done = Execution(chosen, f"{study.name}-best", tracked=not options.no_tracking, printed=False).run()
    for decision in done.decisions:
        print(decision, file=sys.stderr)
    titles = [model.title for model in request.superworkflow.registered]
    return next((done.outputs[title] for title in titles if title in done.outputs), "")


def _storage(options: argparse.Namespace, store: Location) -> StudyStorage:
    from superworkflow.sweeps.storage import StudyStorage, default_storage_url

    return StudyStorage(options.storage or default_storage_url(store))


def _restored(study: SweepStudy, options: argparse.Namespace) -> Request:
    from superworkflow.flows import load_superworkflow
    from superworkflow.sweeps.setup import restore

    spec = study.spec
    if INPUT not in spec.sources and options.code:
        raise UserError("no file defines the superworkflow of this study", where="--code", value=options.code)
    if INPUT in spec.sources and not options.code:  # the database must not choose the code
        raise UserError("a file defines the superworkflow of this study", where=study.name,
                        remedy="Give it with --code FILE")  # fmt: skip
    chosen = load_superworkflow(options.code or spec.superworkflow)
    return restore(chosen, spec, spec.launch, tables_from(options))


def _target(options: argparse.Namespace, study: SweepStudy) -> int:
    from superworkflow.sweeps.study import TARGET

    _check_numbers(options)
    return study.set_target(options.trials or int(study.attributes()[TARGET]))


def _resume_command(options: argparse.Namespace, study: SweepStudy) -> str:
    """The command that resumes the sweep, without the password of the database."""
    given, shown = options.storage or "", study.storage.url_without_password
    secret = has_password(given)
    if options.action == "resume":
        words = [word.replace(given, shown) if secret else word for word in sys.argv[1:]]
    else:
        where = ["--storage", shown] if given else ["--store", options.store]
        more = ["--parallel", str(options.parallel)] if options.parallel > 1 else []
        code = ["--code", options.superworkflow] if INPUT in study.spec.sources else []
        words = ["sweep", "resume", study.name, *code, *where, *more]
    line = shlex.join(["superworkflow", *words])
    return line + "\nwith the password of the database in PGPASSWORD or ~/.pgpass" if secret else line


def _check_numbers(options: argparse.Namespace) -> None:
    for name in ("trials", "parallel", "cores", "max_failures", "budget_usd", "trial_budget_usd"):
        value = getattr(options, name, None)
        if value is not None and not 0 < value < math.inf:
            raise UserError("must be above 0, and finite", where=f"--{name.replace('_', '-')}", value=value)


def _group(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    stage, _, number = text.partition("=")
    if not stage or not number.isdigit() or int(number) < 2:
        raise UserError("not of the form STAGE=N with N above 1", where="--group", value=text, remedy="Write STAGE=4")
    return stage, int(number)


def _file(name: str | None) -> str | None:
    """A profile or price table: its name, or the path of its file from anywhere."""
    return str(Path(name).absolute()) if name and Path(name).is_file() else name


def _absolute(uri: str) -> str:
    path = Location.of(uri).local_path
    return str(path.absolute()) if path is not None else uri
