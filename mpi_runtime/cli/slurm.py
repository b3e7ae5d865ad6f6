"""The verbs `submit`, `status` and `template`: jobs of batch systems from the command line."""

import argparse
import math
import os
import sys
from collections.abc import Sequence
from importlib import resources
from typing import Any

from mpi_runtime.cli.run import split
from mpi_runtime.errors import JournalError, LaunchError
from mpi_runtime.show.command_line import add_json, print_json
from mpi_runtime.slurm import bounds, following, jobs, script
from mpi_runtime.slurm.commands import SlurmError

_INTERRUPTED, _NOBODY_READS = 130, 141
"""Exit codes of shells for SIGINT and SIGPIPE."""
_SHORT_S = 60
"""A time below it was probably meant as hours and minutes. Slurm gives a minute at least."""
_OWN = ("profile", "dry_run", "wait", "env", "doctor", "batch", "max_jobs")
"""Options that are not fields of `Request`."""
_OF_PROGRAM = ("--name", "--array", "--after", "--warn-s", "--batch", "--max-jobs")
"""Options that are those of a program, and not of the resources of a job."""
Options = dict[str, Any]
"""Options of a submission by name, or those of `add_argument`."""
_NUMBER: Options = {"type": int, "metavar": "COUNT"}
_WITH_VALUE: dict[tuple[str, ...], Options] = {
    ("-N", "--nodes"): {"metavar": "COUNT|MIN-MAX", "help": "number of nodes, or a range (default: 1)"},
    ("--ranks-per-node",): {"help": "ranks on each node (default: 1)", **_NUMBER},
    ("--cpus-per-node",): {"help": "CPUs on each node; other jobs may then use the rest", **_NUMBER},
    ("--gpus-per-node",): {"metavar": "[TYPE:]COUNT", "help": "GPUs on each node"},
    ("--memory", "--mem"): {"metavar": "SIZE", "help": "memory of each node, such as 64G"},
    ("-t", "--time"): {"metavar": "TIME", "help": "time limit of the job, such as 1:00:00; 30:00 are minutes"},
    ("-J", "--name", "--job-name"): {"metavar": "NAME", "help": "name of the job (default: the name of the program)"},
    ("-p", "--partition"): {"metavar": "NAME", "help": "partition of the job"},
    ("-A", "--account"): {"metavar": "NAME", "help": "account that is charged"},
    ("-q", "--qos"): {"metavar": "NAME", "help": "quality of service"},
    ("-a", "--array"): {
        "metavar": "FIRST-LAST",
        "help": "a job for each number; {task} in arguments is replaced by it",
    },
    ("--after",): {"metavar": "JOB,...", "help": "start when these jobs have ended, however they ended"},
    ("--warn-s",): {"help": "send SIGUSR1 N seconds before the end (slurm.before_walltime)", **_NUMBER},
    ("--launcher",): {"metavar": "COMMAND", "help": "'mpirun' (the default) or 'srun --mpi=...'"},
    ("--module",): {"dest": "modules", "action": "append", "metavar": "NAME", "help": "to load; may be repeated"},
    ("--setup",): {
        "action": "append",
        "metavar": "LINE",
        "help": "shell command to run before the program; may be repeated; if it fails, the job fails",
    },
    ("--env",): {"action": "append", "metavar": "NAME=VALUE", "help": "variable to set; may be repeated"},
    ("--sbatch",): {"action": "append", "metavar": "OPTION", "help": "passed to sbatch unchanged: --sbatch=-Ca100"},
    ("--python",): {"metavar": "PATH", "help": "the interpreter on the nodes (default: this one)"},
    ("--batch",): {"metavar": "FILE", "help": "run the commands of this file: see `mpi-runtime batch`"},
    ("--max-jobs",): {"help": "submit N jobs that share the batch; each leaves when it has nothing to do", **_NUMBER},
    ("--system",): {"metavar": "NAME", "help": "slurm, sge, pbs, lsf, flux or oar (default: the installed one)"},
    ("--pe",): {"metavar": "NAME", "help": "parallel environment of Grid Engine (default: one that fits)"},
    ("--qsub",): {
        "action": "append",
        "metavar": "OPTION",
        "help": "passed to qsub, bsub, flux batch or oarsub unchanged: --qsub=-l --qsub=gpu=1",
    },
    ("--profile",): {"metavar": "NAME", "help": "name in the file of profiles (default: 'default')"},
}


