"""What `train` uses of tune, beside its public names: a training is a trial on a gang."""

from typing import TYPE_CHECKING

from mpi_runtime import _face

_HOMES = {
    ".unsupported": "AbsentArgumentError WrongKindError advised",
    ".experiment.journal_view": "Watched",
    ".experiment.results": "error_of",
    ".local_paths": "folder",
    ".study.events": "Judged",
    ".counting": "OF_EACH_REPORT",
    ".trial": "Config Report Trial",
    ".trials.bundles": "GangRequest most_members slots_for",
    ".trials.checkpoint": "RETURN_VALUE Saved check_checkpoint keep merge",
    ".trials.reporting": ("Ranks StopTrial TrialRun TrialStart enter_trial plain trial_run trial_run_or_none"),
    ".trials.runner": "seed",
    ".trials.trainable": "PREPARED Prepared",
}
"""The names of each module, which is loaded when one of them is used."""

__all__ = [
    "OF_EACH_REPORT",
    "PREPARED",
    "RETURN_VALUE",
    "AbsentArgumentError",
    "Config",
    "GangRequest",
    "Judged",
    "Prepared",
    "Ranks",
    "Report",
    "Saved",
    "StopTrial",
    "Trial",
    "TrialRun",
    "TrialStart",
    "Watched",
    "WrongKindError",
    "advised",
    "check_checkpoint",
    "enter_trial",
    "error_of",
    "folder",
    "keep",
    "merge",
    "most_members",
    "plain",
    "seed",
    "slots_for",
    "trial_run",
    "trial_run_or_none",
]  # fmt: skip

if TYPE_CHECKING:
    from mpi_runtime.tune.counting import OF_EACH_REPORT
    from mpi_runtime.tune.experiment.journal_view import Watched
    from mpi_runtime.tune.experiment.results import error_of
    from mpi_runtime.tune.local_paths import folder
    from mpi_runtime.tune.study.events import Judged
    from mpi_runtime.tune.trial import Config, Report, Trial
    from mpi_runtime.tune.trials.bundles import GangRequest, most_members, slots_for
    from mpi_runtime.tune.trials.checkpoint import RETURN_VALUE, Saved, check_checkpoint, keep, merge
    from mpi_runtime.tune.trials.reporting import (
        Ranks,
        StopTrial,
        TrialRun,
        TrialStart,
        enter_trial,
        plain,
        trial_run,
        trial_run_or_none,
    )
    from mpi_runtime.tune.trials.runner import seed
    from mpi_runtime.tune.trials.trainable import PREPARED, Prepared
    from mpi_runtime.tune.unsupported import AbsentArgumentError, WrongKindError, advised
else:  # a checker would take every name for one of ours
    __getattr__, __dir__ = _face(__name__, _HOMES, __all__)
