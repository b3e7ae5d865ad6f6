"""Names of Ray Train that programs read or set: files, and variables of the environment. The variables do nothing."""

import os

from mpi_runtime.tune.extend import folder

DEFAULT_STORAGE_PATH = os.fspath(folder(None))
"""Where trainings are without a `storage_path`."""
CHECKPOINT_MANAGER_SNAPSHOT_FILENAME = "checkpoint_manager_snapshot.json"
"""A file of Ray's trainings. Here the journal has its content."""
COLLECTIVE_TIMEOUT_S_ENV_VAR = "RAY_TRAIN_COLLECTIVE_TIMEOUT_S"
HEALTH_CHECK_INTERVAL_S_ENV_VAR = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"
RAY_CHDIR_TO_TRIAL_DIR = "RAY_CHDIR_TO_TRIAL_DIR"
RAY_TRAIN_ENABLE_STATE_TRACKING = "RAY_TRAIN_ENABLE_STATE_TRACKING"
V2_ENABLED_ENV_VAR = "RAY_TRAIN_V2_ENABLED"
WORKER_GROUP_START_TIMEOUT_S_ENV_VAR = "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"


def is_v2_enabled() -> bool:
    """Return True: `ray.train` is that of Ray Train V2."""
    return True