def submit(words: Sequence[str]) -> int:
    """Submit a program and return 0; with `--wait`, wait for the job and return the program's exit code."""
    own, program = split(words, [flag for flags in _WITH_VALUE for flag in flags])
    if program and program[0] == "doctor" and not os.path.exists("doctor"):
        own, program = [*own, "--doctor"], program[1:]
    given = vars(submit_parser().parse_args(own))
    options = _fields(given)
    for flag in ("requeue", "as_ray"):
        options[flag] = options[flag] or None  # without the flag a profile decides
    try:
        if given["batch"]:
            program = _batch_program(given, options, program)
        elif given["max_jobs"]:
            raise ValueError("--max-jobs is for --batch FILE")
        request = jobs.make_request(given["profile"], **options)
        if given["doctor"] and program:
            raise ValueError(f"--doctor takes no program, and there is {program[0]!r}")
        program = list(script.DOCTOR) if given["doctor"] else program
        text = script.text(request, tuple(program))
        if bounds.seconds(request.time) < _SHORT_S and (note := script.time_note(request)):
            print(f"mpi-runtime submit: {note}", file=sys.stderr)
        if given["dry_run"]:
            print(text, end="")
            return 0
        jobs.check_program(request, tuple(program))
        found = [jobs.submit_script(text, system=request.system) for _ in range(given["max_jobs"] or 1)]
        if given["batch"]:
            _note_jobs(program[2:], found)
        print("\n".join(found), flush=True)
        return max(map(_follow, found)) if given["wait"] else 0
    except (SlurmError, ValueError, TypeError) as error:
        raise LaunchError(str(error)) from None


def _fields(given: Options) -> Options:
    """Return the fields of `Request` that options of the command line state."""
    options: Options = {name: value for name, value in given.items() if name not in _OWN}
    if options["nodes"] is not None and options["nodes"].isdecimal():
        options["nodes"] = int(options["nodes"])
    if given["env"]:
        pairs = [one.partition("=") for one in given["env"]]
        if wrong := [name for name, equals, _ in pairs if not equals]:
            raise LaunchError(f"--env takes NAME=VALUE, not {wrong[0]!r}")
        options["environment"] = {name: value for name, _, value in pairs}
    return options


def add_resources(parser: argparse.ArgumentParser) -> None:
    """Add the options for the resources of a job that `submit` has."""
    group = parser.add_argument_group("options of batch jobs, as those of `mpi-runtime submit`")
    for flags, more in _of_resources():
        group.add_argument(*flags, **more)


def stated_resources(options: argparse.Namespace) -> Options:
    """Return the fields of `Request` that these options state; empty: none is stated."""
    parser = argparse.ArgumentParser()
    add_resources(parser)
    given = {name: getattr(options, name) for name in vars(parser.parse_args([]))}
    return {name: value for name, value in _fields(given).items() if value is not None}


def _of_resources() -> list[tuple[tuple[str, ...], Options]]:
    return [(flags, more) for flags, more in _WITH_VALUE.items() if not {*flags} & {*_OF_PROGRAM}]


def _batch_program(given: Options, options: Options, words: Sequence[str]) -> list[str]:
    """Check a batch, and return the program that runs it. The name of the batch becomes that of the job."""
    from mpi_runtime.batch.cli.reading import problems_of  # not at the top: it loads the whole package

    if given["max_jobs"] is not None and given["max_jobs"] < 1:
        raise LaunchError(f"--max-jobs must be 1 or more, not {given['max_jobs']}")
    if given["batch"] == "-":
        raise LaunchError("--batch needs a file: a job has no standard input")
    if given["array"]:
        raise LaunchError("--batch and --array exclude each other: all jobs of the array would run the same batch")
    flags = [*(["--requeue"] if given["requeue"] else []), *(["--join"] if given["max_jobs"] else [])]
    program = [given["batch"], *flags, *words]
    limits = bounds.of(jobs.make_request(given["profile"], **options))
    if given["max_jobs"]:  # another job may have what these have not
        limits = bounds.Bounds(math.inf, math.inf, math.inf, math.inf, limits.nodes)
    if any(word.split("=")[0] in ("--gpus", "--gpus-per-node") for word in words):
        limits = limits._replace(gpus=math.inf)
    name, wrong = problems_of(program, limits)
    if wrong:
        raise LaunchError("\n".join([f"{len(wrong)} wrong in {given['batch']}; nothing was submitted", *wrong]))
    options["name"] = options["name"] or f"batch-{name}"
    return ["-m", "mpi_runtime.batch", *program]


