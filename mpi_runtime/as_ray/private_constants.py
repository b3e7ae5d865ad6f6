"""Constants of modules that are private to Ray, which libraries read."""

MIN_RESOURCE_GRANULARITY = 0.0001
"""The smallest amount of a resource that can be requested."""
RAY_JOB_CONFIG_JSON_ENV_VAR = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable with the settings of a submitted job. Nothing here sets it."""
