"""`superworkflow note`: a note and tags of a recorded run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from superworkflow.commands.runs import add_history_arguments
from superworkflow.infra.base.errors import UserError
from superworkflow.infra.base.extras import require_extra


def add_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run", metavar="RUN", help="id of the run, its beginning, or the run's name")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the note, in place of an earlier one; '' removes it")
    parser.add_argument("--tag", action="append", default=[], metavar="NAME[=VALUE]", help="set a tag; repeatable")
    parser.add_argument("--untag", action="append", default=[], metavar="NAME", help="remove a tag; repeatable")
    add_history_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Write them, and print what the run has then."""
    require_extra("flow")
    from superworkflow.infra.tracking.history import annotate, find_run
    from superworkflow.infra.tracking.uris import default_tracking_uri

    if options.text is None and not options.tag and not options.untag:
        raise UserError("nothing to note", where="note", remedy="Give a text, --tag NAME or --untag NAME")
    uri = default_tracking_uri(options.store)
    found = find_run(uri, options.run)
    note, tags = annotate(uri, found.run_id, options.text, options.tag, options.untag)
    if options.json:
        print(json.dumps({"run_id": found.run_id, "note": note, "tags": tags}, indent=1))
    else:
        texts = [f"{name}={value}" if value else name for name, value in tags.items()]
        print(f"{found.name} ({found.run_id[:8]}): {note or 'no note'}; tags: {', '.join(texts) or 'none'}")
    return 0