def _note_jobs(words: Sequence[str], found: Sequence[str]) -> None:
    from mpi_runtime.batch.cli.options import batch_parser
    from mpi_runtime.batch.cli.reading import directory_of
    from mpi_runtime.batch.history import submitted  # not at the top: these load the whole package

    try:
        submitted.note(directory_of(batch_parser().parse_args(words)), found)
    except (OSError, JournalError) as error:
        print(f"mpi-runtime submit: when the batch ends, jobs that still wait stay queued: {error}", file=sys.stderr)


def status(words: Sequence[str]) -> int:
    """Print the status of jobs. Return 0, or 2 if one of them is not known."""
    options = status_parser().parse_args(words)
    code = 0
    all_found: list[jobs.Status] = []
    for job in options.jobs:
        try:
            found = jobs.statuses(job)
        except SlurmError as error:
            print(f"mpi-runtime status: {job}: {error}", file=sys.stderr)
            code = 2
            continue
        all_found += found
        if options.json:
            continue
        print(found[0] if len(found) == 1 else f"array {job} {found[0].name}\n{jobs.table(found)}".rstrip(), flush=True)
    if options.json:
        print_json(all_found)
    return code


def status_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime status`."""
    what = "Show the state of jobs of a batch system, and why they wait."
    parser = argparse.ArgumentParser(prog="mpi-runtime status", description=what)
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="the id of a job")
    add_json(parser)
    return parser


def template(words: Sequence[str]) -> int:
    """Print the batch script of this name; without a name, the list of scripts."""
    texts = _templates()
    name = template_parser().parse_args(words).name
    if name is not None:
        print(texts[name], end="")
        return 0
    for name, text in sorted(texts.items()):
        print(f"{name:15} {text.splitlines()[1].removeprefix('# ')}")
    return 0


def _templates() -> dict[str, str]:
    """The batch scripts, by name."""
    folder = resources.files("mpi_runtime.slurm") / "templates"
    return {one.name.removesuffix(".sbatch"): one.read_text() for one in folder.iterdir()}


def template_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime template`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime template",
        description="Print a batch script for Slurm to start from: mpi-runtime template rank_per_node > job.sbatch",
    )
    parser.add_argument(
        "name", nargs="?", choices=sorted(_templates()), help="which script; without it: the list of scripts"
    )
    return parser


def _follow(job: str) -> int:
    try:
        return following.follow(job)
    except (KeyboardInterrupt, BrokenPipeError) as error:
        print(f"\nmpi-runtime: job {job} continues", file=sys.stderr)
        print(f"  status: mpi-runtime status {job}; to end it: {jobs.cancel_command()} {job}", file=sys.stderr)
        if isinstance(error, KeyboardInterrupt):
            return _INTERRUPTED
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # drop the buffered output
        return _NOBODY_READS


def submit_parser() -> argparse.ArgumentParser:
    """The arguments of `mpi-runtime submit`."""
    parser = argparse.ArgumentParser(
        prog="mpi-runtime submit",
        usage="mpi-runtime submit [options] (app.py | -m module | --doctor | --batch FILE) [arguments]",
        description="Submit a program to a batch system, on whole nodes unless --cpus-per-node is given.",
        epilog="Options for all your jobs belong in a profile: ~/.config/mpi-runtime/slurm.toml, see docs/slurm.md. "
        "The output goes to NAME-JOB.out in this directory.",
        allow_abbrev=False,
    )
    for flags, more in _WITH_VALUE.items():
        parser.add_argument(*flags, **more)
    parser.add_argument("--requeue", action="store_true", help="start again after the failure of a node")
    parser.add_argument("--as-ray", action="store_true", help="in the program `import ray` gives this runtime")
    parser.add_argument("--dry-run", action="store_true", help="print the script and do not submit it")
    parser.add_argument("--doctor", action="store_true", help="run `mpi-runtime doctor` as the program, on all ranks")
    parser.add_argument(
        "--wait", action="store_true", help="show the output, and exit with the exit code of the program"
    )
    return parser
